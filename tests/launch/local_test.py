"""Several processes of one machine, each told which one it is."""

import os
import pathlib
import subprocess
import sys

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
