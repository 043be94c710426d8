"""Who is waited for, from where each process says that it is."""

import json
import time

from etils import epath
import pytest

from leviathan import errors
from leviathan import watchdog


@pytest.fixture
def dog(tmp_path):
  """(watchdog of process 0 of 3, what it said, a way to place the others)."""
  said = []
  found = watchdog.Watchdog(
    epath.Path(tmp_path), 1000.0, said.append, process=0, processes=3
  )

  def place(process, step, phase, age=0.0):
    here = {'step': step, 'phase': phase, 'time': time.time() - age, 'pid': 1}
    (tmp_path / f'{process}.json').write_text(json.dumps(here))

  yield found, said, place
  found.close()


def test_the_one_at_the_earliest_step_and_phase_is_named(dog):
  found, _, place = dog
  found.at(7, 'step')
  place(1, 7, 'data')
  place(2, 7, 'step')
  assert found.explain() == 'waiting for process 1 (data) at step 7'
  place(1, 7, 'step')
  place(2, 6, 'save')
  assert found.explain() == 'waiting for process 2 (save) at step 6'


def test_several_that_are_late_are_all_named(dog):
  found, _, place = dog
  found.at(7, 'step')
  place(1, 7, 'data')
  place(2, 7, 'data')
  assert found.explain() == 'waiting for process 1, 2 (data) at step 7'
  found.at(7, 'data')
  assert found.explain() == 'all processes are waiting (data) at step 7'


def test_who_never_came_is_named_also_when_an_older_run_s_file_lies_there(dog):
  found, _, place = dog
  place(1, 0, 'start')
  place(2, 90, 'save', age=600.0)
  assert found.explain().startswith(
    '2 of 3 processes came: waiting for process 2 (start)'
  )


def test_a_process_says_where_it_is(dog, tmp_path):
  found, _, _ = dog
  found.at(3, 'evaluation')
  found._write()  # Which the thread does every tick.
  said = json.loads((tmp_path / '0.json').read_text())
  assert (said['step'], said['phase']) == (3, 'evaluation')


def test_it_speaks_once_for_a_place_and_then_leaves(tmp_path, capfd):
  said, codes = [], []
  found = watchdog.Watchdog(
    epath.Path(tmp_path),
    0.2,
    said.append,
    process=0,
    processes=1,
    leave=codes.append,
  )
  for step in (1, 2):
    found.at(step, 'data')
    codes.clear()
    until = time.monotonic() + 60
    while not codes and time.monotonic() < until:
      time.sleep(0.01)
  found.close()
  assert said == [f'waiting for process 0 (data) at step {n}' for n in (1, 2)]
  assert set(codes) == {6}
  stderr = capfd.readouterr().err
  assert 'most recent call first' in stderr
  assert 'error: waiting for process 0 (data) at step 1; ended after' in stderr


def test_in_a_bucket_that_fails_it_goes_on_and_asks_less_often(store):
  directory, said = epath.Path('gs://runs/processes'), []
  dogs = [
    watchdog.Watchdog(
      directory, 1000.0, said.append, process=process, processes=2
    )
    for process in (0, 1)
  ]
  assert dogs[0]._tick == watchdog.BUCKET_TICK_SECONDS
  until = time.monotonic() + 60
  while len(store.names('runs', 'processes/')) < 2:  # By the threads.
    assert time.monotonic() < until
    time.sleep(0.01)
  dogs[1].at(3, 'data')
  dogs[1]._write()
  dogs[0].at(3, 'step')
  assert dogs[0].explain() == 'waiting for process 1 (data) at step 3'
  store.forbidden.add('runs')
  try:
    dogs[0]._write()
    dogs[0]._follow(dogs[0]._failure())
  finally:
    store.forbidden.remove('runs')
    for dog in dogs:
      dog.close()
  assert len(said) == 1 and 'could not be written (Forbidden' in said[0]


def test_a_bucket_that_never_answers_does_not_hold_it_up(
  store, monkeypatch, capfd
):
  monkeypatch.setattr(watchdog, 'ANSWER_SECONDS', 0.2)
  codes = []
  store.hold('runs/hanging/')
  try:
    dog = watchdog.Watchdog(
      epath.Path('gs://runs/hanging'),
      0.5,
      lambda line: None,
      process=1,
      processes=2,
      leave=codes.append,
    )
    dog.at(3, 'step')
    until = time.monotonic() + 60
    while not codes and time.monotonic() < until:
      time.sleep(0.01)
    dog.fail(errors.NotFiniteError('the loss is nan'))
    dog.close()
  finally:
    store.hold(None)
  assert codes[0] == 6 and 5 in codes
  assert '; ended after' in capfd.readouterr().err


@pytest.mark.parametrize('bucket', [False, True])
def test_all_end_with_the_error_of_the_one_that_failed(
  tmp_path, request, capfd, bucket
):
  codes = {0: [], 1: []}
  directory = epath.Path(tmp_path)
  if bucket:
    request.getfixturevalue('store')
    directory = epath.Path('gs://runs/failing')
  dogs = [
    watchdog.Watchdog(
      directory,
      1.0,
      lambda line: None,
      process=process,
      processes=2,
      leave=codes[process].append,
    )
    for process in codes
  ]
  for dog in dogs:
    dog.limit = 1000.0  # Alone the tick is short.
  dogs[1].fail(errors.CheckpointError('the disk is full'))
  until = time.monotonic() + 60
  while not codes[0] and time.monotonic() < until:
    time.sleep(0.01)
  for dog in dogs:
    dog.close()
  assert codes[1] == [4] and set(codes[0]) == {4}
  stderr = capfd.readouterr().err
  assert 'error: the disk is full' in stderr
  assert 'error: process 1: the disk is full' in stderr


def test_a_failure_of_an_earlier_start_ends_nothing(tmp_path):
  codes = []
  stale = {'process': 1, 'code': 4, 'error': 'old', 'time': time.time() - 1}
  (tmp_path / 'failed.json').write_text(json.dumps(stale))
  dog = watchdog.Watchdog(
    epath.Path(tmp_path),
    1000.0,
    lambda line: None,
    process=0,
    processes=2,
    leave=codes.append,
  )
  dog._follow(dog._failure())
  dog.close()
  assert codes == []


def test_one_process_by_itself_fails_in_the_usual_way(tmp_path):
  codes = []
  dog = watchdog.Watchdog(
    epath.Path(tmp_path / 'processes'),
    1000.0,
    lambda line: None,
    process=0,
    processes=1,
    leave=codes.append,
  )
  dog.fail(errors.CheckpointError('the disk is full'))
  dog.close()
  assert codes == [] and not (tmp_path / 'processes').exists()


def test_a_lost_connection_is_laid_to_the_process_that_is_gone(dog, capfd):
  found, _, place = dog
  codes = []
  found._leave = codes.append
  found.limit = 1.0  # So that ticks are short.
  place(1, 7, 'step')
  place(2, 7, 'step')
  found.fail(RuntimeError('connection closed by peer'))
  assert codes == [6]
  assert 'error: process 1, 2 is gone; look at' in capfd.readouterr().err


def test_a_save_that_fails_because_others_are_gone_is_not_its_fault(dog, capfd):
  found, _, place = dog
  codes = []
  found._leave = codes.append
  found.limit = 1.0  # So that ticks are short.
  found.at(7, 'step')
  place(1, 7, 'save')
  place(2, 7, 'save')
  found.fail(errors.CheckpointError('saving step 6 failed'))
  assert codes == [6]
  assert 'error: process 1, 2 is gone; look at' in capfd.readouterr().err


def test_a_save_that_fails_while_others_are_there_is_told(
  tmp_path, capfd, monkeypatch
):
  monkeypatch.setattr(watchdog, 'TICK_SECONDS', 0.2)
  codes = {0: [], 1: []}
  dogs = [
    watchdog.Watchdog(
      epath.Path(tmp_path),
      1000.0,
      lambda line: None,
      process=process,
      processes=2,
      leave=codes[process].append,
    )
    for process in codes
  ]
  for dog in dogs:
    dog.at(7, 'save')
  dogs[1].fail(errors.CheckpointError('the disk is full'))
  for dog in dogs:
    dog.close()
  assert codes[1] == [4]
  assert 'error: the disk is full' in capfd.readouterr().err


def test_where_nothing_can_be_written_nobody_is_said_to_be_gone(
  store, capfd, monkeypatch
):
  monkeypatch.setattr(watchdog, 'BUCKET_TICK_SECONDS', 0.1)
  codes = []
  store.read_only.add('runs')
  try:
    dog = watchdog.Watchdog(
      epath.Path('gs://runs/refused'),
      1000.0,
      lambda line: None,
      process=1,
      processes=2,
      leave=codes.append,
    )
    dog.at(3, 'save')
    dog.fail(errors.CheckpointError('saving step 2 failed'))
    dog.close()
  finally:
    store.read_only.remove('runs')
  assert codes == [4]
  assert 'error: saving step 2 failed' in capfd.readouterr().err
