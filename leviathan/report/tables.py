"""Figures and tables as text."""

import math
import re

from leviathan.report import replicates

NONE = '-'  # Where there is nothing to say.


def said(estimate: replicates.Estimate, form: str) -> str:
  """'4.4250 +- 0.0012', without the interval where there is none."""
  parts = [format(estimate.mean, form)]
  if estimate.half_width is not None:
    parts.append(format(estimate.half_width, form.lstrip('+')))
  return ' +- '.join(parts)


def ends(estimate: replicates.Estimate) -> list[float]:
  """[mean, low, high], the ends nan where there is no interval."""
  half = estimate.half_width
  half = math.nan if half is None else half
  return [estimate.mean, estimate.mean - half, estimate.mean + half]


def change(ours: float, theirs: float) -> str:
  """'+0.74 %', of ours over theirs."""
  if not (theirs and math.isfinite(ours)):
    return NONE
  return f'{100 * (ours / theirs - 1):+.2f} %'


def name(*words: str) -> str:
  """A name for a file: letters, digits and _ alone."""
  return re.sub(r'\W+', '_', '_'.join(words))
