"""An order by use: tokens that stand in the same contexts get ranks nearby.

Co-occurrence counts become positive pointwise mutual information; a truncated
SVD gives each token a vector; recursive bisection along the first principal
axis puts the vectors in a line, so that alike tokens share high digits.
"""

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import threadpoolctl

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
  # The matrices are small: many threads wait for one another, and each number
  # of them has its own last bits.
  with threadpoolctl.threadpool_limits(1):
    x_NC = vectors(counts[frequent_V])
    x_VC[frequent_V, : x_NC.shape[1]] = x_NC
    x_VC[spelled_V] = _filled(x_VC[spelled_V], frequent_V[spelled_V])
    return spelled_V[bisect(x_VC[spelled_V], base)]


def frequent(counts: cooccurrence.Table, counts_V: np.ndarray) -> np.ndarray:
  """Whether each token has counts that mean something, (V,)."""
  return (counts_V >= MIN_COUNT) & (np.diff(counts.indptr) > 0)


def vectors(counts: cooccurrence.Table) -> np.ndarray:
  """Unit vectors of tokens from their counts, (n, C)."""
  ppmi_NX = _ppmi(counts)
  rank = min(DIMENSIONS, min(ppmi_NX.shape) - 1)
  if rank < 1 or not ppmi_NX.nnz:  # All tokens are used alike.
    return np.zeros((ppmi_NX.shape[0], 1))
  ppmi = scipy.sparse.linalg.aslinearoperator(ppmi_NX)
  start_X = np.asarray(ppmi_NX.sum(axis=0))
  # Not `svds`: its own random numbers are other ones each time.
  squared_C, right_XC = scipy.sparse.linalg.eigsh(
    ppmi.H @ ppmi, rank, v0=start_X, rng=np.random.default_rng(0)
  )
  kept_C = squared_C > 1e-9 * squared_C.max()
  x_NC = ppmi_NX @ (right_XC[:, kept_C] * squared_C[kept_C] ** -0.25)
  x_NC *= np.where(x_NC.sum(axis=0) < 0, -1, 1)
  return x_NC / np.maximum(np.linalg.norm(x_NC, axis=1), 1e-30)[:, None]


def _ppmi(counts: cooccurrence.Table) -> cooccurrence.Table:
  """max(0, log(p(token, column) / (p(token) p(column))))."""
  values = np.log(counts.data)
  values += np.log(float(counts.data.sum()))
  of_row = counts.sum(axis=1, dtype=np.float64).clip(1)
  values -= np.repeat(np.log(of_row), np.diff(counts.indptr))
  of_column = counts.sum(axis=0, dtype=np.float64).clip(1)
  values -= np.log(of_column)[counts.indices]
  values[values < 1e-9] = 0  # Also what is above 0 by rounding alone.
  found: cooccurrence.Table = scipy.sparse.csr_array(
    (values, counts.indices.copy(), counts.indptr.copy()), counts.shape
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
    # Rounded: last bits do not decide, least of all between equal rows.
    places = np.round(x_VC[here] @ axis, 9)
    here = here[np.argsort(places, kind='stable')]
    cut = _cut(len(here), base)
    todo += [(here[cut:], axis), (here[:cut], axis)]
  return np.concatenate(pieces)


def _cut(count: int, base: int) -> int:
  """The multiple of the largest power of `base` below, nearest to half."""
  block = 1
  while block * base < count:
    block *= base
  return max(1, round(count / 2 / block)) * block


def _principal_axis(x_NC: np.ndarray) -> np.ndarray:
  """The unit vector along which rows differ most."""
  x_NC = x_NC - x_NC.mean(axis=0)
  if len(x_NC) < x_NC.shape[1]:  # By the smaller Gram matrix.
    axis_C = x_NC.T @ np.linalg.eigh(x_NC @ x_NC.T)[1][:, -1]
    return axis_C / max(np.linalg.norm(axis_C), 1e-30)
  return np.linalg.eigh(x_NC.T @ x_NC)[1][:, -1]
