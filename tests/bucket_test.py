"""A run in a bucket is what it is on a disk: killed, shared, read, refused."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from leviathan import metrics
from leviathan import rundir

ROOT = pathlib.Path(__file__).parent.parent
SPEED = {'tokens_per_second', 'step_seconds', 'data_seconds',
         'dispatch_seconds', 'mfu'}  # fmt: skip


@pytest.fixture(scope='module')
def flags(tiny):
  """Of a run of six steps, without its directory."""
  return tiny.flags(
    train__steps=6, checkpoint__interval=2, evaluate__interval=3
  )


def rows(workdir):
  """Of a run, without what says how fast it was."""
  found = metrics.read(rundir.open_(str(workdir)).metrics_file)
  return [{k: v for k, v in r.items() if k not in SPEED} for r in found]


def until(seen, process, seconds=240):
  """Waits for it; the process must not end before."""
  deadline = time.monotonic() + seconds
  while not seen():
    assert process.poll() is None, process.communicate()
    assert time.monotonic() < deadline
    time.sleep(0.01)


@pytest.fixture(scope='module')
def killed(store, flags):
  """A run that was killed while it saved step 4: (its rows then, names)."""
  part = 'POST runs/run/checkpoints/4/opt_state/'
  store.hold(part)
  process = subprocess.Popen(
    [sys.executable, '-m', 'leviathan', 'train', *flags]
    + ['--workdir=gs://runs/run'],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
  )
  until(lambda: any(r.startswith(part) for r in store.requests), process)
  process.send_signal(signal.SIGKILL)
  process.communicate()
  assert process.returncode == -signal.SIGKILL
  store.hold(None)
  return rows('gs://runs/run'), store.names('runs', 'run/checkpoints/4')


@pytest.fixture(scope='module')
def resumed(killed, store, flags, leviathan):
  """What the same command says after that."""
  code, out, err = leviathan('train', *flags, '--workdir=gs://runs/run')
  assert code == 0, err
  return out


def test_a_killed_save_is_not_restored_and_not_kept(killed, resumed, store):
  before, names = killed
  assert any(name.startswith('run/checkpoints/4/params/') for name in names)
  assert 'resumed from step 2' in resumed
  assert [r['step'] for r in before if r['split'] == 'train'][-1] >= 4
  left = {n.split('/')[2] for n in store.names('runs', 'run/checkpoints/')}
  assert left == {'4', '6'}


def test_after_kill_9_each_step_is_there_once_and_as_without_it(
  resumed, flags, leviathan, tmp_path
):
  code, _, err = leviathan('train', *flags, f'--workdir={tmp_path}')
  assert code == 0, err
  wanted = rows(tmp_path)
  assert len(wanted) == 6 + 2
  assert rows('gs://runs/run') == wanted


def test_commands_that_read_a_run_read_it_from_a_bucket(
  resumed, store, leviathan
):
  code, out, err = leviathan('evaluate', '--workdir=gs://runs/run')
  assert code == 0, err
  assert 'written: gs://runs/run/eval/6' in out
  code, _, err = leviathan(
    'report', '--workdirs=gs://runs/run', '--output=gs://runs/report'
  )
  assert code == 0, err
  assert b'perplexity' in store.objects['runs']['report/report.md'].data


def test_what_cannot_be_written_back_is_one_line(resumed, store, leviathan):
  store.read_only.add('runs')
  try:
    for command in (
      ('evaluate', '--workdir=gs://runs/run'),
      ('report', '--workdirs=gs://runs/run', '--output=gs://runs/other'),
    ):
      code, _, err = leviathan(*command)
      assert code in (2, 4)
      (line,) = [x for x in err.splitlines() if 'error' in x.lower()]
      assert line.startswith('error: ') and 'gs://runs/' in line
      assert 'Traceback' not in err
  finally:
    store.read_only.remove('runs')


def test_processes_share_a_bucket(store, flags):
  done = subprocess.run(
    [sys.executable, 'launch/local.py', '--processes=2', '--devices=4', '--']
    + [sys.executable, '-m', 'leviathan', 'train', *flags]
    + ['--workdir=gs://runs/pod'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    env=os.environ | {'XLA_FLAGS': ''},
    timeout=600,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  steps = [r['step'] for r in rows('gs://runs/pod') if r['split'] == 'train']
  assert steps == [1, 2, 3, 4, 5, 6]
  assert rundir.open_('gs://runs/pod').checkpoints().steps() == [4, 6]
  assert not store.names('runs', 'pod/.shared')
  places = store.names('runs', 'pod/processes/')
  assert places == ['pod/processes/0.json', 'pod/processes/1.json']
  said = json.loads(store.objects['runs'][places[1]].data)
  assert said['phase']


@pytest.mark.parametrize('bucket', ['nowhere', 'forbidden', 'readable'])
def test_a_bucket_that_cannot_be_used_is_one_line(
  store, flags, leviathan, bucket
):
  code, _, err = leviathan('train', *flags, f'--workdir=gs://{bucket}/run')
  assert code == 4
  (line,) = [x for x in err.splitlines() if ' runs as ' not in x]
  assert line.startswith('error: ') and bucket in line
