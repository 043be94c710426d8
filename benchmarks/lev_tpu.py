"""What LEV would need of a TPU, by compiling ahead of time; none is used.

  JAX_PLATFORMS=cpu python benchmarks/lev_tpu.py

Needs the extra `tpu` or `test`. Value and gradient of the layer of 1p2b
(D = 2048, V = 200,019) over 8192 tokens on one chip: prints one JSON row for
each chip and form with temporary memory, the bytes that XLA counts as accessed
(kernels by their own estimate) and seconds to compile. `table` is the lookup in
a table and its gradient.
"""

import json
import os
import time

# Before libtpu is loaded: nobody is asked for a TPU, and several may compile.
os.environ.setdefault('TPU_SKIP_MDS_QUERY', '1')
os.environ.setdefault('ALLOW_MULTIPLE_LIBTPU_LOAD', '1')

from absl import app
from absl import flags
import jax
from jax.experimental import topologies
import jax.numpy as jnp

from configs import base
from configs import lev as arm
from leviathan import sharding
from leviathan.embed import lev

TOPOLOGIES = flags.DEFINE_list(
  'topologies', ['v5e:2x2', 'v6e:2x2', 'v5p:2x2x1'], 'One chip of each is used.'
)
TOKENS = flags.DEFINE_integer('tokens', 8192, 'In sequences of 512.')
WIDTH = flags.DEFINE_integer('width', 2048, 'D.')

VOCAB_SIZE = base.VOCABULARIES['o200k']
CONFIG = lev.LevConfig(**arm.embedder('1p2b'))


def embedder(form: str):
  """(shapes of the parameters, function of them and ids_BL)."""
  if form == 'table':
    shapes = {'table_VD': (VOCAB_SIZE, WIDTH.value)}
    return shapes, lambda params, ids_BL: jnp.take(
      params['table_VD'], ids_BL, axis=0
    )

  def embed(params, ids_BL):
    x_TD = lev.lev_embed(params, ids_BL.reshape(-1), form)
    return x_TD.reshape(*ids_BL.shape, -1)

  parameters = CONFIG.parameters(VOCAB_SIZE, WIDTH.value)
  return {name: shape for name, (shape, _) in parameters.items()}, embed


def measure(topology: str, form: str) -> dict:
  """One row."""
  devices = topologies.get_topology_desc(topology, platform='tpu').devices[:1]
  mesh = sharding.make_mesh(
    sharding.MeshConfig(data=1, fsdp=1, tensor=1), devices
  )
  shapes, embed = embedder(form)
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  rows = sharding.batch_sharding(mesh)
  length = min(512, TOKENS.value)
  batch = TOKENS.value // length
  params = {
    name: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=whole)
    for name, shape in shapes.items()
  }
  ids_BL = jax.ShapeDtypeStruct((batch, length), jnp.int32, sharding=rows)
  cotangent_BLD = jax.ShapeDtypeStruct(
    (batch, length, WIDTH.value), jnp.float32, sharding=rows
  )

  def scalar(params, ids_BL, cotangent_BLD):
    x_BLD = sharding.by_rows(embed, params, ids_BL)
    return jnp.sum(x_BLD * cotangent_BLD)

  with jax.set_mesh(mesh):
    start = time.perf_counter()
    step = jax.jit(jax.value_and_grad(scalar))
    compiled = step.lower(params, ids_BL, cotangent_BLD).compile()
    seconds = time.perf_counter() - start
  return {
    'chip': topology.partition(':')[0],
    'tokens': batch * length,
    'width': WIDTH.value,
    'form': form,
    'temporary_gb': compiled.memory_analysis().temp_size_in_bytes / 1e9,
    'accessed_gb': compiled.cost_analysis()['bytes accessed'] / 1e9,
    'compile_seconds': round(seconds, 1),
  }


def main(argv) -> None:
  """Runs all chips and forms."""
  del argv
  for topology in TOPOLOGIES.value:
    for form in ('auto', 'chunked', 'reference', 'table'):
      print(json.dumps(measure(topology, form)), flush=True)


if __name__ == '__main__':
  app.run(main)
