"""Who is waited for, from where each process says that it is."""

import json
import time

from etils import epath
import pytest

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
  place(2, 90, 'end', age=600.0)
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
