"""Checkpoints hold all that is needed to go on, on any mesh."""

import dataclasses
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import threading
import time
import types

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


def small(step, elements=4):
  """A state of one array besides the optimizer's count."""
  return state_lib.State(
    step=jax.numpy.int32(step),
    params={'w_D': jax.numpy.arange(elements, dtype=jax.numpy.float32)},
    opt_state={'count': jax.numpy.int32(step)},
  )


def abstract(state):
  return jax.tree.map(
    lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
    state,
  )


def names(directory):
  return {path.name for path in directory.iterdir()}


@pytest.fixture(scope='module')
def saved_once(tmp_path_factory):
  """Steps 7 and 9 of one run."""
  directory = epath.Path(tmp_path_factory.mktemp('run') / 'checkpoints')
  checkpoints = checkpoint.Checkpoints(directory, keep=9)
  for step in (7, 9):
    checkpoints.save(small(step), MANIFEST)
  checkpoints.close()
  return directory


@pytest.fixture
def saved(saved_once, directory):
  """A copy of those, to damage."""
  shutil.copytree(saved_once, directory)
  return directory


def data_file(folder):
  """The largest file of the parameters."""
  files = [path for path in (folder / 'params' / 'd').iterdir()]
  return max(files, key=lambda path: path.stat().length)


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


def test_the_restored_optimizer_goes_on_from_its_own_count(directory, parts):
  """AdamW's bias correction depends on the count."""
  state = parts.fresh_state()
  grads = jax.tree.map(jax.numpy.ones_like, state.params)
  update = jax.jit(parts.optimizer.update)
  _, optimizer = update(grads, state.opt_state.optimizer, state.params)
  moved = state_lib.State(
    step=jax.numpy.int32(1),
    params=state.params,
    opt_state=state.opt_state.replace(optimizer=optimizer),
  )
  save(directory, moved)
  found = checkpoint.Checkpoints(directory).restore(1, parts.abstract_state)
  again, _ = update(grads, found.opt_state.optimizer, found.params)
  wanted, _ = update(grads, moved.opt_state.optimizer, moved.params)
  assert_equal(again, wanted)


RESTORE = """
import json, sys
from etils import epath
import numpy as np
import jax
from leviathan import checkpoint, experiment, sharding
config = experiment.read_config(json.load(open(sys.argv[1])))
mesh = sharding.make_mesh(sharding.MeshConfig(data=1, fsdp=-1, tensor=1))
parts = experiment.Experiment(config, mesh)
checkpoints = checkpoint.Checkpoints(epath.Path(sys.argv[2]))
state = checkpoints.restore(7, parts.abstract_state)
assert jax.device_count() == int(sys.argv[4])
np.savez(sys.argv[3], *map(np.asarray, jax.tree.leaves(state)))
"""


@pytest.mark.parametrize('devices', [4, 1])
def test_restores_in_a_process_with_other_devices(
  directory, state, tiny, tmp_path, devices
):
  """The stored shardings name devices that are not there."""
  save(directory, state)
  config, result = tmp_path / 'config.json', tmp_path / 'leaves.npz'
  config.write_text(json.dumps(dataclasses.asdict(tiny.config())))
  flag = f'--xla_force_host_platform_device_count={devices}'
  subprocess.run(
    [sys.executable, '-c', RESTORE, config, directory, result, str(devices)],
    env=os.environ | {'XLA_FLAGS': flag},
    check=True,
  )
  assert_equal([*np.load(result).values()], jax.tree.leaves(state))


def test_other_settings_of_the_optimizer_do_not_keep_from_evaluating(
  directory, state, tiny
):
  save(directory, state)
  for path in (directory / '7' / 'opt_state').iterdir():
    if not path.is_dir():
      path.write_text('not what the optimizer wrote')
  other = on_mesh(tiny.config(optimizer__clip_norm=7.0), 1, 8, 1)
  found = checkpoint.Checkpoints(directory).restore_params(
    7, other.abstract_state.params
  )
  assert_equal(found, state.params)


def empty(folder):
  shutil.rmtree(folder)
  folder.mkdir()


def is_a_file(folder):
  shutil.rmtree(folder)
  folder.write_text('a note')


def is_another_thing(folder):
  empty(folder)
  (folder / 'model.safetensors').write_text('weights')


def copied_in_part(folder):
  data_file(folder).unlink()


def cut_short(folder):
  path = data_file(folder)
  path.write_bytes(path.read_bytes()[:-1])


def is_a_copy(folder):
  shutil.rmtree(folder)
  shutil.copytree(folder.parent / '7', folder)


def unlisted_and_in_part(folder):
  (folder / 'files.json').unlink()
  (folder / 'params' / '_METADATA').unlink()


def without_manifest(folder):
  (folder / '_CHECKPOINT_METADATA').unlink()


def with_half_a_manifest(folder):
  path = folder / '_CHECKPOINT_METADATA'
  (folder / 'files.json').unlink()
  path.write_text(path.read_text()[:40])


def with_anothers_listing(folder):
  (folder / 'files.json').write_text('3')


@pytest.mark.parametrize(
  'damage, fault',
  [
    (empty, '_CHECKPOINT_METADATA is missing'),
    (is_a_file, '_CHECKPOINT_METADATA is missing'),
    (is_another_thing, '_CHECKPOINT_METADATA is missing'),
    (copied_in_part, 'params/d/.* is missing'),
    (cut_short, 'params/d/.* bytes and should have'),
    (is_a_copy, 'it is a copy of step 7'),
    (unlisted_and_in_part, 'params/_METADATA is missing'),
    (without_manifest, '_CHECKPOINT_METADATA is missing'),
    (with_half_a_manifest, 'metadata are damaged'),
    (with_anothers_listing, 'metadata are damaged'),
  ],
)
def test_goes_back_past_a_folder_that_is_not_whole(saved, damage, fault):
  """It is named and left, and no save of ours fails because of it."""
  damage(saved / '9')
  before = sorted(pathlib.Path(saved / '9').rglob('*'))
  checkpoints = checkpoint.Checkpoints(saved, keep=1)
  assert checkpoints.latest() == 7
  step, state, notes = checkpoints.restore_latest(abstract(small(0)))
  assert step == 7
  assert_equal(state, small(7))
  (note,) = notes
  assert str(saved / '9') in note and '\n' not in note
  assert re.search(fault, note)
  checkpoints.save(small(8), MANIFEST)
  checkpoints.wait()
  assert names(saved) == {'8', '9'}
  assert sorted(pathlib.Path(saved / '9').rglob('*')) == before
  checkpoints.save(small(9), MANIFEST)
  checkpoints.close()
  assert names(saved) == {'9', '9.aside-0'}
  assert checkpoint.Checkpoints(saved).steps() == [9]


def wiped(folder):
  path = data_file(folder)
  path.write_bytes(bytes(path.stat().length))


def test_goes_back_past_one_whose_damage_shows_on_reading_alone(saved):
  wiped(saved / '9')
  checkpoints = checkpoint.Checkpoints(saved, keep=1)
  assert checkpoints.latest() == 9
  step, state, notes = checkpoints.restore_latest(abstract(small(0)))
  assert step == 7
  assert_equal(state, small(7))
  (note,) = notes
  assert str(saved / '9') in note and '\n' not in note
  assert checkpoints.latest() == 7
  # It is neither deleted nor among those that are kept.
  checkpoints.save(small(8), MANIFEST)
  checkpoints.close()
  assert names(saved) == {'8', '9'}


def test_a_run_whose_checkpoints_are_all_damaged_does_not_start_anew(saved):
  wiped(saved / '7')
  wiped(saved / '9')
  checkpoints = checkpoint.Checkpoints(saved, keep=1)
  with pytest.raises(errors.CheckpointError) as caught:
    checkpoints.restore_latest(abstract(small(0)))
  for step in (7, 9):
    assert str(saved / str(step)) in str(caught.value)


def test_without_checkpoints_there_is_nothing_to_restore(directory):
  checkpoints = checkpoint.Checkpoints(directory, keep=1)
  assert checkpoints.restore_latest(abstract(small(0))) == (None, None, [])
  assert not directory.exists()


def test_goes_back_past_one_of_another_run(saved):
  def check(step):
    if step == 9:
      raise errors.CheckpointError('step 9 is of another run')

  checkpoints = checkpoint.Checkpoints(saved, keep=1)
  step, _, (note,) = checkpoints.restore_latest(abstract(small(0)), check)
  assert step == 7
  assert 'of another run' in note


def test_one_that_does_not_fit_is_an_error_at_once(saved):
  """An older one would not fit either, and its steps would be lost."""
  checkpoints = checkpoint.Checkpoints(saved, keep=1)
  with pytest.raises(errors.CheckpointError) as caught:
    checkpoints.restore_latest(abstract(small(0, elements=5)))
  assert f'{saved / "9"}: params/w_D' in str(caught.value)
  assert checkpoints.latest() == 9


def test_a_save_killed_before_its_listing_is_whole(saved):
  """Orbax had renamed it into place; it still counts as the run's own."""
  (saved / '9' / 'files.json').unlink()
  checkpoints = checkpoint.Checkpoints(saved, keep=1)
  assert checkpoints.restore_latest(abstract(small(0)))[0] == 9
  checkpoints.save(small(10), MANIFEST)
  checkpoints.close()
  assert names(saved) == {'10'}


@pytest.mark.parametrize('moment', ['before', 'after'])
def test_what_a_killed_process_left_does_not_stand_in_the_way(
  directory, moment
):
  """Whether it is there when the directory is opened or comes later."""
  lefts = ['30.orbax-checkpoint-tmp', '30.orbax-checkpoint-tmp-0']
  lefts += ['20.deleted']
  if moment == 'after':
    checkpoints = checkpoint.Checkpoints(directory, keep=1)
  for left in lefts:
    (directory / left / 'params').mkdir(parents=True)
  (directory / '9.orbax-checkpoint-tmp-files.json').write_text('{')
  if moment == 'before':
    checkpoints = checkpoint.Checkpoints(directory, keep=1)
    assert names(directory) == set()
  checkpoints.save(small(30), MANIFEST)
  checkpoints.close()
  assert checkpoint.Checkpoints(directory).steps() == [30]


LOSSES = {10: 1.0, 20: 2.0, 30: 3.0, 40: 4.0}


@pytest.mark.parametrize(
  'losses, keep, keep_best, left',
  [
    (LOSSES, 2, 0, {30, 40}),
    (LOSSES, 2, 1, {10, 30, 40}),
    (LOSSES, 1, 3, {10, 20, 30, 40}),
    # The best is among the latest, too.
    ({10: 3.0, 20: 2.0, 30: 1.0}, 2, 1, {20, 30}),
    # Evaluated now and then, or not finite.
    ({10: None, 20: float('nan'), 30: 2.0, 40: None}, 1, 1, {30, 40}),
    # Of equal ones the later.
    ({10: 1.0, 20: 1.0, 30: 1.0, 40: 2.0}, 1, 2, {20, 30, 40}),
  ],
)
def test_the_latest_and_the_best_are_kept_apart(
  directory, losses, keep, keep_best, left
):
  """Also over a restart in the middle."""
  for part in (list(losses)[:2], list(losses)[2:]):
    checkpoints = checkpoint.Checkpoints(directory, keep, keep_best)
    checkpoints.restore_latest(abstract(small(0)))
    for step in part:
      checkpoints.save(small(step), MANIFEST, losses[step])
    checkpoints.close()
  found = checkpoint.Checkpoints(directory)
  assert found.steps() == sorted(left)
  assert found.latest() == max(losses)


def test_only_this_runs_checkpoints_are_deleted_or_counted(saved, tmp_path):
  """Whatever else lies there, below or above, with a number for a name."""
  other = epath.Path(tmp_path / 'other')
  for step in (5, 100):
    save(other, small(step), keep=9)
    shutil.copytree(other / str(step), saved / str(step))
  for step in (3, 200):
    (saved / str(step)).mkdir()
  (saved / 'notes').mkdir()
  checkpoints = checkpoint.Checkpoints(saved, keep=2)
  checkpoints.restore(9, abstract(small(0)))
  for step in (10, 11):
    checkpoints.save(small(step), MANIFEST)
  checkpoints.close()
  assert names(saved) == {'3', '5', '10', '11', '100', '200', 'notes'}


def test_the_step_saved_or_restored_last_is_not_saved_again(saved):
  checkpoints = checkpoint.Checkpoints(saved, keep=9)
  checkpoints.restore_latest(abstract(small(0)))
  checkpoints.save(small(9, elements=9), MANIFEST)
  checkpoints.save(small(10), MANIFEST)
  checkpoints.save(small(10, elements=9), MANIFEST)
  checkpoints.close()
  assert names(saved) == {'7', '9', '10'}
  found = checkpoint.Checkpoints(saved)
  for step in (9, 10):
    assert_equal(found.restore(step, abstract(small(0))), small(step))


def until_said(checkpoints):
  """What `check` raises, asked as a training loop would."""
  for _ in range(600):
    try:
      checkpoints.check()
    except errors.CheckpointError as e:
      return str(e)
    time.sleep(0.05)
  raise AssertionError('a failed save was never told of')


def test_a_save_that_fails_in_the_background_is_an_error_by_the_next_step(
  directory,
):
  """The disk refuses the file's end when training has long gone on."""
  save(directory, small(7), keep=9)
  checkpoints = checkpoint.Checkpoints(directory, keep=9)
  noise = np.random.default_rng(0).standard_normal(1 << 20, np.float32)
  large = small(9).replace(params={'w_D': jax.numpy.asarray(noise)})
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
  try:
    checkpoints.save(large, MANIFEST)
    said = until_said(checkpoints)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert f'saving step 9 to {directory} failed' in said
  assert 'the last good checkpoint is of step 7' in said
  assert 'File too large' in said and '\n' not in said
  checkpoints.check()  # Said once.
  checkpoints.save(small(9), MANIFEST)
  checkpoints.close()
  assert checkpoint.Checkpoints(directory).steps() == [7, 9]


def test_a_save_that_cannot_start_is_an_error(directory):
  directory.write_text('a file in the way')
  checkpoints = checkpoint.Checkpoints(directory, keep=1)
  with pytest.raises(errors.CheckpointError, match='no checkpoint is there'):
    checkpoints.save(small(9), MANIFEST)


def test_asking_after_a_save_does_not_wait_for_it(directory, monkeypatch):
  checkpoints = checkpoint.Checkpoints(directory, keep=1)
  go_on = threading.Event()
  ended = []
  monkeypatch.setattr(
    checkpoints, '_prune', lambda: ended.append(go_on.wait(timeout=20))
  )
  checkpoints.save(small(9), MANIFEST)
  checkpoints.check()
  assert not ended
  go_on.set()
  checkpoints.close()
  assert checkpoint.Checkpoints(directory).steps() == [9]


@pytest.fixture
def small_disk(tmp_path):
  """A directory on a disk of 5 MB."""
  path = tmp_path / 'disk'
  path.mkdir()
  mount = ['mount', '-t', 'tmpfs', '-o', 'size=5m', 'tmpfs', str(path)]
  if os.geteuid() or subprocess.run(mount, check=False).returncode:
    pytest.skip('only root can mount a small disk')
  try:
    yield epath.Path(path / 'checkpoints')
  finally:
    subprocess.run(['umount', str(path)], check=True)


def test_a_disk_that_is_too_small_is_said_before_a_save(small_disk):
  save(small_disk, small(7))
  checkpoints = checkpoint.Checkpoints(small_disk, keep=1)
  with pytest.raises(errors.CheckpointError) as caught:
    checkpoints.save(small(9, elements=5_000_000), MANIFEST)
  for part in (str(small_disk), '20.00 MB', r' MB are free', 'of step 7'):
    assert part in str(caught.value)
  checkpoints.close()
  assert names(small_disk) == {'7'}
  found = checkpoint.Checkpoints(small_disk).restore(7, abstract(small(0)))
  assert_equal(found, small(7))


@pytest.mark.parametrize('spare', [0, -1])
def test_space_is_asked_for_the_whole_state_and_no_more(
  directory, parts, monkeypatch, spare
):
  """Also of shapes alone and before the directory is there."""
  needed = sum(
    x.size * x.dtype.itemsize for x in jax.tree.leaves(parts.abstract_state)
  )
  needed -= 4  # The step, which is the folder's name.
  usage = types.SimpleNamespace(free=needed + spare)
  monkeypatch.setattr(shutil, 'disk_usage', lambda path: usage)
  checkpoints = checkpoint.Checkpoints(directory, keep=1)
  if spare == 0:
    checkpoints.check_space(parts.abstract_state)
  else:
    with pytest.raises(errors.CheckpointError, match='kB are free'):
      checkpoints.check_space(parts.abstract_state)


def with_params(**params):
  """An abstract state with these parameters, {name: (shape, type)}."""
  here = abstract(small(0))
  sharding_ = here.step.sharding
  return here.replace(
    params={
      name: jax.ShapeDtypeStruct(shape, dtype, sharding=sharding_)
      for name, (shape, dtype) in params.items()
    }
  )


@pytest.mark.parametrize(
  'params, said',
  [
    ({'w_D': ((4,), 'bfloat16')},
     'params/w_D is float32 (4,) there and bfloat16 (4,) here, give'),
    ({'w_D': ((2, 2), 'float32')},
     'params/w_D is float32 (4,) there and float32 (2, 2) here, give'),
    ({'w_D': ((4,), 'float32'), 'b_D': ((3,), 'float32')},
     'params/b_D is missing there and float32 (3,) here, give'),
    ({'v_D': ((4,), 'float32')},
     'params/v_D is missing there and float32 (4,) here '
     '(1 others differ too), give'),
    ({}, 'params/w_D is float32 (4,) there and missing here, give'),
  ],
)  # fmt: skip
def test_what_would_change_on_restoring_is_refused(saved, params, said):
  with pytest.raises(errors.CheckpointError) as caught:
    checkpoint.Checkpoints(saved, keep=9).restore(9, with_params(**params))
  assert said in str(caught.value)


def test_a_type_changes_only_when_told_to(saved):
  checkpoints = checkpoint.Checkpoints(saved)
  wanted = with_params(w_D=((4,), 'bfloat16')).params
  with pytest.raises(errors.CheckpointError, match='bfloat16'):
    checkpoints.restore_params(9, wanted)
  found = checkpoints.restore_params(9, wanted, cast=True)
  assert_equal(found, {'w_D': np.arange(4).astype('bfloat16')})
  wider = with_params(w_D=((5,), 'float32')).params
  with pytest.raises(errors.CheckpointError, match=r'\(5,\)'):
    checkpoints.restore_params(9, wider, cast=True)


def test_another_arms_checkpoint_is_refused_in_one_line(directory, state, tiny):
  save(directory, state)
  tied = on_mesh(tiny.config('tied'), 1, 8, 1)
  with pytest.raises(errors.CheckpointError) as caught:
    checkpoint.Checkpoints(directory).restore(7, tied.abstract_state)
  assert 'params/embedder/table_VD is missing there' in str(caught.value)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
  'field, value, least',
  [('interval', 0, 1), ('keep', 0, 1), ('keep_best', -1, 0)],
)
def test_a_number_that_is_too_small_is_refused(field, value, least):
  fields = {'interval': 1, 'keep': 1, 'keep_best': 0} | {field: value}
  with pytest.raises(
    errors.ConfigError, match=f'{field}={value}; give {least}'
  ):
    checkpoint.CheckpointConfig(**fields)


def test_numbers_that_no_step_could_have_made_are_damage(
  directory, state, parts
):
  """Bytes that were changed in place are read without a word."""
  checkpoints = checkpoint.Checkpoints(directory, keep=9)
  checkpoints.save(state.replace(step=jax.numpy.int32(6)), MANIFEST)
  first, *others = jax.tree.leaves(state.params)
  params = jax.tree.unflatten(
    jax.tree.structure(state.params), [first * np.nan, *others]
  )
  checkpoints.save(state.replace(params=params), MANIFEST)
  checkpoints.close()
  found = checkpoint.Checkpoints(directory)
  with pytest.raises(errors.CheckpointError, match='7 holds what'):
    found.restore_params(7, parts.abstract_state.params)
  step, restored, notes = found.restore_latest(parts.abstract_state)
  assert step == 6 and '7 is passed over' in notes[0]
  assert_equal(restored.params, state.params)


@pytest.mark.parametrize(
  'refused',
  ['runs/$', 'runs/run/9/_CHECKPOINT_METADATA', 'runs/run/9/params/'],
)
def test_what_a_bucket_refuses_does_not_bring_back_an_older_step(
  store, refused
):
  directory = epath.Path('gs://runs/run')
  if not store.names('runs'):
    for step in (7, 9):
      save(directory, small(step), keep=2)
  store.refused = f'GET {refused}'
  try:
    with pytest.raises(errors.CheckpointError) as caught:
      checkpoint.Checkpoints(directory, 2).restore_latest(abstract(small(0)))
  finally:
    store.refused = None
  assert 'no access' in str(caught.value) and '\n' not in str(caught.value)
  found = checkpoint.Checkpoints(directory, 2)
  assert found.restore_latest(abstract(small(0)))[0] == 9
