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


def run(
  function: Callable[..., Any], arguments: Iterable[tuple], workers: int
) -> None:
  """Calls a function with each tuple of arguments, in so many processes.

  With one worker that is this process.

  Args:
    function: of a module, so that another process finds it.
    arguments: can be pickled; taken up in their order.
    workers: 1 or more.

  Raises:
    DataError: a worker was killed.
    Exception: the first that a call raised; the other workers are ended.
  """
  if workers == 1:
    for one in arguments:
      function(*one)
    return
  # A fresh interpreter each: a fork would copy the threads' locks.
  context = multiprocessing.get_context('spawn')
  with futures.ProcessPoolExecutor(workers, context, _begin) as pool:
    try:
      calls = [pool.submit(function, *one) for one in arguments]
      for call in futures.as_completed(calls):
        call.result()
    except BaseException as e:
      pool.shutdown(wait=False, cancel_futures=True)
      for child in multiprocessing.active_children():
        child.terminate()
      if isinstance(e, process.BrokenProcessPool):
        raise errors.DataError(
          f'one of {workers} workers was killed, for want of memory perhaps; '
          'the same command goes on, lower --workers'
        ) from e
      raise


def _begin() -> None:
  """Makes a worker end with its parent, and leave Ctrl-C to it."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  parent = multiprocessing.parent_process()
  assert parent is not None

  def watch():
    connection.wait([parent.sentinel])
    os._exit(1)  # A parent that was killed cannot say so.

  threading.Thread(target=watch, daemon=True).start()
