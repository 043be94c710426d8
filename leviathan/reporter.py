"""Rows of metrics and lines of progress, one step behind what is dispatched."""

from collections.abc import Callable
from collections.abc import Sequence
import math
import time
from typing import Any

import numpy as np

from leviathan import errors
from leviathan import experiment
from leviathan import flops
from leviathan import metrics

Say = Callable[[str], None]
# Splits that are said as well as written, and how their metrics are.
SAID = ('validation/', 'task/')
FORMS = {
  'nats_per_token': '{:.4f} nats per token',
  'perplexity': 'perplexity {:.2f}',
  'word_perplexity': 'by word {:.2f}',
  'bits_per_byte': '{:.4f} bits per byte',
  'acc': 'accuracy {:.4f}',
  'acc_norm': 'by character {:.4f}',
}


class Reporter:
  """Reads back what steps and evaluations came to.

  Step n - 1 is read after step n has been dispatched, so that the device never
  waits for the host.
  """

  def __init__(
    self,
    config: experiment.Config,
    *,
    start: int,
    sequences: int,
    devices: Sequence[Any],
    write: Callable[[dict[str, Any]], None],
    say: Say,
  ):
    """For the steps after `start`, before which were so many sequences."""
    self._config, self._start, self._sequences = config, start, sequences
    self._write, self._say = write, say
    self._devices = devices
    self._flops = flops.per_token(config.model, config.data.seq_len)['total']
    self._last_saved = start  # 0: nothing was.
    self._pending: tuple[int, dict[str, Any]] | None = None
    self._clock = time.perf_counter()
    self._busy = 0.0  # Seconds spent in training steps since the start.

  def sequences(self, step: int) -> int:
    """How many came before the end of a step."""
    steps = step - self._start
    return self._sequences + steps * self._config.data.batch_size

  def dispatched(self, step: int, row: dict[str, Any]) -> None:
    """Step `step` is on its way; the one before it is read."""
    behind, self._pending = self._pending, (step, row)
    if behind:
      self._read(*behind)

  def catch_up(self) -> None:
    """Reads the step that is still on its way."""
    if self._pending:
      self._read(*self._pending)
      self._pending = None

  def resume_clock(self) -> None:
    """What was done since the last step was no part of a step."""
    self._clock = time.perf_counter()

  def saved(self, step: int) -> None:
    """A checkpoint of a step was begun."""
    self._last_saved = step
    self.resume_clock()

  def evaluation(self, step: int, results: dict[str, dict[str, Any]]) -> None:
    """Writes {split: its metrics} and says those of whole sets."""
    for split, row in results.items():
      self._write(self._head(step, split) | row)
      if split.startswith(SAID):
        said = [form.format(row[m]) for m, form in FORMS.items() if m in row]
        self._say(f'step {step}: {split} {", ".join(said)}')

  def _head(self, step: int, split: str) -> dict[str, Any]:
    tokens = self.sequences(step) * self._config.data.seq_len
    return {'step': step, 'split': split, 'tokens': tokens}

  def _read(self, step: int, row: dict[str, Any]) -> None:
    """Waits for a step, writes its row and says so if it was skipped."""
    values = {k: np.asarray(v).item() for k, v in row.items()}
    in_a_row = values.pop('skipped_in_a_row')
    now = time.perf_counter()
    seconds, self._clock = now - self._clock, now
    self._busy += seconds
    rate = values.pop('batch_tokens') / seconds
    mean = metrics.from_mean(values.pop('nats_per_token'))
    speed = {'step_seconds': seconds, 'tokens_per_second': rate}
    used = flops.mfu(rate, self._flops, self._devices)
    if used is not None:
      speed['mfu'] = used
    self._write(self._head(step, 'train') | mean | values | speed)
    last = self._config.train.steps
    if step % self._config.log.interval == 0 or step in (self._start + 1, last):
      left = self._busy / (step - self._start) * (last - step)
      self._say(
        f'step {step}/{last}: loss {mean["nats_per_token"]:.4f}, '
        f'{rate:,.0f} tokens/s, '
        f'{"" if used is None else f"MFU {used:.1%}, "}{_minutes(left)} left'
      )
    if in_a_row:
      self._skipped(step, _wrong(mean | values), in_a_row)

  def _skipped(self, step: int, wrong: str, in_a_row: int) -> None:
    """Says that a step was skipped, and ends the run after too many."""
    first, end = self.sequences(step - 1), self.sequences(step)
    self._say(
      f'step {step} was skipped: {wrong}; it had the sequences {first} to '
      f"{end - 1} of the data's order"
    )
    limit = self._config.optimizer.skip_limit
    if in_a_row > limit:
      saved = f'the last checkpoint is of step {self._last_saved}'
      raise errors.NotFiniteError(
        f'step {step}: {wrong}; {in_a_row} steps in a row were skipped, more '
        f'than config.optimizer.skip_limit={limit}; '
        f'{saved if self._last_saved else "there is no checkpoint"}; lower '
        'config.optimizer.learning_rate in a new --workdir'
      )


def _wrong(values: dict[str, Any]) -> str:
  """What a step is skipped for: 'grad_norm is inf'."""
  judged = {name: values[name] for name in ('nats_per_token', 'grad_norm')}
  lost = {k: v for k, v in judged.items() if not math.isfinite(v)}
  text = ' and '.join(f'{k} is {v:.6g}' for k, v in (lost or judged).items())
  return text if lost else f'{text}, a spike'


def _minutes(seconds: float) -> str:
  """'3:05' or '12:00:10'."""
  minutes, seconds_ = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  if hours:
    return f'{hours}:{minutes:02}:{seconds_:02}'
  return f'{minutes}:{seconds_:02}'
