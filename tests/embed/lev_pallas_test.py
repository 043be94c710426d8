"""The TPU kernel, compiled for TPUs that are not here.

That its numbers are right is shown by interpreting it, in lev_test and
modes_test; here, that real chips would take it, and how little they need.
"""

import dataclasses
import os

import jax
from jax.experimental import topologies
import jax.numpy as jnp
import numpy as np
import pytest

from configs import base
from configs import lev as arm
from leviathan import arrays
from leviathan import errors
from leviathan import experiment
from leviathan import sharding
from leviathan.embed import lev

# Several processes may compile at once, and none asks the network for a TPU.
os.environ['ALLOW_MULTIPLE_LIBTPU_LOAD'] = '1'
os.environ['TPU_SKIP_MDS_QUERY'] = '1'

D, T, V = 2048, 8192, base.VOCABULARIES['o200k']
CONFIG = lev.LevConfig(**arm.embedder('1p2b'))


@pytest.fixture(autouse=True)
def libtpu():
  """The compiler for TPUs; wheels of it are for Linux on x86-64 alone."""
  pytest.importorskip('libtpu', reason='only Linux on x86-64 has libtpu')


@pytest.mark.parametrize(
  'topology, temporary_gb',
  [('v5e:2x2', 0.1), ('v6e:2x2', 0.1), ('v5p:2x2x1', 0.12)],
)
def test_the_layer_of_1p2b_compiles_for_a_chip_and_fits(topology, temporary_gb):
  devices = topologies.get_topology_desc(topology, platform='tpu').devices[:1]
  mesh = sharding.make_mesh(
    sharding.MeshConfig(data=1, fsdp=1, tensor=1), devices
  )
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  params = {
    name: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=whole)
    for name, (shape, _) in CONFIG.parameters(V, D).items()
  }
  ids_BL = jax.ShapeDtypeStruct((16, T // 16), jnp.int32, sharding=whole)
  cotangent_BLD = jax.ShapeDtypeStruct((16, T // 16, D), jnp.float32)

  def scalar(params, ids_BL, cotangent_BLD):
    def embed(params, ids_BL):
      # 'auto' must see the mesh's platform, not this machine's.
      return lev.lev_embed(params, ids_BL.reshape(-1)).reshape(*ids_BL.shape, D)

    return jnp.sum(sharding.by_rows(embed, params, ids_BL) * cotangent_BLD)

  with jax.set_mesh(mesh):
    compiled = (
      jax.jit(jax.value_and_grad(scalar))
      .lower(params, ids_BL, cotangent_BLD)
      .compile()
    )
  text = compiled.as_text()
  for kernel in ('forward_kernel', 'backward_kernel', 'lev_product'):
    assert kernel in text
  # phi would take 2.1 GB.
  found = compiled.memory_analysis().temp_size_in_bytes
  assert found <= temporary_gb * 1e9
  # By XLA's count, and for the kernels by their own estimate.
  assert compiled.cost_analysis()['bytes accessed'] <= 1.5e9


@pytest.mark.parametrize(
  'sizes, message',
  [
    # A vocabulary of one digit, where a product would pick from all of it.
    (dict(num_digits=1, seed_width=2, rank=1), '3000 codebook rows'),
    (dict(num_digits=2, seed_width=256, rank=256), 'rank=256 need'),
    # Few factors, but a row of 8 takes the room of 128.
    (dict(num_digits=3, seed_width=4096, rank=8, knots=16), 'seed_width=4096'),
  ],
)
def test_what_does_not_fit_the_chip_is_refused_by_name(sizes, message):
  config = dataclasses.replace(CONFIG, **dict(heads=1, knots=3) | sizes)
  params = {
    name: np.zeros(shape, np.float32)
    for name, (shape, _) in config.parameters(3000, 4).items()
  }
  with pytest.raises(errors.ConfigError, match=message):
    lev.lev_embed(params, np.zeros(3, np.int32), 'pallas')


def test_a_whole_training_step_compiles_for_a_slice(tiny):
  """Kernel, mesh and model together: four chips, split by fsdp and tensor."""
  parts = experiment.Experiment(
    tiny.config(),
    sharding.make_mesh(
      sharding.MeshConfig(data=1, fsdp=2, tensor=2),
      topologies.get_topology_desc('v5e:2x2', platform='tpu').devices,
    ),
  )
  rows_BL = jax.ShapeDtypeStruct(
    (8, 32), jnp.int32, sharding=sharding.batch_sharding(parts.mesh)
  )
  weights_BL = jax.ShapeDtypeStruct(
    (8, 32), jnp.float32, sharding=rows_BL.sharding
  )
  state = parts.abstract_state
  with jax.set_mesh(parts.mesh):
    lowered = parts.train_step().lower(
      state, arrays.Batch(rows_BL, rows_BL, weights_BL)
    )
    text = lowered.compile().as_text()
  assert 'forward_kernel' in text and 'backward_kernel' in text
