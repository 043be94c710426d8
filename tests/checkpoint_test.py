"""Checkpoints hold all that is needed to go on, on any mesh."""

import shutil

from etils import epath
import jax
import numpy as np
import pytest

from leviathan import checkpoint
from leviathan import errors
from leviathan import experiment
from leviathan import sharding
from leviathan import state as state_lib

MANIFEST = {'arm': 'lev', 'parameters': {'a/b': [1, 2]}}


def on_mesh(config, data, fsdp, tensor, devices=None):
  mesh_config = sharding.MeshConfig(data=data, fsdp=fsdp, tensor=tensor)
  mesh = sharding.make_mesh(mesh_config, devices)
  return experiment.Experiment(config, mesh)


def assert_equal(a, b):
  for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


@pytest.fixture
def directory(tmp_path):
  return epath.Path(tmp_path / 'checkpoints')


@pytest.fixture(scope='module')
def parts(tiny):
  return on_mesh(tiny.config(), 1, 8, 1)


@pytest.fixture(scope='module')
def state(parts):
  """A state whose every leaf differs from a fresh one's."""
  fresh = parts.fresh_state()
  moved = jax.tree.map(lambda x: x + x.dtype.type(3), fresh)
  return moved.replace(step=jax.numpy.int32(7))


def save(directory, state, keep=1):
  checkpoints = checkpoint.Checkpoints(directory, keep)
  checkpoints.save(state, MANIFEST)
  checkpoints.close()


@pytest.mark.parametrize('mesh', [(1, 8, 1), (1, 1, 1), (2, 2, 2), (4, 1, 1)])
def test_restores_bit_for_bit_on_any_mesh(directory, state, tiny, mesh):
  save(directory, state)
  count = int(np.prod(mesh))
  parts = on_mesh(tiny.config(), *mesh, jax.devices()[:count])
  found = checkpoint.Checkpoints(directory).restore(7, parts.abstract_state)
  assert_equal(found, state)
  wanted = jax.tree.map(lambda x: x.sharding, parts.abstract_state)
  assert jax.tree.map(lambda x: x.sharding, found) == wanted


def test_the_manifest_comes_back(directory, state):
  save(directory, state)
  assert checkpoint.Checkpoints(directory).manifest(7) == MANIFEST


def test_parameters_are_restored_without_a_byte_of_the_optimizer(
  directory, state, parts
):
  save(directory, state)
  shutil.rmtree(directory / '7' / 'opt_state')
  found = checkpoint.Checkpoints(directory).restore_params(
    7, parts.abstract_state.params
  )
  assert_equal(found, state.params)


def test_a_save_in_flight_is_not_changed_by_the_steps_after_it(
  directory, parts
):
  """The step donates its state, whose buffers the save may still read."""
  checkpoints = checkpoint.Checkpoints(directory, keep=9)
  state = parts.fresh_state().replace(step=jax.numpy.int32(1))
  wanted = jax.tree.map(np.array, state)
  wreck = jax.jit(
    lambda s: jax.tree.map(lambda x: x * 0 - 1, s), donate_argnums=0
  )
  checkpoints.save(state, MANIFEST)
  jax.block_until_ready(wreck(state))
  checkpoints.close()
  found = checkpoint.Checkpoints(directory).restore(1, parts.abstract_state)
  assert_equal(found, wanted)


def test_only_the_latest_are_kept(directory, state):
  checkpoints = checkpoint.Checkpoints(directory, keep=2)
  for step in (1, 2, 3):
    checkpoints.save(state.replace(step=jax.numpy.int32(step)), MANIFEST)
  checkpoints.close()
  found = checkpoint.Checkpoints(directory)
  assert found.steps() == [2, 3]
  assert found.latest() == 3


def test_what_a_killed_save_left_does_not_stand_in_the_way(directory, state):
  (directory / '7.orbax-checkpoint-tmp').mkdir(parents=True)
  (directory / '7.orbax-checkpoint-tmp' / 'params').mkdir()
  assert checkpoint.Checkpoints(directory).latest() is None
  save(directory, state)
  assert checkpoint.Checkpoints(directory).steps() == [7]


def test_reading_leaves_a_save_in_flight_alone(directory, state):
  """Evaluating a run must not break the run that is going on."""
  save(directory, state)
  growing = directory / '9.orbax-checkpoint-tmp' / 'params'
  growing.mkdir(parents=True)
  assert checkpoint.Checkpoints(directory).steps() == [7]
  assert growing.exists()


def test_a_step_that_is_not_there_is_refused_with_those_that_are(
  directory, state, parts
):
  save(directory, state)
  with pytest.raises(errors.CheckpointError, match=r'step 8; there are \[7\]'):
    checkpoint.Checkpoints(directory).restore(8, parts.abstract_state)


def test_another_shape_is_refused_with_the_cause(directory, state, tiny):
  save(directory, state)
  wider = on_mesh(tiny.config(model__mlp_width=96), 1, 1, 1, jax.devices()[:1])
  with pytest.raises(errors.CheckpointError, match='96') as caught:
    checkpoint.Checkpoints(directory).restore(7, wider.abstract_state)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize('damage', ['empty', 'no optimizer'])
def test_a_folder_that_is_not_whole_is_passed_over_and_left(
  directory, state, damage
):
  """A later one, so that it would be the latest."""
  save(directory, state)
  later = directory / '9'
  later.mkdir()
  if damage == 'no optimizer':
    shutil.copytree(directory / '7' / 'params', later / 'params')
  checkpoints = checkpoint.Checkpoints(directory, keep=5)
  assert checkpoints.latest() == 7
  assert later.exists()
  # Parameters alone are enough to evaluate.
  readable = [7] if damage == 'empty' else [7, 9]
  assert checkpoint.Checkpoints(directory).steps() == readable


def test_the_restored_optimizer_goes_on_from_its_own_count(directory, parts):
  """AdamW's bias correction depends on the count."""
  state = parts.fresh_state()
  grads = jax.tree.map(jax.numpy.ones_like, state.params)
  _, optimizer = parts.optimizer.update(
    grads, state.opt_state.optimizer, state.params
  )
  moved = state_lib.State(
    step=jax.numpy.int32(1),
    params=state.params,
    opt_state=state.opt_state.replace(optimizer=optimizer),
  )
  save(directory, moved)
  found = checkpoint.Checkpoints(directory).restore(1, parts.abstract_state)
  again, _ = parts.optimizer.update(
    grads, found.opt_state.optimizer, found.params
  )
  wanted, _ = parts.optimizer.update(
    grads, moved.opt_state.optimizer, moved.params
  )
  assert_equal(again, wanted)
