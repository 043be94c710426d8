"""How sure a ratio of sums over rows is: the percentile bootstrap.

Rows are drawn again with replacement, as many as there are, all classes with
the same draws (Efron and Tibshirani, An Introduction to the Bootstrap, chapters
6 and 13). Rows are sequences, within which tokens depend on each other.
"""

from typing import NamedTuple

import numpy as np

RESAMPLES = 1000
CONFIDENCE = 0.95
GROUPS = 4096  # More rows are dealt into so many groups, which are drawn.
_BLOCK = 2**22  # drawn groups held at once


class Interval(NamedTuple):
  """Of a mean: its standard error, and the ends of the interval of 95 %."""

  stderr: float
  low: float
  high: float


def intervals(
  nll_QR: np.ndarray, tokens_QR: np.ndarray, seed: int = 0
) -> list[Interval | None]:
  """Of each class's sum of nll over its sum of tokens.

  The same in every call with these rows and this seed. To compare two models on
  the same tokens, give the difference of their nll: each draw then has the rows
  of both, which is the paired bootstrap.

  Args:
    nll_QR: sums of nll by class and row.
    tokens_QR: how many tokens they are of.
    seed: of the draws.

  Returns:
    One for each class. None for a class that is in fewer than two rows: drawing
    them again tells nothing. Draws without a token of the class are left out.
  """
  found: list[Interval | None] = [None] * len(tokens_QR)
  sums_XQR = _grouped(np.stack([nll_QR, tokens_QR]))
  measured = np.flatnonzero(np.count_nonzero(sums_XQR[1], axis=1) > 1)
  if not measured.size:
    return found
  sums_XSQ = _resampled(sums_XQR[:, measured], seed)
  for i, q in enumerate(measured):
    nll_S, tokens_S = sums_XSQ[:, sums_XSQ[1, :, i] > 0, i]
    found[q] = _interval(nll_S / tokens_S)
  return found


def _interval(mean_S: np.ndarray) -> Interval:
  """Nan where the mean is not finite."""
  tail = (1 - CONFIDENCE) / 2
  with np.errstate(invalid='ignore'):
    low, high = np.quantile(mean_S, (tail, 1 - tail))
    return Interval(float(mean_S.std()), float(low), float(high))


def _grouped(sums_XQR: np.ndarray) -> np.ndarray:
  """At most GROUPS columns; a rare class's rows are often neighbours."""
  rows = sums_XQR.shape[-1]
  if rows <= GROUPS:
    return sums_XQR
  filled_XQR = np.pad(sums_XQR, ((0, 0), (0, 0), (0, -rows % GROUPS)))
  return filled_XQR.reshape(*sums_XQR.shape[:2], -1, GROUPS).sum(axis=2)


def _resampled(sums_XQR: np.ndarray, seed: int) -> np.ndarray:
  """The sums of each draw, (X, RESAMPLES, Q), some draws at a time."""
  rng = np.random.default_rng(seed)
  rows = sums_XQR.shape[-1]
  columns = sums_XQR.reshape(-1, rows).T
  block = max(1, _BLOCK // rows)
  parts = []
  for start in range(0, RESAMPLES, block):
    draws = min(block, RESAMPLES - start)
    row_SR = rng.integers(rows, size=(draws, rows))
    row_SR += np.arange(draws)[:, None] * rows
    times = np.bincount(row_SR.ravel(), minlength=draws * rows)
    times_SR = times.reshape(draws, rows).astype(np.float64)
    with np.errstate(invalid='ignore'):
      parts.append(times_SR @ columns)
  sums_SXQ = np.concatenate(parts).reshape(RESAMPLES, *sums_XQR.shape[:2])
  return np.moveaxis(sums_SXQ, 1, 0)
