"""An order by use: tokens that stand in the same contexts get ranks nearby.

Co-occurrence counts become positive pointwise mutual information; a truncated
SVD gives each token a vector; recursive bisection along the first principal
axis puts the vectors in a line, so that alike tokens share high digits.
"""

from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from leviathan.token_order import cooccurrence

DIMENSIONS = 64
MIN_COUNT = 16  # A rarer token is placed by its spelling.


def order(
  counts: cooccurrence.Table,
  counts_V: np.ndarray,
  spelled_V: np.ndarray,
  base: int,
) -> np.ndarray:
  """The token ids in the order of their use.

  Args:
    counts: of contexts, a row a token, see cooccurrence.count.
    counts_V: how frequent each token is.
    spelled_V: the token ids in the order of their spelling, see methods.
    base: N, of the digits that the ranks will be written in.

  Returns:
    int64 ids by rank.
  """
  frequent_V = frequent(counts, counts_V)
  if frequent_V.sum() < 2:
    return spelled_V
  x_VC = np.zeros((len(counts_V), DIMENSIONS))
  x = vectors(counts[frequent_V])
  x_VC[frequent_V, : x.shape[1]] = x
  x_VC[spelled_V] = _filled(x_VC[spelled_V], frequent_V[spelled_V])
  return spelled_V[bisect(x_VC[spelled_V], base)]


def frequent(counts: cooccurrence.Table, counts_V: np.ndarray) -> np.ndarray:
  """Whether each token has counts that mean something, (V,)."""
  return (counts_V >= MIN_COUNT) & (np.diff(counts.indptr) > 0)


def vectors(counts: cooccurrence.Table) -> np.ndarray:
  """Unit vectors of tokens from their counts, (n, C)."""
  ppmi = _ppmi(counts)
  rank = min(DIMENSIONS, min(ppmi.shape) - 1)
  start = np.ones(min(ppmi.shape))
  # The type says that it may be None, which it is only where not asked for.
  found: Any = scipy.sparse.linalg.svds(ppmi, rank, v0=start)
  u, s, _ = found
  x = u[:, ::-1] * np.sqrt(s[::-1])
  # Rounded, so that the last bits of a library's sums do not decide.
  x = np.round(x / np.maximum(np.linalg.norm(x, axis=1), 1e-30)[:, None], 6)
  return x * np.where(x.sum(axis=0) < 0, -1, 1)


def _ppmi(counts: cooccurrence.Table) -> cooccurrence.Table:
  """max(0, log(p(token, column) / (p(token) p(column))))."""
  total = counts.sum(dtype=np.float64)
  of_row = counts.sum(axis=1, dtype=np.float64)
  of_column = counts.sum(axis=0, dtype=np.float64)
  row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
  expected = of_row[row] * of_column[counts.indices] / total
  values = np.maximum(np.log(counts.data / expected), 0)
  found = scipy.sparse.csr_array(
    (values, counts.indices, counts.indptr), counts.shape
  )
  found.eliminate_zeros()
  return found


def _filled(x_VC: np.ndarray, known_V: np.ndarray) -> np.ndarray:
  """A token that is not known gets the vector of the nearest one that is."""
  places = np.flatnonzero(known_V)
  here = np.arange(len(known_V))
  after = np.searchsorted(places, here).clip(0, len(places) - 1)
  before = (after - 1).clip(0)
  nearer = here - places[before] <= places[after] - here
  return x_VC[np.where(known_V, here, places[np.where(nearer, before, after)])]


def bisect(x_VC: np.ndarray, base: int) -> np.ndarray:
  """The rows in a line: indices, alike ones near one another.

  Cuts fall where ranks change a digit, the highest first, as near to the middle
  as that allows. Each part is turned so that its line runs the way of the
  whole's; equal rows stay in the order they came in.
  """
  pieces = []
  todo = [(np.arange(len(x_VC)), np.ones(x_VC.shape[1]))]
  while todo:
    here, way = todo.pop()
    if len(here) < 3:
      pieces.append(here)
      continue
    axis = _principal_axis(x_VC[here])
    axis = axis if axis @ way >= 0 else -axis
    here = here[np.argsort(x_VC[here] @ axis, kind='stable')]
    cut = _cut(len(here), base)
    todo += [(here[cut:], axis), (here[:cut], axis)]
  return np.concatenate(pieces)


def _cut(count: int, base: int) -> int:
  """The multiple of the largest power of `base` below, nearest to half."""
  block = 1
  while block * base < count:
    block *= base
  return max(1, round(count / 2 / block)) * block


def _principal_axis(x: np.ndarray) -> np.ndarray:
  """The direction in which rows differ most, by the smaller Gram matrix."""
  x = x - x.mean(axis=0)
  if len(x) < x.shape[1]:
    return x.T @ np.linalg.eigh(x @ x.T)[1][:, -1]
  return np.linalg.eigh(x.T @ x)[1][:, -1]
