"""A thread that names the process which all others wait for, and ends the run.

A collective has no time limit: when one host hangs or fails, all of them stand
still and say nothing. So each process writes where it is into a small file
beside the run, which the others read when they have waited for too long; one
that fails says so in another, and all end with its error.
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

from etils import epath

from leviathan import errors
from leviathan import storage

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
    """Starts the thread.

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
    if processes > 1:
      directory.mkdir(parents=True, exist_ok=True)
      self._write()
    self._thread = threading.Thread(target=self._watch, daemon=True)
    self._thread.start()

  def at(self, step: int, phase: str) -> None:
    """This process has come to a phase of a step; costs nothing."""
    self._place, self._since = (step, phase), time.monotonic()

  def close(self) -> None:
    """Ends the thread."""
    self._closed.set()
    self._thread.join()

  @property
  def _tick(self) -> float:
    in_bucket = storage.in_bucket(self._directory)
    longest = BUCKET_TICK_SECONDS if in_bucket else TICK_SECONDS
    return min(longest, self.limit / 10)

  def _watch(self) -> None:
    warned_at = None
    while not self._closed.wait(self._tick):
      if self._processes > 1:
        self._write()
        self._follow()
      place, waited = self._place, time.monotonic() - self._since
      if waited > self.limit:
        self._end(waited)
      if waited > self.limit / 2 and warned_at != place:
        warned_at = place
        self._say(self.explain())
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)

  def _end(self, waited: float) -> None:
    """Leaves at once: the main thread waits for what may never come."""
    error = errors.StalledError(
      f'{self.explain()}; ended after {waited:.0f} s, look at that host, then '
      'run the same command again (or raise --config.train.stall_seconds)'
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
    self._closed.set()
    self._follow()  # A lost connection to one that failed is no cause.
    if not isinstance(error, errors.UserError):
      if gone := self._gone():
        error = errors.StalledError(
          f'process {", ".join(map(str, gone))} is gone; look at that host, '
          'then run the same command again'
        )
      else:
        traceback.print_exception(error)
    code = getattr(error, 'exit_code', 1)
    self._tell(code, str(error))
    self._end_with(code, str(error))

  def _gone(self) -> list[int]:
    """The processes that write no more, after a few ticks."""
    others = [p for p in range(self._processes) if p != self._process]
    before = {p: self._get(self._file(p)) for p in others}
    time.sleep(3 * self._tick)
    self._follow()
    return [p for p in others if self._get(self._file(p)) == before[p]]

  def _tell(self, code: int, error: str) -> None:
    """Lets the others know."""
    if self._processes > 1:
      said = {'process': self._process, 'code': code, 'error': error}
      self._put(self._directory / FAILED, said)

  def _follow(self) -> None:
    """Ends this process if another one has failed."""
    said = self._get(self._directory / FAILED)
    # One of an earlier start may be only seconds old.
    if said is not None and said['time'] > self._began:
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
    except Exception as e:  # A full disk must not end the run from here.
      if not storage.is_refusal(e):
        raise
      self._say(f'note: {file} could not be written ({storage.said(e)})')

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
