"""Figures and tables as text."""

import math
import re

from leviathan.report import replicates

NONE = '-'  # Where there is nothing to say.


def said(found: replicates.Estimate | replicates.Interval, form: str) -> str:
  """'4.4250 +- 0.0012' or '4.4250 [4.4201, 4.4312]'.

  Without the interval where there is none.
  """
  mean = format(found.mean, form)
  if isinstance(found, replicates.Interval):
    low, high = (format(end, form) for end in found[1:])
    return mean if math.isnan(found.low) else f'{mean} [{low}, {high}]'
  if found.half_width is None:
    return mean
  return f'{mean} +- {format(found.half_width, form.lstrip("+"))}'


def ends(found: replicates.Estimate | replicates.Interval) -> list[float]:
  """[mean, low, high], the ends nan where there is no interval."""
  if isinstance(found, replicates.Interval):
    return [*found]
  half = math.nan if found.half_width is None else found.half_width
  return [found.mean, found.mean - half, found.mean + half]


def percent(ours: float, theirs: float) -> float:
  """By how many percent ours is over theirs; nan where that says nothing."""
  if not (theirs and math.isfinite(ours)):
    return math.nan
  return 100 * (ours / theirs - 1)


def change(ours: float, theirs: float) -> str:
  """As `percent`: '+0.74 %'."""
  found = percent(ours, theirs)
  return NONE if math.isnan(found) else f'{found:+.2f} %'


def name(*words: str) -> str:
  """A name for a file: letters, digits and _ alone."""
  return re.sub(r'\W+', '_', '_'.join(words))
