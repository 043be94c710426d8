"""Figures and tables as text."""

from collections.abc import Sequence
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


def change(ours: float, theirs: float) -> str:
  """'+0.74 %', of ours over theirs."""
  if not (theirs and math.isfinite(ours)):
    return NONE
  return f'{100 * (ours / theirs - 1):+.2f} %'


def name(*words: str) -> str:
  """A name for a file: letters, digits and _ alone."""
  return re.sub(r'\W+', '_', '_'.join(words))


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """A table whose first column is text and the others numbers."""
  widths = [max(len(r[i]) for r in (header, *rows)) for i in range(len(header))]

  def line(cells):
    first, *rest = zip(cells, widths, strict=True)
    padded = [first[0].ljust(first[1]), *(c.rjust(w) for c, w in rest)]
    return f'| {" | ".join(padded)} |'

  rule = ['-' * widths[0], *('-' * (w - 1) + ':' for w in widths[1:])]
  return '\n'.join(line(cells) for cells in (header, rule, *rows))
