"""Jobs run on cores of their own, end in order, and are not left alone."""

import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import time

from etils import epath
import pytest

from leviathan import errors
from leviathan import study as studies
from leviathan.cli import jobs

ROOT = pathlib.Path(__file__).parents[2]
CORES = sorted(os.sched_getaffinity(0))
PYTHON = sys.executable  # Before it is changed.


@pytest.fixture(autouse=True)
def stub(tmp_path, monkeypatch):
  """In place of `leviathan`, a job's words are a command of their own."""
  file = tmp_path / 'stub'
  file.write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
  file.chmod(0o755)
  monkeypatch.setattr(sys, 'executable', str(file))


def shell(name, *scripts):
  return studies.Job(name, [['sh', '-c', script] for script in scripts])


def run(path, found, at_once=1):
  path = epath.Path(path)
  with jobs.alone(path) as lock:
    jobs.run(found, jobs.cores(at_once), lock, path / 'logs')


@pytest.mark.skipif(len(CORES) < 2, reason='one core cannot be shared out')
def test_jobs_at_a_time_have_cores_of_their_own(tmp_path):
  python = 'import os, time; print(*os.sched_getaffinity(0)); time.sleep(.5)'
  words = [PYTHON, '-c', python]
  run(tmp_path, [studies.Job(n, [words]) for n in 'ab'], at_once=2)
  a, b = (
    {*map(int, (tmp_path / 'logs' / f'{name}.log').read_text().split())}
    for name in 'ab'
  )
  assert len(a) == len(b) == len(CORES) // 2
  assert not a & b
  assert sorted(os.sched_getaffinity(0)) == CORES  # This process keeps all.


def test_one_at_a_time_has_all_cores():
  assert jobs.cores(1) == [{*CORES}]
  with pytest.raises(errors.ConfigError, match='--jobs=9999 is more than'):
    jobs.cores(9999)


def test_commands_of_a_job_follow_one_another(tmp_path):
  run(
    tmp_path, [shell('a', f'echo 1 >>{tmp_path}/x', f'echo 2 >>{tmp_path}/x')]
  )
  assert (tmp_path / 'x').read_text() == '1\n2\n'


@pytest.mark.parametrize('at_once', range(1, min(len(CORES), 2) + 1))
def test_a_loss_that_is_not_finite_ends_its_job_alone(tmp_path, at_once):
  a = shell('a', 'exit 5', f'touch {tmp_path}/a')
  run(tmp_path, [a, shell('b', f'touch {tmp_path}/b')], at_once)
  assert (tmp_path / 'b').exists() and not (tmp_path / 'a').exists()


def test_after_a_failure_none_is_begun(tmp_path):
  with pytest.raises(errors.CheckpointError, match='exit code 3, see above'):
    run(tmp_path, [shell('a', 'exit 3'), shell('b', f'touch {tmp_path}/b')])
  assert not (tmp_path / 'b').exists()


def test_a_run_that_was_told_to_stop_stops_the_study_as_itself(tmp_path):
  with pytest.raises(errors.PreemptedError, match='start the study again'):
    run(tmp_path, [shell('a', 'exit 75'), shell('b', f'touch {tmp_path}/b')])
  assert not (tmp_path / 'b').exists()


def test_a_directory_that_cannot_be_locked_is_refused():
  with pytest.raises(errors.ConfigError, match='--workdir=gs://a/b .*dry_run'):
    run('gs://a/b', [])


@pytest.mark.skipif(len(CORES) < 2, reason='one core cannot be shared out')
def test_those_at_work_end_before_a_failure_is_told(tmp_path):
  found = [
    shell('a', f'while [ ! -e {tmp_path}/up ]; do sleep .05; done; exit 3'),
    shell('b', f'touch {tmp_path}/up; sleep 1; touch {tmp_path}/end', 'exit 9'),
  ]
  with pytest.raises(errors.CheckpointError, match='exit code 3, .*/a.log'):
    run(tmp_path, found, at_once=2)
  assert (tmp_path / 'end').exists()


def test_the_lock_is_held_by_what_outlives_its_study(tmp_path):
  run(tmp_path, [shell('a', f'(sleep 60 & echo $! >{tmp_path}/pid)')])
  pid = int((tmp_path / 'pid').read_text())
  try:
    with pytest.raises(errors.CheckpointError, match='still runs there'):
      run(tmp_path, [])
  finally:
    os.kill(pid, signal.SIGKILL)
  for _ in range(100):
    if not pathlib.Path(f'/proc/{pid}').exists():
      break
    time.sleep(0.05)
  run(tmp_path, [])


def test_a_study_says_that_another_is_at_work(tmp_path):
  study = f'--study={ROOT}/configs/studies/order.py'
  words = ['-m', 'leviathan', 'study', study, f'--workdir={tmp_path}']
  with (tmp_path / 'lock').open('w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    done = subprocess.run(
      [PYTHON, *words],
      cwd=ROOT,
      capture_output=True,
      text=True,
    )
  assert done.returncode == errors.CheckpointError.exit_code
  assert 'start again when it has ended' in done.stderr


def test_ctrl_c_lets_a_run_save_and_begins_no_other(tmp_path):
  save = (  # It was at its last step, and is done.
    f'trap "sleep .3; touch {tmp_path}/saved; exit 0" INT; '
    f'touch {tmp_path}/up; while :; do sleep .05; done'
  )
  program = tmp_path / 'program.py'
  program.write_text(
    # A shell that runs the tests in the background has them ignore it.
    'import signal\n'
    'signal.signal(signal.SIGINT, signal.default_int_handler)\n'
    'import sys\n'
    'from etils import epath\n'
    'from leviathan import study\n'
    'from leviathan.cli import jobs\n'
    f'sys.executable = {sys.executable!r}\n'
    f'path = epath.Path({str(tmp_path)!r})\n'
    f'save = ["sh", "-c", {save!r}]\n'
    f'other = ["touch", {str(tmp_path / "other")!r}]\n'
    'found = [study.Job("a", [save, other]), study.Job("b", [other])]\n'
    'with jobs.alone(path) as lock:\n'
    '  jobs.run(found, jobs.cores(1), lock, path)\n'
  )
  words = [PYTHON, str(program)]
  environment = os.environ | {'PYTHONPATH': str(ROOT)}
  with subprocess.Popen(
    words, start_new_session=True, env=environment, stderr=subprocess.PIPE
  ) as process:
    while process.poll() is None and not (tmp_path / 'up').exists():
      time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    try:
      _, stderr = process.communicate(timeout=60)
    finally:
      if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
  assert b'KeyboardInterrupt' in stderr
  assert (tmp_path / 'saved').exists()
  assert not (tmp_path / 'other').exists()
