"""Sums that are divided once, and the file of metrics.

`metrics.jsonl` is the truth of a run: one JSON object a line, with `step`,
`split`, `tokens` and then metrics whose names say their unit. JSON has no
number for what is not finite: it is null there, and nan when read back.
"""

from collections.abc import Mapping
import itertools
import json
import logging
import math
import sys
from typing import Any
from typing import NamedTuple

from etils import epath

from leviathan import arrays
from leviathan import errors
from leviathan import storage


class Sums(NamedTuple):
  """Sums over the tokens that count, before the one division.

  Attributes:
    nll: negative log-likelihood, in nats.
    tokens: how many they are.
    z_loss: see `losses.Loss`; in training alone.
  """

  nll: arrays.Array
  tokens: arrays.Array
  z_loss: arrays.Array = 0.0


def from_mean(nats_per_token: float) -> dict[str, float]:
  """The metrics that a mean nll implies."""
  return {
    'nats_per_token': nats_per_token,
    # Beyond e**700 a float overflows; such a perplexity says only 'lost'.
    'perplexity': math.exp(min(nats_per_token, 700.0)),
  }


class Writer:
  """Appends rows to `metrics.jsonl`, each step of a split once.

  On resuming, rows past the restored step (and a line that a kill cut short)
  are dropped: those steps will run again.

  A bucket has no appending: there the file is written anew after a while, with
  the first step after an evaluation, and by `sync`. What a kill may lose are
  rows of steps that will run again, if `sync` is called before each save.
  """

  def __init__(self, path: epath.Path, resumed_step: int, evaluated: bool):
    """Opens the file for the steps after `resumed_step`.

    Args:
      path: of the file.
      resumed_step: the last step that will not run again.
      evaluated: whether what was evaluated then stays, too.
    """
    rows = [
      r
      for r in read(path)
      if r['step'] < resumed_step + (evaluated or r['split'] == 'train')
    ]
    if path.exists() and not resumed_step:
      # No checkpoint was found, so all steps run again. If it was only mislaid,
      # the rows are still there.
      names = (f'metrics.before-{i}.jsonl' for i in itertools.count(1))
      free = (p for p in map(path.with_name, names) if not p.exists())
      path.rename(next(free))
    self._lines = [line(row) for row in rows]  # All of them, for a bucket.
    self._upload = storage.Upload(path, lambda: ''.join(self._lines))
    self._evaluated = False  # Since the last training step.
    storage.write(path, ''.join(self._lines))
    self._file = None if storage.in_bucket(path) else path.open('a')

  def write(self, row: Mapping[str, Any]) -> None:
    """Writes one row; a disk's operating system gets it at once."""
    if self._file is not None:
      self._file.write(line(row))
      self._file.flush()
      return
    self._lines.append(line(row))
    # Once for all rows of an evaluation: a bucket limits how often an object is
    # written.
    ended = self._evaluated and row['split'] == 'train'
    self._evaluated = row['split'] != 'train'
    self._upload.changed(at_once=ended)

  def sync(self) -> None:
    """Makes all rows so far outlast this process.

    Raises:
      CheckpointError: a bucket refuses them.
    """
    self._evaluated = False
    self._upload.sync()

  def close(self) -> None:
    """Closes the file.

    Raises:
      CheckpointError: a bucket refuses the last rows; only logged while another
        exception is on its way, which says better why the run ends.
    """
    if self._file is not None:
      self._file.close()
      return
    under_way = sys.exception()
    try:
      self.sync()
    except errors.CheckpointError as e:
      if under_way is None:
        raise
      logging.getLogger(__name__).warning('%s', e)


def to_json(value: Any) -> Any:
  """Figures, nested or not, with None for what is not finite."""
  if isinstance(value, Mapping):
    return {name: to_json(item) for name, item in value.items()}
  if isinstance(value, list | tuple):
    return [to_json(item) for item in value]
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value


def from_json(value: Any) -> Any:
  """The figures again, with nan for None."""
  if isinstance(value, dict):
    return {name: from_json(item) for name, item in value.items()}
  if isinstance(value, list):
    return [from_json(item) for item in value]
  return math.nan if value is None else value


def line(row: Mapping[str, Any]) -> str:
  """The line of a row in a file of them."""
  return json.dumps(to_json(row), allow_nan=False) + '\n'


def read(path: epath.Path) -> list[dict[str, Any]]:
  """The rows of a `metrics.jsonl`, without a last line that was cut short.

  A null in there is nan.

  Raises:
    CheckpointError: another line is not JSON.
  """
  try:
    lines = storage.read(path).splitlines()
  except FileNotFoundError:
    return []
  rows = []
  for number, text in enumerate(lines, start=1):
    try:
      rows.append(from_json(json.loads(text)))
    except json.JSONDecodeError as e:
      if number < len(lines):
        raise errors.CheckpointError(
          f'{path}:{number} is not JSON ({e}); mend or remove the line'
        ) from e
  return rows
