"""Several processes of one machine, each told which one it is."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from leviathan import metrics

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import os, sys
print(os.environ.get('XLA_FLAGS'), *sys.argv[1:])
sys.exit(int('--process_id=1' in sys.argv) * 3)
"""


def local(*words):
  done = subprocess.run(
    [sys.executable, 'launch/local.py', *words],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=120,
    env=os.environ | {'XLA_FLAGS': '--xla_other=1'},
  )
  return done.returncode, done.stdout, done.stderr


def test_each_process_knows_its_number_and_where_to_meet():
  code, stdout, stderr = local(
    '--processes=3', '--devices=2', '--', sys.executable, '-c', PROGRAM, 'word'
  )
  assert code == 3, stderr
  lines = sorted(stdout.splitlines())
  assert len(lines) == 3
  addresses = set()
  for i, line in enumerate(lines):
    number, *flags, word, coordinator, count, process = line.split()
    assert number == f'[{i}]' and word == 'word'
    assert flags == [
      '--xla_other=1',
      '--xla_force_host_platform_device_count=2',
    ]
    assert (count, process) == ('--num_processes=3', f'--process_id={i}')
    addresses.add(coordinator)
  assert len(addresses) == 1
  assert addresses.pop().startswith('--coordinator=localhost:')


def test_dry_run_prints_the_commands_with_their_environment():
  code, stdout, _ = local(
    '--dry_run', '--devices=4', '--', 'leviathan', 'train'
  )
  assert code == 0
  for i, line in enumerate(stdout.splitlines()):
    assert line.startswith(
      "JAX_PLATFORMS=cpu XLA_FLAGS='--xla_other=1 "
      "--xla_force_host_platform_device_count=4' leviathan train --coordinator="
    )
    assert line.endswith(f'--num_processes=2 --process_id={i}')
  assert stdout.count('\n') == 2


def test_a_program_that_is_not_there_is_one_line():
  code, _, stderr = local('--', 'no/such/program')
  assert code == 2
  assert "'no/such/program' cannot be started" in stderr
  assert stderr.count('\n') == 1


def processes_of(workdir):
  """{number: pid} of the processes that train there."""
  found = {}
  for file in pathlib.Path('/proc').glob('[0-9]*/cmdline'):
    try:
      words = file.read_text().split('\0')
    except OSError:
      continue  # It has ended.
    if f'--workdir={workdir}' in words:
      for word in words:
        if word.startswith('--process_id='):
          found[int(word[-1])] = int(file.parent.name)
  return found


@pytest.mark.skipif(not pathlib.Path('/proc').is_dir(), reason='needs /proc')
def test_two_processes_train_on_after_a_kill_and_after_a_preemption(
  tiny, tmp_path, until
):
  """Under babysit.py; each step is there once.

  All are killed: JAX notices after 100 seconds that one of them is.
  """
  workdir = tmp_path / 'run'
  steps = 100
  flags = tiny.flags(
    'tied',
    model__layers=1,
    train__steps=steps,
    checkpoint__interval=25,
    evaluate__interval=100,
  )
  output = tmp_path / 'said.txt'
  with output.open('w') as said:
    babysitter = subprocess.Popen(
      [sys.executable, 'launch/babysit.py', '--wait=0', '--',
       sys.executable, 'launch/local.py', '--processes=2', '--devices=1', '--',
       sys.executable, '-m', 'leviathan', 'train', *flags,
       f'--workdir={workdir}'],
      cwd=ROOT, stdout=said, stderr=subprocess.STDOUT,
    )  # fmt: skip

  def wait(is_so):
    until(lambda: is_so() or babysitter.poll() is not None, seconds=600)
    assert babysitter.poll() is None, output.read_text()

  try:
    wait(lambda: (workdir / 'checkpoints' / '25' / 'files.json').exists())
    for pid in processes_of(workdir).values():
      os.kill(pid, signal.SIGKILL)
    wait(lambda: 'start 1 ended' in output.read_text())
    # The second start prints its first step.
    wait(lambda: re.search(r'resumed from(.|\n)*step \d+/', output.read_text()))
    os.kill(processes_of(workdir)[0], signal.SIGTERM)
    assert babysitter.wait(timeout=600) == 0, output.read_text()
  finally:
    babysitter.kill()
    for pid in processes_of(workdir).values():
      os.kill(pid, signal.SIGKILL)
  said = output.read_text()
  assert 'start 1 ended with exit code 137' in said
  assert 'start 2 ended with exit code 75' in said
  assert 'start 3 ended with exit code 0' in said
  assert said.count('resumed from step') == 2
  train = [
    r for r in metrics.read(workdir / 'metrics.jsonl') if r['split'] == 'train'
  ]
  assert [row['step'] for row in train] == list(range(1, steps + 1))
