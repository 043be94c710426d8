"""A thread that names the process which all others wait for, and ends the run.

A collective has no time limit: when one host hangs or fails, all of them stand
still and say nothing. So each process writes where it is into a small file
beside the run, which the others read when they have waited for too long; one
that fails says so in another, and all end with its error.

The disk or the bucket of these files may hang as well, and a request to a
bucket has no time limit either. So what watches the time never waits for them
without one.
"""

from collections.abc import Callable
import faulthandler
import json
import os
import sys
import threading
import time
import traceback
from typing import Any
from typing import TypeVar

from etils import epath

from leviathan import errors
from leviathan import storage

T = TypeVar('T')

ANSWER_SECONDS = 20.0  # That a disk or a bucket is waited for at the end.
CLOCK_SECONDS = 5.0  # By which the clocks of hosts may differ.
TICK_SECONDS = 2.0
BUCKET_TICK_SECONDS = 10.0  # Each one is a request that is paid for.
# A process that is at an earlier one is what another waits for.
PHASES = ('start', 'data', 'step', 'evaluation', 'save')
FAILED = 'failed.json'


class Watchdog:
  """Knows where this process is, and where the others were last.

  Attributes:
    limit: seconds that one phase of one step may take; may be changed.
  """

  def __init__(
    self,
    directory: epath.Path,
    limit: float,
    say: Callable[[str], None],
    *,
    process: int,
    processes: int,
    leave: Callable[[int], object] = os._exit,
  ):
    """Starts the threads.

    Args:
      directory: of the processes' files, on a disk that they share or in a
        bucket.
      limit: seconds; half of it is when the others are looked for.
      say: prints a line.
      process: which one this is.
      processes: how many there are.
      leave: ends this process with an exit code, whatever it is doing.
    """
    self._leave = leave
    self.limit = limit
    self._directory = directory
    self._say = say
    self._process, self._processes = process, processes
    self._place: tuple[int, str] = (0, 'start')
    self._since = time.monotonic()
    self._began = time.time()
    self._closed = threading.Event()
    self._threads = [threading.Thread(target=self._watch, daemon=True)]
    if processes > 1:
      self._threads.append(threading.Thread(target=self._share, daemon=True))
    for thread in self._threads:
      thread.start()

  def at(self, step: int, phase: str) -> None:
    """This process has come to a phase of a step; costs nothing."""
    self._place, self._since = (step, phase), time.monotonic()

  def close(self) -> None:
    """Ends the threads."""
    self._closed.set()
    for thread in self._threads:
      thread.join(ANSWER_SECONDS)

  @property
  def _tick(self) -> float:
    in_bucket = storage.in_bucket(self._directory)
    longest = BUCKET_TICK_SECONDS if in_bucket else TICK_SECONDS
    return min(longest, self.limit / 10)

  def _share(self) -> None:
    """Says where this process is, and hears of others that have failed."""
    self._write()
    while not self._closed.wait(self._tick):
      self._write()
      self._follow(self._failure())

  def _watch(self) -> None:
    """Looks at the time."""
    warned_at = None
    while not self._closed.wait(self._tick):
      place, waited = self._place, time.monotonic() - self._since
      if waited > self.limit:
        self._end(waited)
      if waited > self.limit / 2 and warned_at != place:
        warned_at = place
        self._say(self._explained())
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)

  def _end(self, waited: float) -> None:
    """Leaves at once: the main thread waits for what may never come."""
    error = errors.StalledError(
      f'{self._explained()}; ended after {waited:.0f} s, look at that host, '
      'then run the same command again (or raise --config.train.stall_seconds)'
    )
    self._tell(error.exit_code, str(error))
    self._end_with(error.exit_code, str(error))

  def fail(self, error: Exception) -> None:
    """This process has failed, alone or not: all end with its error.

    Others may be waiting for it in a collective, as JAX would for them when
    this one leaves in the usual way. Of a single process nothing is done.
    """
    if self._processes == 1:
      return
    # A lost connection to one that failed is no cause.
    self._follow(self._soon(self._failure, None))
    ours = isinstance(error, errors.UserError)
    # All processes save together: one that is killed fails the others' saves.
    saves = isinstance(error, errors.CheckpointError)
    if not ours or (saves and self._place[1] != 'start'):
      if gone := self._gone():
        error = errors.StalledError(
          f'process {", ".join(map(str, gone))} is gone; look at that host, '
          'then run the same command again'
        )
      elif not ours:
        traceback.print_exception(error)
    self._closed.set()
    code = getattr(error, 'exit_code', 1)
    self._tell(code, str(error))
    self._end_with(code, str(error))

  def _soon(self, work: Callable[[], T], otherwise: T) -> T:
    """What work() gives, or `otherwise` if disk or bucket do not answer."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return found[0] if found else otherwise

  def _gone(self) -> list[int]:
    """The processes that write no more, after a few ticks."""
    before = self._soon(self._all, {})
    time.sleep(3 * self._tick)
    self._follow(self._soon(self._failure, None))
    after = self._soon(self._all, {})
    gone = [p for p in before if p in after and after[p] == before[p]]
    # Where this one cannot write, the others cannot either.
    return [] if self._process in gone else gone

  def _all(self) -> dict[int, dict[str, Any] | None]:
    """{process: what it wrote last, since this one began}."""
    self._write()
    return {p: self._get(self._file(p)) for p in range(self._processes)}

  def _tell(self, code: int, error: str) -> None:
    """Lets the others know."""
    if self._processes > 1:
      said = {'process': self._process, 'code': code, 'error': error}
      self._soon(lambda: self._put(self._directory / FAILED, said), None)

  def _failure(self) -> dict[str, Any] | None:
    """What one that has failed has told."""
    return self._get(self._directory / FAILED)

  def _follow(self, said: dict[str, Any] | None) -> None:
    """Ends this process if another one has failed, which has said so."""
    if said is None or said['process'] == self._process:
      return
    # One of an earlier start may be only seconds old.
    if said['time'] > self._began:
      self._end_with(
        said['code'], f'process {said["process"]}: {said["error"]}'
      )

  def _end_with(self, code: int, error: str) -> None:
    print(f'error: {error}', file=sys.stderr, flush=True)
    if self._process == 0 and self._processes > 1:
      # JAX aborts the others as soon as this one is gone; they may be a tick
      # behind in saying why they end.
      time.sleep(3 * self._tick)
    self._leave(code)

  def _explained(self) -> str:
    """See `explain`; that of this process alone if its files do not answer."""
    step, phase = self._place
    silent = (
      f'{self._directory} does not answer; this is process {self._process} '
      f'({phase}) at step {step}'
    )
    return self._soon(self.explain, silent)

  def explain(self) -> str:
    """'waiting for process 1 (data) at step 5', from the files of all."""
    places = self._places()
    missing = [p for p in range(self._processes) if p not in places]
    if missing:
      came = self._processes - len(missing)
      return (
        f'{came} of {self._processes} processes came: waiting for process '
        f'{", ".join(map(str, missing))} (start); start the same command on '
        'all hosts'
      )
    first = min(places.values(), key=_order)
    behind = [str(p) for p, place in places.items() if place == first]
    step, phase = first
    if len(behind) == self._processes and self._processes > 1:
      return f'all processes are waiting ({phase}) at step {step}'
    return f'waiting for process {", ".join(behind)} ({phase}) at step {step}'

  def _places(self) -> dict[int, tuple[int, str]]:
    """{process: (step, phase)} of those that wrote since this one began."""
    places = {self._process: self._place}
    for process in set(range(self._processes)) - {self._process}:
      if (said := self._get(self._file(process))) is not None:
        places[process] = (said['step'], said['phase'])
    return dict(sorted(places.items()))

  def _write(self) -> None:
    step, phase = self._place
    self._put(self._file(self._process), {'step': step, 'phase': phase})

  def _put(self, file: epath.Path, said: dict[str, Any]) -> None:
    scratch = file.with_name(f'{file.name}.{self._process}.tmp')
    try:
      text = json.dumps(said | {'time': time.time()})
      storage.write(file, text, scratch)
    # A full disk must not end the run from here.
    except (OSError, errors.CheckpointError) as e:
      why = storage.said(e.__cause__ or e)
      self._say(f'note: {file} could not be written ({why})')

  def _get(self, file: epath.Path) -> dict[str, Any] | None:
    """What stands in a file, unless it is of an earlier start."""
    try:
      said = json.loads(file.read_text())
    except Exception as e:
      if isinstance(e, ValueError) or storage.is_refusal(e):
        return None
      raise
    # One that is at work writes every tick.
    return said if said['time'] > self._began - CLOCK_SECONDS else None

  def _file(self, process: int) -> epath.Path:
    return self._directory / f'{process}.json'


def _order(place: tuple[int, str]) -> tuple[int, int]:
  step, phase = place
  return step, PHASES.index(phase)
