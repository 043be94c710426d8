"""Which tokens stand beside which: counts over a dataset, in bounded memory.

A column is a pair of an offset and a context, one of the most frequent tokens.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

from leviathan.data import records

Table = Any  # A scipy.sparse.csr_array, which has no types of its own.
OFFSETS = (-2, -1, 1, 2)
CONTEXTS = 2048  # The most frequent tokens.
# Ids that are read at once, and counts that are kept; each takes 12 bytes.
_BLOCK = 4 << 20
_MOST_COUNTS = 64 << 20


def count(
  datasets: Sequence[records.Dataset],
  counts_V: np.ndarray,
  tick: Callable[[int], Any] = lambda tokens: None,
) -> Table:
  """How often each token has each context at each offset.

  A table that grows beyond what is kept loses its smallest counts, and a rare
  pair that comes back later counts from 1 again.

  Args:
    datasets: of one tokenizer.
    counts_V: how frequent each token is.
    tick: called with the tokens read since the last call.

  Returns:
    int64 (V, len(OFFSETS) * contexts).
  """
  context_V, width = _contexts(counts_V)
  shape = len(counts_V), len(OFFSETS) * width
  total: Table = scipy.sparse.csr_array(shape, dtype=np.int64)
  for ids in _blocks(datasets):
    keys = np.concatenate(list(_pairs(ids, context_V, width)))
    total = total + _table(keys, shape)
    least = 0
    while total.nnz > _MOST_COUNTS:
      least += 1
      total.data[total.data <= least] = 0
      total.eliminate_zeros()
    tick(ids[:, 1:].size)
  return total


def _contexts(counts_V: np.ndarray) -> tuple[np.ndarray, int]:
  """The column of each token, -1 for most, then of PAD; and their number."""
  width = min(CONTEXTS, len(counts_V))
  frequent = np.argsort(-counts_V, kind='stable')[:width]
  context_V = np.full(len(counts_V) + 1, -1, np.int64)
  context_V[frequent] = np.arange(width)
  return context_V, width


def _blocks(datasets: Sequence[records.Dataset]) -> Iterator[np.ndarray]:
  """Rows of ids, with V where there is none."""
  for dataset in datasets:
    none = dataset.manifest.tokenizer.vocab_size
    rows = max(1, _BLOCK // dataset.manifest.seq_len)
    for start in range(0, len(dataset), rows):
      stop = min(start + rows, len(dataset))
      yield np.minimum(dataset.read(np.arange(start, stop)), none)


def _pairs(
  ids: np.ndarray, context_V: np.ndarray, width: int
) -> Iterator[np.ndarray]:
  """int64 row * columns + column of each pair, offset by offset."""
  none, columns = len(context_V) - 1, len(OFFSETS) * width
  for i, offset in enumerate(OFFSETS):
    distance = abs(offset)
    left, right = ids[:, :-distance], ids[:, distance:]
    token, context = (right, left) if offset < 0 else (left, right)
    column = context_V[context]
    kept = (token < none) & (column >= 0)
    yield token[kept].astype(np.int64) * columns + column[kept] + i * width


def _table(keys: np.ndarray, shape: tuple[int, int]) -> Table:
  """How often each key occurs."""
  keys, times = np.unique(keys, return_counts=True)
  row, column = np.divmod(keys, shape[1])
  starts = np.searchsorted(row, np.arange(shape[0] + 1))
  return scipy.sparse.csr_array((times, column.astype(np.int32), starts), shape)
