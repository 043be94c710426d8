"""Again after 75, a few times after a kill, else never; told to, it stops."""

import os
import pathlib
import signal
import subprocess
import sys

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


def babysit(*words, wait=0.0, path=str(ROOT)):
  return subprocess.Popen(
    [sys.executable, 'launch/babysit.py', f'--wait={wait}', *words],
    cwd=ROOT,
    env=os.environ | {'PYTHONPATH': path},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


@pytest.mark.parametrize(
  'codes, starts, code',
  [
    ((75, 75, 0), 3, 0),
    ((75, 5), 2, 5),
    ((0,), 1, 0),
    ((4,), 1, 4),
    ((130,), 1, 130),
    # Killed, aborted by JAX, stalled: not for ever.
    ((137, 134, 0), 3, 0),
    ((6, 137, 6, 0), 3, 6),
    ((6, 6, 75, 6, 6, 0), 6, 0),
    ((75, 75, 75, 75, 0), 5, 0),
  ],
)
def test_starts_again_after_75_and_a_few_times_after_a_kill(
  tmp_path, codes, starts, code
):
  file = tmp_path / 'starts'
  process = babysit(
    '--', sys.executable, '-c', PROGRAM, str(file), *map(str, codes)
  )
  stdout, stderr = process.communicate(timeout=120)
  assert process.returncode == code, stderr
  assert len(file.read_text()) == starts
  said = stdout.splitlines()
  assert said[:starts] == [
    f'start {i} ended with exit code {c}'
    for i, c in enumerate(codes[:starts], start=1)
  ]
  gave_up = ['3 in a row left no new checkpoint: see why']
  assert said[starts:] == (gave_up if starts < len(codes) else [])


@pytest.mark.parametrize(
  'workdir',
  [
    ['--workdir={}'],
    ['--workdir', '{}'],
    ['--workdir={}/checkpoints'],
    ['--workdir={}/checkpoints/3'],
  ],
)
def test_a_new_checkpoint_after_each_kill_is_worth_another_start(
  tmp_path, workdir
):
  file = tmp_path / 'starts'
  program = PROGRAM.replace(
    'sys.exit(',
    f'step = pathlib.Path({str(tmp_path)!r}, "checkpoints", str(count + 1))\n'
    'step.mkdir(parents=True)\nsys.exit(',
  )
  codes = ['137'] * 5 + ['0']
  process = babysit(
    '--', sys.executable, '-c', program, str(file), *codes,
    *(word.format(tmp_path) for word in workdir),
  )  # fmt: skip
  _, stderr = process.communicate(timeout=120)
  assert process.returncode == 0, stderr
  assert file.read_text() == 'xxxxxx'


@pytest.mark.parametrize(
  'error',
  [
    'OSError("no disk")',
    'ImportError("no gcsfs")',
    # Of another package's own class, as gcsfs has.
    'type("HttpError", (Exception,), {"__module__": "gcsfs.retry"})("401")',
  ],
)
def test_where_progress_cannot_be_seen_the_exit_code_is_not_lost(
  tmp_path, error
):
  (tmp_path / 'sitecustomize.py').write_text(
    'import sys\n'
    'if "launch/babysit.py" in sys.orig_argv:\n'
    '  from leviathan import step_folder\n'
    '  def steps(directory):\n'
    f'    raise {error}\n'
    '  step_folder.steps = steps\n'
  )
  file = tmp_path / 'starts'
  process = babysit(
    '--', sys.executable, '-c', PROGRAM, str(file), '137', '75', '4', '0',
    '--workdir=gs://bucket/run', path=f'{tmp_path}:{ROOT}',
  )  # fmt: skip
  stdout, stderr = process.communicate(timeout=120)
  assert process.returncode == 4, stderr
  assert file.read_text() == 'xxx'
  # Before the first start, and before each that follows.
  assert stdout.count('no progress is seen in gs://bucket/run') == 3


def test_told_to_stop_it_passes_that_on_and_does_not_start_again(
  tmp_path, until
):
  file = tmp_path / 'starts'
  process = babysit('--', sys.executable, '-c', WAITS, str(file))
  until(lambda: file.exists() or process.poll() is not None)
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


@pytest.mark.parametrize('signum', [signal.SIGTERM, signal.SIGKILL])
def test_an_end_by_a_signal_that_nobody_passed_on(tmp_path, signum):
  """By SIGTERM, before anything was begun; by SIGKILL, at any time."""
  file = tmp_path / 'starts'
  program = PROGRAM.replace(
    'sys.exit(',
    f'import os\nif not count: os.kill(os.getpid(), {int(signum)})\n'
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
