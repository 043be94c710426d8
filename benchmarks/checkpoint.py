"""A whole checkpoint: saved beside training, restored on other devices.

  python benchmarks/checkpoint.py --scale=200m --directory=/a/disk

Prints one JSON row: bytes of the state and of its files, the seconds for which
a save keeps training from going on (the first one of a process, which compiles
the copying of each shape, and a later one), those until it can be restored
from, and those of restoring it on half as many devices in another process,
where every array must have the same bits. Devices are virtual ones of the CPU,
and the state's numbers random, since zeros take no space. What the system keeps
in memory of the files makes restoring faster than from a cold disk.
"""

from collections.abc import Sequence
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time

from absl import app
from absl import flags
from etils import epath
import jax
import jax.numpy as jnp
import numpy as np

from leviathan import checkpoint
from leviathan import experiment
from leviathan import sharding
from leviathan import state as state_lib
from leviathan import step_folder

ARM = flags.DEFINE_string('arm', 'lev', 'Of configs/.')
SCALE = flags.DEFINE_string('scale', '200m', 'See configs/base.py.')
DEVICES = flags.DEFINE_integer('devices', 8, 'That save; half restore.')
DIRECTORY = flags.DEFINE_string(
  'directory', None, 'On the disk to measure; by default the temporary one.'
)
STAGE = flags.DEFINE_enum(
  'stage', None, ['save', 'restore'], 'Of a process that this one starts.'
)


def make() -> experiment.Experiment:
  """The arm's parts, its state spread over all devices."""
  config = importlib.import_module(f'configs.{ARM.value}').get_config(
    SCALE.value
  )
  mesh = sharding.make_mesh(sharding.MeshConfig(data=1, fsdp=-1, tensor=1))
  return experiment.Experiment(experiment.read_config(config), mesh)


def random_state(parts: experiment.Experiment) -> state_lib.State:
  """Random numbers in every array."""
  leaves, tree = jax.tree.flatten(parts.abstract_state)

  def fill(key):
    keys = jax.random.split(key, len(leaves))
    filled = []
    for key, leaf in zip(keys, leaves, strict=True):
      numbers = 100 * jax.random.normal(key, leaf.shape)
      filled.append(numbers.astype(leaf.dtype))
    return tree.unflatten(filled)

  shardings = jax.tree.map(lambda x: x.sharding, parts.abstract_state)
  with jax.set_mesh(parts.mesh):
    return jax.jit(fill, out_shardings=shardings)(jax.random.key(0)).replace(
      step=jnp.int32(1)
    )


def digest(state: state_lib.State) -> str:
  """Equal for states of the same bits."""
  total = hashlib.sha256()
  for leaf in jax.tree.leaves(state):
    total.update(np.asarray(leaf).tobytes())
  return total.hexdigest()


def save(directory: epath.Path) -> dict:
  """Saves twice; the second is step 1."""
  parts = make()
  state = jax.block_until_ready(random_state(parts))
  checkpoints = checkpoint.Checkpoints(directory, keep=1)
  blocked, committed = [], []
  for step in (0, 1):
    start = time.perf_counter()
    checkpoints.save(state.replace(step=jnp.int32(step)), {})
    blocked.append(time.perf_counter() - start)
    checkpoints.wait()
    committed.append(time.perf_counter() - start)
  checkpoints.close()
  sizes = json.loads((directory / '1' / step_folder.LISTING).read_text())
  return {
    'state_gb': sum(x.nbytes for x in jax.tree.leaves(state)) / 1e9,
    'files_gb': sum(sizes.values()) / 1e9,
    'saved_on': jax.device_count(),
    'first_blocked_seconds': blocked[0],
    'blocked_seconds': blocked[1],
    'committed_seconds': committed[1],
    'digest': digest(state),
  }


def restore(directory: epath.Path) -> dict:
  """Restores step 1."""
  parts = make()
  checkpoints = checkpoint.Checkpoints(directory)
  start = time.perf_counter()
  state = jax.block_until_ready(checkpoints.restore(1, parts.abstract_state))
  seconds = time.perf_counter() - start
  return {
    'restored_on': jax.device_count(),
    'restore_seconds': seconds,
    'digest': digest(state),
  }


def stage(name: str, directory: str, devices: int) -> dict:
  """Runs a stage in a process that has so many devices."""
  flag = f'--xla_force_host_platform_device_count={devices}'
  command = [sys.executable, __file__, f'--stage={name}']
  command += [f'--arm={ARM.value}', f'--scale={SCALE.value}']
  found = subprocess.run(
    [*command, f'--directory={directory}'],
    env=os.environ | {'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': flag},
    stdout=subprocess.PIPE,
    check=True,
  )
  return json.loads(found.stdout.splitlines()[-1])


def main(argv: Sequence[str]) -> None:
  """Prints the row."""
  del argv
  if STAGE.value:
    run = {'save': save, 'restore': restore}[STAGE.value]
    print(json.dumps(run(epath.Path(DIRECTORY.value))))
    return
  with tempfile.TemporaryDirectory(dir=DIRECTORY.value) as scratch:
    directory = os.path.join(scratch, 'checkpoints')
    saved = stage('save', directory, DEVICES.value)
    restored = stage('restore', directory, DEVICES.value // 2)
  row = {'arm': ARM.value, 'scale': SCALE.value} | saved | restored
  del row['digest']
  row['bits_equal'] = saved['digest'] == restored['digest']
  print(json.dumps(row))


if __name__ == '__main__':
  app.run(main)
