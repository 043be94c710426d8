"""Runs of any arm that were never trained, but have parameters that matter."""

import dataclasses

import jax
import numpy as np
import pytest

from leviathan import checkpoint
from leviathan import experiment
from leviathan import restore
from leviathan import rundir


def disturbed(params, seed=0):
  """The parameters with noise, so that none is 0, 1 or of an equal row."""
  rng = np.random.default_rng(seed)

  def leaf(x):
    noise = 0.1 * rng.standard_normal(x.shape).astype(np.float32)
    return jax.device_put(np.asarray(x) + noise, x.sharding)

  return jax.tree.map(leaf, params)


@pytest.fixture(scope='session')
def saved(tiny, tmp_path_factory):
  """(arm, changes of the config) -> its Restored, made once."""
  made = {}

  def make(arm, **changes):
    key = arm, *sorted(changes.items())
    if key not in made:
      config = tiny.config(arm, **changes)
      parts = experiment.make(config)
      data = experiment.open_training(config)
      run = rundir.open_(str(tmp_path_factory.mktemp(arm) / 'run'))
      manifest = parts.manifest(data)
      rundir.claim(run, dataclasses.asdict(config), manifest, data)
      state = parts.fresh_state()
      state = state.replace(params=disturbed(state.params))
      checkpoints = checkpoint.Checkpoints(run.checkpoint_dir, keep=1)
      checkpoints.save(state, manifest | {'sequences': 0})
      checkpoints.close()
      made[key] = restore.restore(run, None)
    return made[key]

  return make
