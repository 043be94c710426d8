"""Several runs of one thing, by seed: means, differences, and how sure."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.stats

CONFIDENCE = 0.95


class Estimate(NamedTuple):
  """A mean and half the width of its interval; None of a single value."""

  mean: float
  half_width: float | None


class Interval(NamedTuple):
  """A mean with the ends of its interval, which is not around it.

  The ends are nan where there is no interval.
  """

  mean: float
  low: float
  high: float


def estimate(values: Sequence[float]) -> Estimate:
  """The mean of independent values, with Student's interval of 95 %."""
  mean = float(np.mean(values))
  if len(values) < 2:
    return Estimate(mean, None)
  error = float(np.std(values, ddof=1)) / len(values) ** 0.5
  quantile = scipy.stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)
  return Estimate(mean, float(quantile) * error)


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
  """Ours less theirs, value by value: of one seed each, on one data order."""
  return estimate([a - b for a, b in zip(ours, theirs, strict=True)])
