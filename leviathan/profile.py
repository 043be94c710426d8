"""A trace of a few steps, for TensorBoard's profiler, XProf or Perfetto."""

from collections.abc import Sequence
import contextlib
import os
from typing import Any

from etils import epath
import jax

from leviathan import storage


class Profile:
  """Traces the steps from `first` to `last`, once; one that is () does nothing.

  The loop calls `before` and `after` around each step, and `close` when it
  ends, however it does. Other work between two steps is in the trace too.
  """

  def __init__(self, steps: Sequence[int], directory: os.PathLike | str):
    """Takes (first, last), and where the trace is written: RUN/profile."""
    self._first, self._last = steps or (0, -1)
    self._directory = epath.Path(directory)
    self._opened = contextlib.ExitStack()
    self._running = False
    self._annotation: Any = None

  def before(self, step: int) -> None:
    """Starts the trace if `step` is one of those; a run may resume in between.

    Args:
      step: which is about to be dispatched.
    """
    if not self._first <= step <= self._last:
      return
    if not self._running:
      # The profiler knows no buckets.
      here = self._opened.enter_context(storage.local(self._directory))
      jax.profiler.start_trace(os.fspath(here))
      self._running = True
    self._annotation = jax.profiler.StepTraceAnnotation('train', step_num=step)
    self._annotation.__enter__()

  def after(self, step: int, outputs: Any) -> None:
    """Ends the trace with the last of the steps.

    Args:
      step: which has been dispatched.
      outputs: arrays of the step. The last step's are waited for: the trace
        would end before the device has done the work.
    """
    if self._annotation is not None:
      self._annotation.__exit__(None, None, None)
      self._annotation = None
    if self._running and step >= self._last:
      jax.block_until_ready(outputs)
      self.close()

  def close(self) -> None:
    """Ends a trace that is under way."""
    if self._running:
      self._running = False
      jax.profiler.stop_trace()
      self._opened.close()
