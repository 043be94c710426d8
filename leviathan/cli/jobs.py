"""Commands of ours as processes, several at a time on cores of their own."""

from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import contextlib
import fcntl
import os
import queue
import shlex
import subprocess
import sys
import threading

from etils import epath

from leviathan import errors
from leviathan import study as studies


@contextlib.contextmanager
def alone(path: epath.Path) -> Iterator[int]:
  """Holds a directory's lock, a file that the processes of `run` hold too.

  They may outlive the one that started them, if that is killed. The directory
  is made when missing.

  Raises:
    CheckpointError: another process holds it.
    ConfigError: the directory is none of this machine.
  """
  if '://' in str(path):
    raise errors.ConfigError(
      f'--workdir={path} is in a bucket, where no lock can be held; give one '
      'on a disk or a mount, or --dry_run to run the commands yourself'
    )
  path.mkdir(parents=True, exist_ok=True)
  with (path / 'lock').open('w') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
      raise errors.CheckpointError(
        f'{path}: a process of this study still runs there; start again when '
        'it has ended'
      ) from e
    yield file.fileno()


def cores(at_once: int) -> list[set[int]]:
  """Cores for each of so many jobs: all there are, shared out evenly.

  Raises:
    ConfigError: there are fewer cores than jobs.
  """
  # Elsewhere than on Linux processes cannot be held to cores.
  get = getattr(os, 'sched_getaffinity', lambda _: range(os.cpu_count() or 1))
  found = sorted(get(0))
  if at_once > len(found):
    raise errors.ConfigError(
      f'--jobs={at_once} is more than the {len(found)} cores there are; give '
      f'{len(found)} or fewer'
    )
  share = len(found) // at_once
  return [{*found[i * share :][:share]} for i in range(at_once)]


def run(
  jobs: Sequence[studies.Job],
  shares: list[set[int]],
  lock: int,
  logs: epath.Path,
) -> None:
  """Runs jobs, as many at once as there are shares of the cores.

  A loss that is not finite ends a job, but not the others. After any other
  failure, or Ctrl-C, none is begun, and those at work come to their end first.

  Args:
    jobs: what to run.
    shares: of `cores`. JAX takes every core that its process may use.
    lock: the open file of `alone`, which each process holds too.
    logs: where the output of a job goes, if there are several at once.

  Raises:
    CheckpointError: a command failed.
    PreemptedError: one was told to stop, and was saved.
  """
  free: queue.SimpleQueue[set[int]] = queue.SimpleQueue()
  for share in shares:
    free.put(share)
  stopped = threading.Event()

  def hold():
    # Of this thread alone, and of the processes that it starts.
    if hasattr(os, 'sched_setaffinity'):
      os.sched_setaffinity(0, free.get())

  def work(i, job):
    log = logs / f'{job.name}.log' if shares[1:] else None
    for command in job.commands:
      if stopped.is_set():
        return
      print(f'[{i}/{len(jobs)}] {line(command)}', flush=True)
      code = _wait(command, lock, log)
      if code == errors.NotFiniteError.exit_code:
        return
      if code == errors.PreemptedError.exit_code:
        stopped.set()
        raise errors.PreemptedError(
          f'{job.name} was told to stop, and was saved; start the study again'
        )
      if code:
        stopped.set()
        raise errors.CheckpointError(
          f'leviathan {command[0]} ended with exit code {code}, see '
          f"{log or 'above'}; mend that (keys of a run's config by "
          'study.overrides) and start the study again'
        )

  with futures.ThreadPoolExecutor(len(shares), initializer=hold) as pool:
    begun = [pool.submit(work, i, job) for i, job in enumerate(jobs, 1)]
    try:
      for future in futures.as_completed(begun):
        future.result()
    except BaseException:
      stopped.set()  # Ctrl-C tells the processes too: a run saves first.
      pool.shutdown(cancel_futures=True)
      raise


def _wait(command: list[str], lock: int, log: epath.Path | None) -> int:
  """The exit code of a command."""
  words = [sys.executable, '-m', 'leviathan', *command]
  with contextlib.ExitStack() as stack:
    output = None
    if log:
      log.parent.mkdir(parents=True, exist_ok=True)
      output = stack.enter_context(log.open('a'))
    return subprocess.call(
      words, pass_fds=(lock,), stdout=output, stderr=output
    )


def line(command: list[str]) -> str:
  """A command as one types it."""
  return shlex.join(['leviathan', *command])
