"""The tokens of a dataset as one stream, over the files of its units."""

from collections.abc import Iterator
from collections.abc import Sequence
import mmap
from typing import NamedTuple

import numpy as np

from leviathan.data import records

_BLOCK = 4096  # Rows that are gathered at once.


class Part(NamedTuple):
  """So many ids of a file, from the id number `begin` on."""

  path: str
  begin: int
  tokens: int


class Stream:
  """EOS, then the ids of all units: EOS stands between and after documents.

  Attributes:
    length: tokens, the first EOS included.
  """

  def __init__(self, parts: Sequence[Part], eos_id: int):
    """From the parts, one after another."""
    self._parts, self._eos_id = parts, eos_id
    self._ends = np.cumsum([1, *(p.tokens for p in parts)], dtype=np.int64)
    self.length = int(self._ends[-1])

  def sequences(self, seq_len: int) -> int:
    """Rows that predict each token but the first once."""
    return -(-(self.length - 1) // seq_len)

  def rows(self, indices: np.ndarray, seq_len: int) -> Iterator[np.ndarray]:
    """The rows at `indices`, (n, seq_len + 1) a block, filled up with PAD."""
    for block in np.split(indices, range(_BLOCK, len(indices), _BLOCK)):
      yield self._gather(block * seq_len, seq_len + 1)

  def _gather(self, starts: np.ndarray, length: int) -> np.ndarray:
    """(n, length) ids from some places on.

    Rows within one unit are copied together, those across units one by one.
    """
    rows = np.full((len(starts), length), records.PAD, records.ID)
    rows[starts == 0, 0] = self._eos_id
    stops = np.minimum(starts + length, self.length)
    first = np.searchsorted(self._ends, starts, side='right') - 1
    last = np.searchsorted(self._ends, stops - 1, side='right') - 1
    whole = (first == last) & (stops == starts + length)
    for unit in np.unique(first[whole]):
      here = whole & (first == unit)
      windows = np.lib.stride_tricks.sliding_window_view(
        self._ids(unit), length
      )
      rows[here] = windows[starts[here] - self._ends[unit]]
    for row in np.flatnonzero(~whole):
      for unit in range(max(0, first[row]), last[row] + 1):
        begin = max(starts[row], self._ends[unit])
        end = min(stops[row], self._ends[unit + 1])
        if begin < end:
          part = self._ids(unit)[begin - self._ends[unit] :][: end - begin]
          rows[row, begin - starts[row] : end - starts[row]] = part
    return rows

  def _ids(self, unit: int) -> np.ndarray:
    """All ids of a unit, read where they are touched."""
    part = self._parts[unit]
    with open(part.path, 'rb') as file:
      data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if hasattr(mmap, 'MADV_RANDOM'):
      # Else the system reads far more around each row than the row.
      data.madvise(mmap.MADV_RANDOM)
    offset = part.begin * records.ID.itemsize
    return np.frombuffer(data, records.ID, part.tokens, offset)
