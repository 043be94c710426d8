"""A trace is written, of the steps asked for."""

import pathlib

import jax
import jax.numpy as jnp
import pytest

from leviathan import errors
from leviathan import experiment
from leviathan import profile


@pytest.fixture
def calls(monkeypatch):
  """What the profiler is told, and what is waited for."""
  found = []
  monkeypatch.setattr(
    jax.profiler, 'start_trace', lambda path: found.append('start')
  )
  monkeypatch.setattr(jax.profiler, 'stop_trace', lambda: found.append('stop'))
  monkeypatch.setattr(
    jax, 'block_until_ready', lambda outputs: found.append(f'wait {outputs}')
  )
  return found


def loop(profiled, first, last, calls):
  for step in range(first, last + 1):
    profiled.before(step)
    calls.append(step)
    profiled.after(step, f'of {step}')


def test_a_trace_of_two_steps_is_written(tmp_path):
  profiled = profile.Profile((2, 3), tmp_path / 'profile')
  step_ = jax.jit(lambda x: x @ x)
  x = jnp.ones((8, 8))
  for step in range(1, 6):
    profiled.before(step)
    x = step_(x)
    profiled.after(step, x)
  profiled.close()
  (trace,) = (tmp_path / 'profile').rglob('*.xplane.pb')
  data = jax.profiler.ProfileData.from_file(str(trace))
  seen = [
    dict(event.stats)['step_num']
    for plane in data.planes
    for line in plane.lines
    for event in line.events
    if event.name == 'train'
  ]
  assert seen == [2, 3]


def test_a_trace_of_a_run_in_a_bucket_ends_there(store, monkeypatch):
  def start(path):
    (pathlib.Path(path) / 'plugins').mkdir()
    (pathlib.Path(path) / 'plugins' / 'trace').write_text('x')

  monkeypatch.setattr(jax.profiler, 'start_trace', start)
  monkeypatch.setattr(jax.profiler, 'stop_trace', lambda: None)
  profiled = profile.Profile((2, 3), 'gs://runs/run/profile')
  loop(profiled, 1, 2, [])
  assert store.names('runs') == []
  profiled.close()
  assert store.names('runs') == ['run/profile/plugins/trace']


@pytest.mark.parametrize(
  'first, order',
  [
    (1, [1, 2, 'start', 3, 4, 'wait of 4', 'stop', 5, 6]),
    (4, ['start', 4, 'wait of 4', 'stop', 5, 6]),
    (5, [5, 6]),
  ],
)
def test_it_starts_before_the_first_and_ends_after_the_last(
  calls, first, order
):
  """Also where a run resumes in between, or behind."""
  profiled = profile.Profile((3, 4), 'unused')
  loop(profiled, first, 6, calls)
  profiled.close()
  assert calls == order


def test_a_run_that_ends_early_leaves_no_open_trace(calls):
  profiled = profile.Profile((2, 9), 'unused')
  loop(profiled, 1, 3, calls)
  profiled.close()
  profiled.close()
  assert calls == [1, 'start', 2, 3, 'stop']


def test_without_steps_it_does_nothing(calls):
  profiled = profile.Profile((), 'unused')
  loop(profiled, 0, 2, calls)
  profiled.close()
  assert calls == [0, 1, 2]


@pytest.mark.parametrize('steps', [(3,), (4, 3), (0, 3), (1, 2, 3)])
def test_a_config_with_other_steps_is_refused(steps):
  with pytest.raises(errors.ConfigError, match='config.log.profile=.*first'):
    experiment.LogConfig(interval=1, sinks=(), profile=steps)
