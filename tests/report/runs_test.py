"""A run as its files have it; what is no run is refused with the reason."""

import json
import math

import pytest

from leviathan import errors
from leviathan.report import runs

# By hand, of 4 layers: their products, attention and head, times 3.
FLOPS = 3 * (2 * 4 * (4 * 128**2 + 3 * 128 * 344) + 2 * 4 * 2 * 128 * 128
             + 2 * 100 * 128)  # fmt: skip


def edit(path, change):
  """Changes the rows of metrics.jsonl."""
  file = path / 'metrics.jsonl'
  rows = [json.loads(line) for line in file.read_text().splitlines()]
  file.write_text(''.join(json.dumps(change(row)) + '\n' for row in rows))


def test_a_curve_is_drawn_by_tokens_by_time_and_by_flops(make_run):
  path = make_run('run', curve={2: 4.0, 4: 3.0}, seconds=1.5)
  run = runs.read(str(path))
  assert run.curve('validation/a') == ([200, 400], [4.0, 3.0])
  assert run.curve('validation/a', 'seconds') == ([3.0, 6.0], [4.0, 3.0])
  assert run.curve('validation/a', 'flops') == (
    [200 * FLOPS, 400 * FLOPS],
    [4.0, 3.0],
  )


def test_compiling_and_standing_still_are_no_part_of_the_time(make_run):
  path = make_run('run', steps=6, evaluated=(6,), curve={6: 3.0})
  seconds = {1: 4.0, 2: 1.0, 3: 2.0, 4: 600.0, 5: 1.0, 6: None}
  edit(path, lambda row: row | {'step_seconds': seconds[row['step']]})
  # The median of 4, 1, 2, 600 and 1 is 2: for steps 1, 4 and 6.
  run = runs.read(str(path))
  assert run.curve('validation/a', 'seconds')[0] == [2 + 1 + 2 + 2 + 1 + 2]
  assert run.seconds == 10


def test_without_seconds_they_follow_from_the_rate(make_run):
  path = make_run('run', seconds=2.0)
  edit(path, lambda r: {k: v for k, v in r.items() if k != 'step_seconds'})
  assert runs.read(str(path)).seconds == 8


def test_time_ends_at_the_step_that_is_shown(make_run):
  path = make_run('run', steps=6, evaluated=(4,), curve={6: 3.0})
  run = runs.read(str(path))
  assert run.seconds == 4 and run.tokens == 400
  assert run.curve('validation/a') == ([], [])
  assert run.curve('train')[0] == [100, 200, 300, 400]
  assert run.planned_steps == 6 and run.step == 4


def test_a_step_that_was_skipped_is_left_out(make_run):
  path = make_run('run')
  rates = {1: 1.0, 2: None, 3: 300.0, 4: 200.0}
  edit(
    path,
    lambda row: (
      row
      | {'tokens_per_second': rates[row['step']]}
      | ({'nats_per_token': None} if row['step'] == 2 else {})
    ),
  )
  found = runs.read(str(path))
  assert found.curve('train') == ([100, 300, 400], [8.0, 6.0, 5.0])
  assert found.tokens_per_second == 200  # Of 1, 300 and 200.


def test_the_latest_evaluated_step_counts(make_run):
  path = make_run('run', steps=10, evaluated=(2, 10))
  late = path / 'eval' / '10' / 'perplexity.json'
  document = json.loads(late.read_text())
  document['datasets']['a']['nats_per_token'] = None
  late.write_text(json.dumps(document))
  found = runs.read(str(path))
  assert found.step == 10
  assert math.isnan(found.results['perplexity']['a']['nats_per_token'])


def test_a_step_that_is_named_is_the_one_shown(make_run):
  path = make_run('run', evaluated=(2, 4))
  found = runs.read(f'{path}/checkpoints/2')
  assert found.step == 2 and found.tokens == 200
  with pytest.raises(errors.CheckpointError, match='not evaluated at step 3; '):
    runs.read(f'{path}/checkpoints/3')


def test_metrics_that_end_before_the_evaluation_are_refused(make_run):
  path = make_run('run')
  (path / 'metrics.jsonl').unlink()
  with pytest.raises(errors.CheckpointError, match='no row up to step 4'):
    runs.read(str(path))


def test_a_run_without_evaluation_says_how_far_it_is(make_run):
  path = make_run('run', steps=9, evaluated=(), curve={3: 2.0})
  with pytest.raises(
    errors.CheckpointError, match='at step 3 of 9; run leviathan evaluate'
  ):
    runs.read(str(path))


@pytest.mark.parametrize(
  'file, text',
  [
    ('run.json', '{"arm": "ti'),
    ('run.json', '{"model": "foreign"}'),
    ('run.json', '[1, 2]'),
    ('config.json', '{}'),
    ('config.json', '[]'),
    ('metrics.jsonl', 'loss 3.0\nloss 2.0\n'),
    ('metrics.jsonl', '{"loss": 3.0}\n'),
    ('eval/4/perplexity.json', ''),
    ('eval/4/perplexity.json', '{"datasets": {}}'),
    ('eval/4/frequency.json', '{}'),
    ('eval/4/frequency.samples.jsonl', '{"sequence": 0}\n'),
    ('eval/4/frequency.samples.jsonl', '{"dataset": "a"}\n'),
    (
      'eval/4/frequency.samples.jsonl',
      '{"dataset": "a", "predicted": {"nats": [1], "tokens": [1]}, '
      '"input": {"nats": [1], "tokens": [1]}}\n',
    ),
  ],
)
def test_broken_and_foreign_files_are_refused_in_one_line(make_run, file, text):
  path = make_run('run')
  (path / file).write_text(text)
  with pytest.raises(errors.UserError) as e:
    runs.read(str(path))
  assert str(path) in str(e.value) and '\n' not in str(e.value)


def test_an_evaluation_without_strata_is_refused_with_the_command(make_run):
  path = make_run('run')
  (path / 'eval' / '4' / 'frequency.json').unlink()
  with pytest.raises(errors.CheckpointError, match='nothing of frequency; run'):
    runs.read(str(path))


def without(file, *names):
  """Removes a field, under the names that lead to it, from a file of JSON."""

  def change(path):
    document = json.loads((path / file).read_text())
    at = document
    for name in names[:-1]:
      at = at[name]
    del at[names[-1]]
    (path / file).write_text(json.dumps(document))

  return change


def rows_without(name):
  return lambda path: edit(
    path, lambda row: {k: v for k, v in row.items() if k != name}
  )


def a_directory(path):
  (path / 'metrics.jsonl').unlink()
  (path / 'metrics.jsonl').mkdir()


RESULTS = 'eval/4/perplexity.json', 'datasets', 'a'
STRATA = 'eval/4/frequency.json', 'datasets', 'a'


@pytest.mark.parametrize(
  'change',
  [
    *map(rows_without, ('split', 'nats_per_token', 'tokens', 'step')),
    rows_without('tokens_per_second'),
    without(*RESULTS, 'dataset_fingerprint'),
    without(*RESULTS, 'bits_per_byte'),
    without(*RESULTS, 'unigram_entropy_nats'),
    without(*STRATA, 'bins', 6),
    without(*STRATA, 'bins', 2, 'tokens'),
    without('run.json', 'versions'),
    without('config.json', 'train', 'seed'),
    without('config.json', 'optimizer', 'learning_rate'),
    a_directory,
  ],
)
def test_what_a_report_needs_is_missed_when_a_run_is_read(make_run, change):
  path = make_run('run')
  change(path)
  with pytest.raises(errors.CheckpointError) as e:
    runs.read(str(path))
  assert str(path) in str(e.value) and '\n' not in str(e.value)


def test_bins_of_other_names_are_refused(make_run):
  path = make_run('run')
  file = path / 'eval' / '4' / 'frequency.json'
  file.write_text(file.read_text().replace('below 1e-07', 'below 1e-08'))
  with pytest.raises(errors.CheckpointError, match='other bins.*--tasks=freq'):
    runs.read(str(path))


def test_a_rate_of_nothing_is_no_time(make_run):
  path = make_run('run', seconds=2.0)
  edit(path, lambda row: row | {'tokens_per_second': 0})
  assert runs.read(str(path)).seconds == 8


def test_the_samples_of_a_set_are_those_of_its_subsets(make_run):
  path = make_run('run')
  bins = {'nats': [0.0] * 7, 'tokens': [1] * 7}
  lines = [
    {'dataset': name, 'sequence': i, 'predicted': bins, 'input': bins}
    for name in ('a/x', 'a/y', 'other/x')
    for i in range(2)
  ]
  file = path / 'eval' / '4' / 'frequency.samples.jsonl'
  file.write_text(''.join(json.dumps(line) + '\n' for line in lines))
  found = runs.read(str(path)).samples
  assert [x['dataset'] for x in found['a']] == ['a/x', 'a/x', 'a/y', 'a/y']
  assert 'other' not in found
