"""Sums that are divided once, and the file of metrics.

`metrics.jsonl` is the truth of a run: one JSON object a line, with `step`,
`split`, `tokens` and then metrics whose names say their unit. JSON has no
number for what is not finite: it is null there, and nan when read back.
"""

from collections.abc import Mapping
import contextlib
import itertools
import json
import math
import time
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


UPLOAD_SECONDS = 60.0


class Writer:
  """Appends rows to `metrics.jsonl`, each step of a split once.

  On resuming, rows past the restored step (and a line that a kill cut short)
  are dropped: those steps will run again.

  A bucket has no appending: there the file is written anew after a while, after
  an evaluation, and by `sync`. What a kill may lose are rows of steps that will
  run again, if `sync` is called before each save.
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
    self._path = path
    self._lines = [line(row) for row in rows]  # All of them, for a bucket.
    self._synced, self._took = time.monotonic(), 0.0
    storage.write(path, ''.join(self._lines))
    self._file = None if storage.in_bucket(path) else path.open('a')

  def write(self, row: Mapping[str, Any]) -> None:
    """Writes one row; a disk's operating system gets it at once."""
    if self._file is not None:
      self._file.write(line(row))
      self._file.flush()
      return
    self._lines.append(line(row))
    # However long the file gets, a run must not wait for it much.
    wait = max(UPLOAD_SECONDS, 50 * self._took)
    if row['split'] != 'train' or time.monotonic() > self._synced + wait:
      # The next save will say so if it goes on failing.
      with contextlib.suppress(errors.CheckpointError):
        self.sync()

  def sync(self) -> None:
    """Makes all rows so far outlast this process.

    Raises:
      CheckpointError: a bucket refuses them.
    """
    if self._file is not None:
      return
    began = time.monotonic()
    try:
      storage.write(self._path, ''.join(self._lines))
    except Exception as e:
      if not storage.is_refusal(e):
        raise
      raise errors.CheckpointError(
        f'{self._path} cannot be written ({storage.said(e)}); mend that, and '
        'run the same command again'
      ) from e
    finally:
      self._synced = time.monotonic()
      self._took = self._synced - began

  def close(self) -> None:
    """Closes the file."""
    if self._file is None:
      self.sync()
    else:
      self._file.close()


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
  if not path.exists():
    return []
  rows = []
  lines = path.read_text().splitlines()
  for number, text in enumerate(lines, start=1):
    try:
      rows.append(from_json(json.loads(text)))
    except json.JSONDecodeError as e:
      if number < len(lines):
        raise errors.CheckpointError(
          f'{path}:{number} is not JSON ({e}); mend or remove the line'
        ) from e
  return rows
