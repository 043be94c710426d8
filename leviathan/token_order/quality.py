"""What an order is worth before any training: co-occurrence kept by digits."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse

from leviathan import digits
from leviathan.token_order import cooccurrence
from leviathan.token_order import distributional


def kept(
  counts: cooccurrence.Table,
  counts_V: np.ndarray,
  rank_V: np.ndarray,
  num_digits: int,
) -> Sequence[float]:
  """How much of what tokens say of their contexts their first digits say.

  Tokens that share their first j digits are a block. The measure is the mutual
  information of the block and the context, over that of the token and the
  context: 1 if the tokens of a block are used alike, near 0 if the blocks are.
  Tokens count alike, however frequent; those too rare to be ordered by their
  use do not count.

  Args:
    counts: of contexts, a row a token, see cooccurrence.count.
    counts_V: how frequent each token is.
    rank_V: the order.
    num_digits: J.

  Returns:
    The share for the first 1, 2 to J - 1 digits.
  """
  frequent = distributional.frequent(counts, counts_V)
  table: cooccurrence.Table = counts[frequent].astype(np.float64)
  table.data /= np.repeat(table.sum(axis=1), np.diff(table.indptr))
  whole = _information(table)
  row_of = np.repeat(rank_V[frequent], np.diff(table.indptr))
  base = digits.base(len(rank_V), num_digits)
  shares = []
  for length in range(1, num_digits):
    block = row_of // base ** (num_digits - length)
    shape = base**length, table.shape[1]
    merged = scipy.sparse.coo_array((table.data, (block, table.indices)), shape)
    shares.append(_information(merged.tocsr()) / whole if whole else 0.0)
  return shares


def _information(table: cooccurrence.Table) -> float:
  """Mutual information of row and column, in nats."""
  values = table.data / max(table.data.sum(), 1e-300)
  rows = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
  of_row = np.bincount(rows, values, table.shape[0])
  of_column = np.bincount(table.indices, values, table.shape[1])
  expected = of_row[rows] * of_column[table.indices]
  return float(np.sum(values * np.log(values / expected)))
