"""The benchmarks run and print what they promise; their times are no test."""

import json
import pathlib
import subprocess
import sys

import pytest

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
  (row,) = rows(
    'step.py', '--scale=smoke', '--batch_size=8', '--seq_len=4', '--rounds=1'
  )
  for arm in ('tied', 'lev', 'untied'):
    assert row[arm]['seconds'] > 0 and len(row[arm]['all_seconds']) == 1


def test_lev_tpu():
  pytest.importorskip('libtpu', reason='only Linux on x86-64 has libtpu')
  found = rows('lev_tpu.py', '--topologies=v5e:2x2', '--tokens=512')
  forms = {row['form']: row for row in found}
  assert list(forms) == ['auto', 'chunked', 'reference', 'table']
  plain = forms['reference']['temporary_gb']
  assert forms['auto']['temporary_gb'] < plain / 5


def test_peers():
  pytest.importorskip('torch', reason="it is in the extra 'hf'")
  pytest.importorskip('transformers', reason="it is in the extra 'hf'")
  ours, peer = rows(
    'peers.py', '--scale=smoke', '--batch_size=8', '--seq_len=4', '--rounds=1'
  )
  assert ours['parameters'] == peer['parameters'] > 0
  assert ours['peer'].startswith('jax') and ours['over_ours'] == 1
  assert peer['peer'].startswith('torch') and peer['over_ours'] > 0
