"""The benchmarks run and print what they promise; their times are no test."""

import json
import pathlib
import subprocess
import sys

import pytest

from leviathan import experiment
from leviathan import rundir
from leviathan import train

ROOT = pathlib.Path(__file__).resolve().parents[1]


def rows(script, *flags):
  """The JSON rows that a benchmark prints."""
  found = subprocess.run(
    [sys.executable, ROOT / 'benchmarks' / script, *flags],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert found.returncode == 0, found.stderr
  return [json.loads(line) for line in found.stdout.splitlines()]


def test_lev_layer():
  (row,) = rows('lev_layer.py', '--tokens=8', '--widths=4', '--rounds=1')
  assert row['tokens'] == 8 and row['width'] == 4
  for form in ('plain', 'reference', 'distinct', 'different', 'table'):
    for what in ('forward', 'value_and_grad'):
      assert row[f'{form}.{what}']['microseconds_per_token'] > 0
  assert 1 <= row['distinct_ids'] <= 8


def test_step():
  steps, loss = rows(
    'step.py',
    '--scale=smoke',
    '--batch_size=8',
    '--seq_len=4',
    '--rounds=1',
    '--arms=tied,lev:2',
    '--loss_chunks=4',
  )
  for arm, chunks in (('tied', 1), ('lev:2', 2)):
    assert steps[arm]['seconds'] > 0 and len(steps[arm]['all_seconds']) == 1
    assert steps[arm]['loss_chunks'] == chunks
  assert loss['tokens'] == 8 * 4
  for form, chunks in (('whole', 0), ('chunked', 4)):
    assert loss[form]['seconds'] > 0 and loss[form]['chunks'] == chunks


def test_generate():
  (row,) = rows(
    'generate.py',
    '--seq_len=64',
    '--rows=2',
    '--prompt_tokens=4',
    '--new_tokens=20',
    '--layers=1',
  )
  assert row['same_tokens'] and row['distinct_tokens'] > 2
  for way in ('with_past', 'without'):
    assert row[way]['tokens_per_second'] > 0
  assert row['times_faster'] > 0


def test_checkpoint():
  (row,) = rows('checkpoint.py', '--scale=smoke')
  assert row['bits_equal']
  assert (row['saved_on'], row['restored_on']) == (8, 4)
  # Random numbers are hardly compressed.
  assert 0.8 < row['files_gb'] / row['state_gb'] < 1.1
  assert 0 < row['blocked_seconds'] <= row['committed_seconds']
  assert row['restore_seconds'] > 0


def test_lev_tpu():
  pytest.importorskip('libtpu', reason='only Linux on x86-64 has libtpu')
  found = rows('lev_tpu.py', '--topologies=v5e:2x2', '--tokens=512')
  forms = {row['form']: row for row in found}
  assert list(forms) == ['auto', 'chunked', 'reference', 'table']
  plain = forms['reference']['temporary_gb']
  assert forms['auto']['temporary_gb'] < plain / 5


def test_slices_compiles_each_once(tmp_path):
  file, page = tmp_path / 'rows.jsonl', tmp_path / 'page.md'
  page.write_text('Text.\n<!-- tables -->\nOld tables.\n')
  flags = ['--scales=smoke', '--topologies=cpu:2', f'--rows={file}']
  flags += ['--arms=tied', f'--page={page}']

  def tables():
    return subprocess.run(
      [sys.executable, ROOT / 'benchmarks' / 'slices.py', *flags],
      cwd=ROOT,
      capture_output=True,
      text=True,
      check=True,
    )

  first = tables()
  assert 'cpu:2: compiling as it is' in first.stderr
  with file.open('a') as opened:
    opened.write('{"key": "cut sh')
  again = tables()
  assert 'compiling' not in again.stderr and again.stdout == first.stdout
  assert '### `tied.py:smoke`' in again.stdout and '| cpu:2 |' in again.stdout
  assert page.read_text() == f'Text.\n<!-- tables -->\n\n{first.stdout[:-1]}'
  # What else has rows stays on the page.
  with file.open('a') as opened:
    row = file.read_text().splitlines()[1]
    opened.write('\n' + row.replace('tied.py', 'lev.py'))
  tables()
  for name in ('tied', 'lev'):
    assert f'### `{name}.py:smoke`' in page.read_text()


def test_peers():
  pytest.importorskip('torch', reason="it is in the extra 'hf'")
  pytest.importorskip('transformers', reason="it is in the extra 'hf'")
  ours, peer = rows(
    'peers.py', '--scale=smoke', '--batch_size=8', '--seq_len=4', '--rounds=1'
  )
  assert ours['parameters'] == peer['parameters'] > 0
  assert ours['peer'].startswith('jax') and ours['over_ours'] == 1
  assert peer['peer'].startswith('torch') and peer['over_ours'] > 0


@pytest.fixture(scope='module')
def tasks_on_a_run(tiny, shared, tmp_path_factory):
  """The flags of what evaluates tasks: a run, and the official files."""
  pytest.importorskip('lm_eval', reason="it is in the extra 'eval'")
  run = rundir.open_(str(tmp_path_factory.mktemp('run')))
  config = tiny.config('tied', train__steps=4, model__layers=1)
  train.train(experiment.make(config), run, lambda line: None)
  return [f'--workdir={run.path}', f'--task_data={shared / "data"}']


def test_parity(tasks_on_a_run):
  flags = [*tasks_on_a_run, '--tasks=arc_easy,lambada', '--limit=3']
  easy, lambada = rows('parity.py', *flags)
  assert (easy['task'], easy['items'], easy['requests']) == ('arc_easy', 3, 12)
  assert (lambada['task'], lambada['requests']) == ('lambada', 3)
  for row in (easy, lambada):
    assert row['largest_difference_nats'] <= 1e-4
    assert not row['disagreements'] and not row['figures_that_differ']
  assert set(easy['figures']) >= {'acc', 'acc_norm', 'acc_stderr'}
  ours, theirs = lambada['figures']['perplexity']
  assert ours == pytest.approx(theirs)


def test_parity_fails_where_one_request_differs(tasks_on_a_run):
  # No two numbers are so much alike.
  main = 'parity.TOLERANCE = -1; app.run(parity.main)'
  main = f'from absl import app; import parity; {main}'
  flags = [*tasks_on_a_run, '--tasks=lambada', '--limit=2']
  found = subprocess.run(
    [sys.executable, '-c', main, *flags],
    cwd=ROOT / 'benchmarks',
    capture_output=True,
    text=True,
  )
  assert found.returncode == 1, found.stderr
  assert json.loads(found.stdout)['first_disagreements'] == ['0', '1']


def test_evaluate(tasks_on_a_run):
  (row,) = rows(
    'evaluate.py',
    *tasks_on_a_run,
    '--tasks=lambada,winogrande',
    '--limit=2',
    '--rounds=1',
  )
  assert row['items'] == 4 and row['harness_over_native'] > 0
  for way in ('native', 'harness'):
    assert row[way]['items_per_second'] > 0
    assert list(row[way]['seconds']) == ['lambada', 'winogrande']
