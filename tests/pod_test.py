"""Several processes make one run: they meet, agree, stop and name who is late.

Real processes on this machine, four or fewer virtual devices each.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from leviathan import errors
from leviathan import metrics
from leviathan import pod
from leviathan import rundir

ROOT = pathlib.Path(__file__).parent.parent
STEPS = 40
# Of a run on eight devices, however many processes they are of.
CHANGES = {
  'train__steps': STEPS,
  'evaluate__interval': 10,
  'checkpoint__interval': 15,
}
# Sleeps in the loader of the process that is told to.
SLEEPY = """
import os, sys, time
from leviathan.cli import main
from leviathan.data import mixture
read = mixture.Mixture.read
def slow(self, positions, seed):
  if positions[0] >= 8 * 5:
    time.sleep(1000)
  return read(self, positions, seed)
mixture.Mixture.read = slow
sys.exit(main.execute(sys.argv[1:]))
"""

# Fails in one process alone, as a background save may.
FAILING = """
import sys
from leviathan import checkpoint, errors
from leviathan.cli import main
asked = 0
def check(self):
  global asked
  asked += 1
  if asked == 6:
    raise errors.CheckpointError('the disk is on fire')
checkpoint.Checkpoints.check = check
sys.exit(main.execute(sys.argv[1:]))
"""


class Processes:
  """The processes of one run; what they print goes to files."""

  def __init__(self, directory: pathlib.Path, count: int):
    with socket.socket() as s:
      s.bind(('localhost', 0))
      self.port = s.getsockname()[1]
    self.directory, self.count = directory, count
    self.started: list[subprocess.Popen] = []

  def start(self, flags, devices=None, script=None):
    """Starts the next one, on its part of eight devices."""
    i = len(self.started)
    self.directory.mkdir(parents=True, exist_ok=True)
    devices = devices or 8 // self.count
    program = ['-m', 'leviathan'] if script is None else ['-c', script]
    many = [
      f'--coordinator=localhost:{self.port}',
      f'--num_processes={self.count}',
      f'--process_id={i}',
    ]
    device_flag = f'--xla_force_host_platform_device_count={devices}'
    with self.file(i).open('w') as output:
      self.started.append(
        subprocess.Popen(
          [sys.executable, *program, 'train', *flags]
          + (many if self.count > 1 else []),
          stdout=output,
          stderr=subprocess.STDOUT,
          cwd=ROOT,
          env=os.environ | {'XLA_FLAGS': device_flag},
        )
      )

  def file(self, i: int) -> pathlib.Path:
    return self.directory / f'{i}.txt'

  def said(self, i: int) -> str:
    return self.file(i).read_text()

  def wait_for_rows(self, workdir: pathlib.Path):
    """Until a few steps are done."""
    file = workdir / 'metrics.jsonl'
    while not file.exists() or file.read_text().count('\n') < 5:
      assert all(p.poll() is None for p in self.started), self.said(0)
      time.sleep(0.02)

  def wait(self, seconds=240) -> list[int]:
    """Their exit codes."""
    try:
      return [p.wait(timeout=seconds) for p in self.started]
    finally:
      for p in self.started:
        p.kill()


def run_all(directory, count, flags):
  """Runs the same command in `count` processes; returns Processes."""
  processes = Processes(directory, count)
  for _ in range(count):
    processes.start(flags)
  return processes


def rows_of(workdir):
  """The rows of training, and those of evaluations."""
  rows = metrics.read(rundir.open_(str(workdir)).metrics_file)
  return (
    [r for r in rows if r['split'] == 'train'],
    [r for r in rows if r['split'] != 'train'],
  )


@pytest.fixture(scope='module')
def stopped(tiny, tmp_path_factory):
  """(workdir, last step) of two processes, of which one got SIGTERM."""
  directory = tmp_path_factory.mktemp('stopped')
  workdir = directory / 'run'
  flags = [*tiny.flags(**CHANGES), f'--workdir={workdir}']
  processes = run_all(directory / 'said', 2, flags)
  processes.wait_for_rows(workdir)
  processes.started[1].send_signal(signal.SIGTERM)
  assert processes.wait() == [75, 75], processes.said(0) + processes.said(1)
  for i in range(2):
    assert 'preempted: ' in processes.said(i)
  train, _ = rows_of(workdir)
  last = train[-1]['step']
  assert [row['step'] for row in train] == list(range(1, last + 1))
  assert rundir.open_(str(workdir)).checkpoints().latest() == last < STEPS
  return workdir, last


@pytest.fixture(scope='module')
def unbroken(tiny, tmp_path_factory):
  """The rows of one process that was never stopped."""
  directory = tmp_path_factory.mktemp('unbroken')
  flags = [*tiny.flags(**CHANGES), f'--workdir={directory}/run']
  processes = run_all(directory, 1, flags)
  assert processes.wait() == [0], processes.said(0)
  return rows_of(directory / 'run')


@pytest.mark.parametrize('count', [1, 2, 4])
def test_a_preempted_run_goes_on_with_any_number_of_processes(
  stopped, unbroken, tiny, tmp_path, count
):
  """The same rows of data in each step, and the same losses."""
  source, last = stopped
  workdir = tmp_path / 'run'
  subprocess.run(['cp', '-r', source, workdir], check=True)
  flags = [*tiny.flags(**CHANGES), f'--workdir={workdir}']
  processes = run_all(tmp_path / 'said', count, flags)
  assert processes.wait() == [0] * count, processes.said(0)
  assert f'resumed from step {last}' in processes.said(0)
  for i in range(1, count):
    assert 'resumed' not in processes.said(i), 'the first speaks for all'
  (train, evaluations), (wanted, wanted_evaluations) = (
    rows_of(workdir),
    unbroken,
  )
  assert [r['step'] for r in train] == list(range(1, STEPS + 1))
  assert [r['batch_hash'] for r in train] == [r['batch_hash'] for r in wanted]
  assert len({r['batch_hash'] for r in train}) == STEPS
  assert [r['scored_tokens'] for r in evaluations] == [
    r['scored_tokens'] for r in wanted_evaluations
  ]
  for a, b in zip(
    train + evaluations, wanted + wanted_evaluations, strict=True
  ):
    assert a['nats_per_token'] == pytest.approx(b['nats_per_token'], abs=1e-4)


def test_a_process_that_sleeps_is_named_and_all_end(tiny, tmp_path):
  flags = [
    *tiny.flags(**CHANGES, train__stall_seconds=60.0),
    f'--workdir={tmp_path}/run',
  ]
  processes = Processes(tmp_path, 2)
  processes.start(flags)
  processes.start(flags, script=SLEEPY)
  assert processes.wait() == [6, 6]
  said = processes.said(0)
  assert 'waiting for process 1 (data) at step ' in said
  assert 'error: ' in said
  assert 'most recent call first' in said, 'stacks are dumped'
  assert 'in slow' in processes.said(1), 'where it sleeps'


def test_when_one_process_fails_all_end_with_its_error(tiny, tmp_path):
  """Its background save fails in the middle of the run, not the other's."""
  flags = [
    *tiny.flags(**CHANGES, train__stall_seconds=200.0),
    f'--workdir={tmp_path}/run',
  ]
  processes = Processes(tmp_path, 2)
  processes.start(flags)
  processes.start(flags, script=FAILING)
  assert processes.wait() == [4, 4], processes.said(0) + processes.said(1)
  assert 'error: process 1: the disk is on fire' in processes.said(0)
  assert 'error: the disk is on fire' in processes.said(1)


def test_ctrl_c_to_one_process_stops_and_saves_all(tiny, tmp_path):
  flags = [*tiny.flags(**CHANGES), f'--workdir={tmp_path}/run']
  processes = run_all(tmp_path, 2, flags)
  processes.wait_for_rows(tmp_path / 'run')
  processes.started[0].send_signal(signal.SIGINT)
  assert processes.wait() == [130, 75], processes.said(0)
  train, _ = rows_of(tmp_path / 'run')
  run = rundir.open_(str(tmp_path / 'run'))
  assert run.checkpoints().latest() == train[-1]['step']


def test_one_of_two_processes_does_not_wait_for_ever(tiny, tmp_path):
  processes = Processes(tmp_path, 2)
  processes.start(
    [*tiny.flags(train__stall_seconds=8.0), f'--workdir={tmp_path}/run']
  )
  assert processes.wait(120) == [6]
  assert 'error: 1 of 2 processes came: waiting for process 1' in (
    processes.said(0)
  )


def test_hosts_that_disagree_are_refused_with_the_field(tiny, tmp_path):
  processes = Processes(tmp_path, 2)
  for rate in (1e-4, 2e-4):
    flags = tiny.flags(optimizer__learning_rate=rate)
    processes.start([*flags, f'--workdir={tmp_path}/run'])
  assert processes.wait() == [2, 2]
  for i in range(2):
    assert (
      'config.optimizer.learning_rate is 0.0001 in process 0 and 0.0002 '
      'in process 1'
    ) in processes.said(i)
  assert not (tmp_path / 'run' / 'config.json').exists()


def test_a_workdir_that_is_not_shared_is_refused(tiny, tmp_path):
  processes = Processes(tmp_path, 2)
  for i in range(2):
    processes.start([*tiny.flags(), f'--workdir={tmp_path}/run{i}'])
  assert processes.wait() == [2, 2]
  assert 'is not shared between hosts' in processes.said(0)
  assert 'not seen by process 1' in processes.said(1)
  assert not (tmp_path / 'run0' / 'config.json').exists()


def test_what_one_process_cannot_do_all_refuse(tiny, tmp_path):
  """The second finds its data gone, as on a host without the mount."""
  processes = Processes(tmp_path, 2)
  for name in ('train', 'nowhere'):
    flags = tiny.flags(data__train=str(tiny.directory / name))
    processes.start([*flags, f'--workdir={tmp_path}/run'])
  assert processes.wait() == [3, 3]
  assert 'error: process 1: ' in processes.said(0)
  assert 'nowhere' in processes.said(0)


def test_the_platform_that_was_asked_for_or_none(tiny, tmp_path, leviathan):
  code, _, stderr = leviathan(
    'train', *tiny.flags(train__platform='tpu'), f'--workdir={tmp_path}/run'
  )
  assert code == 2
  assert "config.train.platform='tpu', but JAX found 'cpu'" in stderr
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  'fields, match',
  [
    ({'coordinator': 'a:1'}, '--num_processes and --process_id'),
    ({'num_processes': 2, 'process_id': 0}, '--coordinator=HOST:PORT'),
    ({'coordinator': 'auto', 'process_id': 0}, '--coordinator=HOST:PORT'),
    ({'coordinator': 'a:1', 'num_processes': 2, 'process_id': 2}, 'below'),
  ],
)
def test_flags_that_do_not_go_together_are_refused(fields, match):
  with pytest.raises(errors.ConfigError, match=match):
    pod.PodConfig(**fields)


def test_a_machine_of_a_tpu_slice_does_not_start_alone(monkeypatch):
  monkeypatch.setenv('TPU_WORKER_HOSTNAMES', 'a,b,c,d')
  with pytest.raises(errors.ConfigError, match='one of 4 of a TPU slice'):
    pod.start(pod.PodConfig())


def test_a_task_of_a_step_of_slurm_does_not_start_alone(monkeypatch):
  monkeypatch.setenv('SLURM_STEP_NUM_TASKS', '1')
  pod.start(pod.PodConfig())
  monkeypatch.setenv('SLURM_STEP_NUM_TASKS', '4')
  with pytest.raises(errors.ConfigError, match='one of 4 of a step of Slurm'):
    pod.start(pod.PodConfig())
