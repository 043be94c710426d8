"""The file of metrics: each step once, also after a kill."""

import json
import math

from etils import epath
import pytest

from leviathan import errors
from leviathan import metrics


def row(step, split='train'):
  return {'step': step, 'split': split, 'tokens': 10 * step}


@pytest.fixture
def path(tmp_path):
  return epath.Path(tmp_path / 'metrics.jsonl')


def test_rows_come_back_as_written(path):
  writer = metrics.Writer(path, 0, evaluated=True)
  writer.write(row(1))
  assert metrics.read(path) == [row(1)], 'a row must be on disk at once'
  writer.write(row(2) | {'nats_per_token': 0.1 + 0.2})
  writer.close()
  assert metrics.read(path)[1]['nats_per_token'] == 0.1 + 0.2


def test_resuming_drops_what_will_run_again(path):
  writer = metrics.Writer(path, 0, evaluated=True)
  for step in (1, 2, 3):
    writer.write(row(step))
  writer.write(row(2, 'validation/a'))
  writer.close()
  metrics.Writer(path, 2, evaluated=True).close()
  assert metrics.read(path) == [row(1), row(2), row(2, 'validation/a')]


def test_an_evaluation_that_was_broken_off_is_dropped_with_its_rows(path):
  rows = [row(1), row(1, 'validation/a'), row(2), row(2, 'validation/a')]
  path.write_text(''.join(json.dumps(r) + '\n' for r in rows))
  metrics.Writer(path, 2, evaluated=False).close()
  assert metrics.read(path) == rows[:3]


def test_a_line_cut_short_by_a_kill_is_dropped(path):
  text = json.dumps(row(1)) + '\n' + json.dumps(row(2))[:-5]
  path.write_text(text)
  assert metrics.read(path) == [row(1)]
  writer = metrics.Writer(path, 5, evaluated=True)
  writer.write(row(2))
  writer.close()
  assert metrics.read(path) == [row(1), row(2)]


def test_without_a_checkpoint_the_rows_start_anew_and_the_old_are_kept(path):
  path.write_text(json.dumps(row(1)) + '\n')
  metrics.Writer(path, 0, evaluated=True).close()
  assert metrics.read(path) == []
  path.write_text(json.dumps(row(2)) + '\n')
  metrics.Writer(path, 0, evaluated=True).close()
  before = [path.with_name(f'metrics.before-{i}.jsonl') for i in (1, 2)]
  assert [metrics.read(file) for file in before] == [[row(1)], [row(2)]]


def test_damage_before_the_last_line_is_refused_with_its_number(path):
  path.write_text(f'{json.dumps(row(1))}\noops\n{json.dumps(row(3))}\n')
  before = path.read_text()
  with pytest.raises(errors.CheckpointError, match=r'metrics\.jsonl:2 '):
    metrics.Writer(path, 3, evaluated=True)
  assert path.read_text() == before


def test_perplexity_is_the_exponential_of_the_mean():
  assert metrics.from_mean(math.log(7.0))['perplexity'] == pytest.approx(7.0)
  assert math.isfinite(metrics.from_mean(1e6)['perplexity'])


@pytest.mark.parametrize('lost', [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null_in_the_file_and_nan_when_read(path, lost):
  writer = metrics.Writer(path, 0, evaluated=True)
  writer.write(row(1) | {'grad_norm': lost, 'learning_rate': 0.5})
  writer.close()

  def refuse(name):
    raise AssertionError(f'{name} is not JSON')

  strict = json.loads(path.read_text(), parse_constant=refuse)
  assert strict == row(1) | {'grad_norm': None, 'learning_rate': 0.5}
  metrics.Writer(path, 1, evaluated=True).close()  # As on resuming.
  (found,) = metrics.read(path)
  assert math.isnan(found.pop('grad_norm'))
  assert found == row(1) | {'learning_rate': 0.5}


def test_nested_figures_come_back_with_nan_for_what_was_not_finite():
  figures = {
    'a': {'bins': [{'nats': math.inf, 'n': 0}, {'nats': 1.5}]},
    'b': 'x',
  }
  text = json.dumps(metrics.to_json(figures), allow_nan=False)
  found = metrics.from_json(json.loads(text))
  assert math.isnan(found['a']['bins'][0].pop('nats'))
  assert found == {'a': {'bins': [{'n': 0}, {'nats': 1.5}]}, 'b': 'x'}


def test_the_metrics_of_a_mean_that_is_not_a_number_are_not_either():
  assert math.isnan(metrics.from_mean(math.nan)['perplexity'])
