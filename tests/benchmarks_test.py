"""The benchmarks run and print what they promise; their times are no test."""

import json
import pathlib
import subprocess
import sys

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
  assert row['plain.forward']['faster'] == 1


def test_step():
  (row,) = rows(
    'step.py', '--scale=smoke', '--batch_size=8', '--seq_len=4', '--rounds=1'
  )
  assert row['tied']['times_tied'] == 1
  assert row['lev']['seconds'] > 0 and row['untied']['temporary_gb'] >= 0


def test_lev_tpu():
  found = rows('lev_tpu.py', '--topologies=v5e:2x2', '--tokens=512')
  assert [row['form'] for row in found] == ['auto', 'chunked', 'plain', 'table']
  kernel, _, plain, _ = found
  assert kernel['temporary_gb'] < plain['temporary_gb'] / 5
