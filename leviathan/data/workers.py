"""Work in several processes, which end with the first error or the parent."""

from collections.abc import Callable
from collections.abc import Iterable
from concurrent import futures
from concurrent.futures import process
import multiprocessing
from multiprocessing import connection
import os
import signal
import threading
from typing import Any

from leviathan import errors


class Workers:
  """So many processes, which start with the first work and wait for more.

  With one worker that is this process. A context; at its end they end.
  """

  def __init__(self, count: int):
    """From their number, 1 or more."""
    self.count = count
    self._pool = None
    if count > 1:
      # A fresh interpreter each: a fork would copy the threads' locks.
      context = multiprocessing.get_context('spawn')
      self._pool = futures.ProcessPoolExecutor(count, context, _begin)

  def __enter__(self) -> 'Workers':
    return self

  def __exit__(self, *exception) -> None:
    if self._pool is not None:
      self._pool.shutdown()

  def run(
    self, function: Callable[..., Any], arguments: Iterable[tuple]
  ) -> None:
    """Calls a function with each tuple of arguments.

    Args:
      function: of a module, so that another process finds it.
      arguments: can be pickled; taken up in their order.

    Raises:
      DataError: a worker was killed.
      Exception: the first that a call raised; the other workers are ended.
    """
    if self._pool is None:
      for one in arguments:
        function(*one)
      return
    try:
      calls = [self._pool.submit(function, *one) for one in arguments]
      for call in futures.as_completed(calls):
        call.result()
    except BaseException as e:
      self._pool.shutdown(wait=False, cancel_futures=True)
      for child in multiprocessing.active_children():
        child.terminate()
      if isinstance(e, process.BrokenProcessPool):
        raise errors.DataError(
          f'one of {self.count} workers was killed, for want of memory '
          'perhaps; the same command goes on, lower --workers'
        ) from e
      raise


def _begin() -> None:
  """Makes a worker end with its parent, and leave Ctrl-C to it."""
  # NumPy would start a thread a core, which spin though there is no algebra.
  os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  parent = multiprocessing.parent_process()
  assert parent is not None

  def watch():
    connection.wait([parent.sentinel])
    os._exit(1)  # A parent that was killed cannot say so.

  threading.Thread(target=watch, daemon=True).start()
