"""A report says what the runs' files say, and compares only like with like."""

import json
import math

from etils import epath
import pytest

from leviathan import errors
from leviathan.eval import frequency
from leviathan.report import page
from leviathan.report import runs

SHAPES = {
  'embedder/table_VD': [128, 2],
  'blocks/mlp/gate_DF': [3, 2, 5],
  'final_norm/scale_D': [2],
}


def write_run(path, arm, nats, trained_on='d1', evaluated_on='e1', steps=(2,)):
  """A run of four steps whose validation loss is known."""
  path.mkdir(parents=True)
  manifest = {
    'arm': arm,
    'vocab_size': 100,
    'dataset_fingerprint': trained_on,
    'parameters': SHAPES,
  }
  (path / 'run.json').write_text(json.dumps(manifest))
  config = {'data': {'batch_size': 2, 'seq_len': 10}}
  (path / 'config.json').write_text(json.dumps(config))
  rows = [
    # Not step times a batch of today's: the batch has been another.
    {'step': s, 'split': 'train', 'tokens': 30 * s, 'nats_per_token': 5.0 - s,
     'tokens_per_second': rate}
    for s, rate in enumerate((1.0, 100.0, 300.0, 200.0), start=1)
  ]  # fmt: skip
  rows.append(rows[-1] | {'split': 'validation/a', 'nats_per_token': nats})
  (path / 'metrics.jsonl').write_text(
    ''.join(json.dumps(row) + '\n' for row in rows)
  )
  bins = [
    {'frequency': name, 'types': 0, 'tokens': 0} for name in frequency.NAMES
  ]
  bins[2] |= {
    'types': 7, 'tokens': 50, 'nats_per_token': nats,
    'perplexity': math.exp(nats),
  }  # fmt: skip
  figures = {
    'perplexity': {
      'nats_per_token': nats,
      'perplexity': math.exp(nats),
      'bits_per_byte': 1.25,
      'scored_tokens': 50,
    },
    'frequency': {'bins': bins},
  }
  common = {'dataset_fingerprint': evaluated_on, 'unigram_entropy_nats': 6.5}
  for step in steps:
    directory = path / 'eval' / str(step)
    directory.mkdir(parents=True)
    for task, row in figures.items():
      document = {'task': task, 'datasets': {'a': common | row}}
      (directory / f'{task}.json').write_text(json.dumps(document))
  return str(path)


def test_the_page_says_what_the_files_say(tmp_path):
  workdirs = [
    write_run(tmp_path / 'one', 'tied', 2.0),
    write_run(tmp_path / 'two', 'lev', 1.5),
  ]
  path = page.write(workdirs, epath.Path(tmp_path / 'report'))
  lines = path.read_text().splitlines()
  cells = [[c.strip() for c in line.split('|')[1:-1]] for line in lines]
  # The median of 1, 100, 300 and 200: the step that compiles does not count.
  # The tokens are those of the step that was evaluated, not of the last one.
  assert ['tied', '2.0000', '7.39', '1.2500', '60', '150'] in cells
  assert ['lev', '1.5000', '4.48', '1.2500', '60', '150'] in cells
  assert ['1e-07 to 1e-06', '7', '50', '7.39', '4.48'] in cells
  assert ['never seen', '0', '0', 'n = 0', 'n = 0'] in cells
  # The table has 100 rows of 2, and 28 more that only pad it.
  assert ['tied', '200', '32', '0', '232'] in cells
  assert any('6.5000' in line for line in lines)
  png = (tmp_path / 'report' / 'curves.png').read_bytes()
  assert png.startswith(b'\x89PNG') and len(png) > 10_000


def write_samples(path, nats, tokens=5):
  """Of ten sequences of two bins each; adds the figures by input token."""
  lines = []
  for i in range(10):
    part = {'nats': [0.0] * 7, 'tokens': [0] * 7}
    part['tokens'][2:4] = tokens, 1
    part['nats'][2:4] = tokens * (nats + i), 9.0
    line = {'dataset': 'a', 'sequence': i, 'predicted': part, 'input': part}
    lines += [line, line | {'dataset': 'another'}]
  directory = path / 'eval' / '2'
  (directory / 'frequency.samples.jsonl').write_text(
    ''.join(json.dumps(line) + '\n' for line in lines)
  )
  file = directory / 'frequency.json'
  document = json.loads(file.read_text())
  figures = document['datasets']['a']
  figures['input_bins'] = [b | {'perplexity': 3.21} for b in figures['bins']]
  file.write_text(json.dumps(document))


def write_pair(tmp_path, tokens=5):
  """Two runs with samples: in each sequence the second is half a nat better."""
  workdirs = []
  for name, arm, nats, n in (
    ('one', 'tied', 2.0, 5),
    ('two', 'lev', 1.5, tokens),
  ):
    workdirs.append(write_run(tmp_path / name, arm, nats))
    write_samples(tmp_path / name, nats, n)
  return workdirs


def test_two_runs_are_compared_sequence_by_sequence(tmp_path):
  workdirs = write_pair(tmp_path)
  text = page.write(workdirs, epath.Path(tmp_path / 'report')).read_text()
  cells = [[c.strip() for c in x.split('|')[1:-1]] for x in text.splitlines()]
  for side in ('predicted', 'input'):
    assert f'Perplexity by how frequent the {side} token was' in text
    assert (
      'Difference to tied, nats per token, paired by sequence, by how frequent '
      f'the {side} token was in training'
    ) in text
  # Sequences differ by nats, the runs by the same in each: no doubt is left.
  better = ['1e-07 to 1e-06', '50', '-0.5000 [-0.5000, -0.5000], 60.7 %']
  alike = ['1e-06 to 1e-05', '10', '+0.0000 [+0.0000, +0.0000], 100.0 %']
  assert cells.count(better) == cells.count(alike) == 2
  assert cells.count(['never seen', '0', 'n = 0']) == 2
  assert ['1e-07 to 1e-06', '7', '50', '3.21', '3.21'] in cells  # By input.
  assert cells.count(['training frequency', 'tokens scored', 'lev']) == 2
  assert 'nan' not in text and 'evaluate again' not in text


def test_runs_without_samples_say_how_to_get_them(tmp_path):
  first, second = write_pair(tmp_path)
  # As a run was evaluated before what each sequence cost was written.
  earlier = write_run(tmp_path / 'earlier', 'albert', 3.0)
  text = page.write(
    [first, earlier, second], epath.Path(tmp_path / 'report')
  ).read_text()
  assert f'`leviathan evaluate --workdir={earlier} --step=2' in text
  assert f'--workdir={first}' not in text
  assert 'Difference to' not in text
  assert text.count('Perplexity by how frequent') == 1
  alone = page.write([earlier], epath.Path(tmp_path / 'alone')).read_text()
  assert 'leviathan evaluate' not in alone


def test_samples_of_other_tokens_are_not_compared(tmp_path):
  workdirs = write_pair(tmp_path, tokens=4)
  with pytest.raises(errors.CheckpointError, match='two, a: sequence 0 has'):
    page.write(workdirs, epath.Path(tmp_path / 'report'))
  assert not (tmp_path / 'report').exists()


def test_metrics_that_end_before_the_evaluation_are_refused(tmp_path):
  write_run(tmp_path / 'run', 'lev', 1.5)
  (tmp_path / 'run' / 'metrics.jsonl').unlink()
  with pytest.raises(errors.CheckpointError, match='no row up to step 2'):
    runs.read(str(tmp_path / 'run'))


def test_two_runs_of_one_arm_are_told_apart(tmp_path):
  workdirs = [
    write_run(tmp_path / 'seed0', 'lev', 2.0),
    write_run(tmp_path / 'seed1', 'lev', 1.5),
  ]
  text = page.write(workdirs, epath.Path(tmp_path / 'report')).read_text()
  assert '| lev (seed0) ' in text and '| lev (seed1) ' in text


def test_the_latest_evaluated_step_counts(tmp_path):
  workdir = write_run(tmp_path / 'one', 'tied', 2.0, steps=(2, 10))
  late = tmp_path / 'one' / 'eval' / '10' / 'perplexity.json'
  document = json.loads(late.read_text())
  document['datasets']['a']['nats_per_token'] = 1.0
  late.write_text(json.dumps(document))
  found = runs.read(workdir)
  assert found.results['perplexity']['a']['nats_per_token'] == 1.0


def test_a_run_without_evaluation_is_refused_with_the_command(tmp_path):
  workdir = write_run(tmp_path / 'one', 'tied', 2.0, steps=())
  with pytest.raises(errors.CheckpointError, match='leviathan evaluate'):
    page.write([workdir], epath.Path(tmp_path / 'report'))
  assert not (tmp_path / 'report').exists()


@pytest.mark.parametrize('field', ['trained_on', 'evaluated_on'])
def test_runs_of_other_data_are_not_compared(tmp_path, field):
  workdirs = [
    write_run(tmp_path / 'one', 'tied', 2.0),
    write_run(tmp_path / 'two', 'lev', 1.5, **{field: 'another'}),
  ]
  with pytest.raises(errors.CheckpointError, match='two'):
    page.write(workdirs, epath.Path(tmp_path / 'report'))
  assert not (tmp_path / 'report').exists()


def test_a_step_that_was_skipped_is_left_out(tmp_path):
  workdir = write_run(tmp_path / 'one', 'tied', 2.0)
  file = tmp_path / 'one' / 'metrics.jsonl'
  rows = [json.loads(line) for line in file.read_text().splitlines()]
  rows[1] |= {'nats_per_token': None, 'tokens_per_second': None, 'skipped': 1}
  file.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  found = runs.read(workdir)
  assert found.curve('train') == ([30, 90, 120], [4.0, 2.0, 1.0])
  assert found.tokens_per_second == 200  # Of 1, 300 and 200.
  page.write([workdir], epath.Path(tmp_path / 'report'))


def test_an_evaluation_that_is_not_finite_is_shown_as_such(tmp_path):
  workdir = write_run(tmp_path / 'one', 'tied', 2.0)
  file = tmp_path / 'one' / 'metrics.jsonl'
  rows = [json.loads(line) for line in file.read_text().splitlines()]
  rows[-1]['nats_per_token'] = None
  file.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  results = tmp_path / 'one' / 'eval' / '2' / 'perplexity.json'
  document = json.loads(results.read_text())
  document['datasets']['a'] |= {'nats_per_token': None, 'perplexity': None}
  results.write_text(json.dumps(document))
  text = page.write([workdir], epath.Path(tmp_path / 'report')).read_text()
  assert any(
    ['tied', 'nan', 'nan'] == [c.strip() for c in line.split('|')[1:4]]
    for line in text.splitlines()
  )
