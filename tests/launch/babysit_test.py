"""Again after 75, never after anything else, and told to stop it stops."""

import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# Ends with each of the codes in turn; counts its starts in a file.
PROGRAM = """
import pathlib, sys
file = pathlib.Path(sys.argv[1])
count = len(file.read_text()) if file.exists() else 0
file.write_text('x' * (count + 1))
sys.exit(int(sys.argv[2:][count]))
"""
# Waits for SIGTERM, as a run does, and is saved then.
WAITS = """
import pathlib, signal, sys, time
def leave(*_):
  sys.exit(75)
signal.signal(signal.SIGTERM, leave)
file = pathlib.Path(sys.argv[1])
file.write_text(file.read_text() + 'x' if file.exists() else 'x')
time.sleep(600)
"""


def babysit(*words, wait=0.0):
  return subprocess.Popen(
    [sys.executable, 'launch/babysit.py', f'--wait={wait}', *words],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


@pytest.mark.parametrize(
  'codes, starts, code',
  [((75, 75, 0), 3, 0), ((75, 5), 2, 5), ((0,), 1, 0), ((4,), 1, 4)],
)
def test_starts_again_after_75_alone(tmp_path, codes, starts, code):
  file = tmp_path / 'starts'
  process = babysit(
    '--', sys.executable, '-c', PROGRAM, str(file), *map(str, codes)
  )
  stdout, stderr = process.communicate(timeout=120)
  assert process.returncode == code, stderr
  assert len(file.read_text()) == starts
  assert stdout.splitlines() == [
    f'start {i} ended with exit code {c}' for i, c in enumerate(codes, start=1)
  ]


def test_told_to_stop_it_passes_that_on_and_does_not_start_again(tmp_path):
  file = tmp_path / 'starts'
  process = babysit('--', sys.executable, '-c', WAITS, str(file))
  while not file.exists():
    assert process.poll() is None
    time.sleep(0.01)
  process.send_signal(signal.SIGTERM)
  process.communicate(timeout=120)
  assert process.returncode == 75
  assert file.read_text() == 'x'


def test_told_to_stop_between_two_starts_it_leaves_with_the_last_code(tmp_path):
  file = tmp_path / 'starts'
  process = babysit(
    '--', sys.executable, '-c', PROGRAM, str(file), '75', '0', wait=600
  )
  assert process.stdout.readline() == 'start 1 ended with exit code 75\n'
  process.send_signal(signal.SIGTERM)
  process.communicate(timeout=120)
  assert process.returncode == 75
  assert file.read_text() == 'x'


def test_an_end_by_sigterm_before_anything_was_begun_is_a_preemption(tmp_path):
  file = tmp_path / 'starts'
  program = PROGRAM.replace(
    'sys.exit(', 'import os, signal\nif not count: os.kill(os.getpid(), 15)\n'
    'sys.exit(',
  )  # fmt: skip
  process = babysit('--', sys.executable, '-c', program, str(file), '0', '0')
  process.communicate(timeout=120)
  assert process.returncode == 0
  assert file.read_text() == 'xx'


def test_dry_run_prints_the_command():
  process = babysit('--dry_run', '--', 'leviathan', 'train', '--workdir=a b')
  stdout, _ = process.communicate(timeout=120)
  assert stdout == "leviathan train '--workdir=a b'\n"


@pytest.mark.parametrize(
  'words, match',
  [([], 'no command is given'), (['--', 'no/such/program'], 'no/such/program')],
)
def test_without_a_program_one_line_says_so(words, match):
  process = babysit(*words)
  _, stderr = process.communicate(timeout=120)
  assert process.returncode == 2
  assert match in stderr and stderr.count('\n') == 1
