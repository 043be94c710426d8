"""Gain by the size of the model, and by the size of the vocabulary."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib import figure as figures
from matplotlib import ticker
import numpy as np

from leviathan.report import compare
from leviathan.report import document
from leviathan.report import groups as groups_lib
from leviathan.report import palette
from leviathan.report import replicates
from leviathan.report import tables


class Point(NamedTuple):
  """A gain at a size."""

  size: int
  gain: replicates.Estimate


def sections(groups: groups_lib.Groups, dataset: str) -> list[document.Section]:
  """By scale and by vocabulary, where there are several of them."""
  by_scale = across(groups, dataset, _total, lambda s: s.vocabulary)
  by_vocabulary = across(groups, dataset, _vocabulary, lambda s: s.scale)
  found = []
  for title, unit, lines in (
    ('scale', "parameters of the baseline's model", by_scale),
    ('vocabulary', 'tokens in the vocabulary', by_vocabulary),
  ):
    if lines:
      name = tables.name('gain_by', title, dataset)
      caption = (
        f'Gain in perplexity over the baseline, %, by {unit}; after it half '
        "of the 95 % interval of Student's t, where there are several pairs of "
        'runs of one seed.'
      )
      parts = [
        document.Table(name, caption, *_table(lines, unit), _values(lines)),
        document.Picture(f'{name}_curve', caption, draw(lines, unit)),
      ]
      found.append(document.Section(f'Gain by {title} on {dataset}', parts))
  return found


def across(
  groups: groups_lib.Groups,
  dataset: str,
  size: Callable[[groups_lib.Variant], int],
  fixed: Callable[[groups_lib.Setting], str],
) -> dict[str, list[Point]]:
  """Gains by size, of the arms that have several sizes.

  Args:
    groups: the variants.
    dataset: that is compared. Of several variants at a size, `groups.best`.
    size: of a baseline.
    fixed: what must not change along a line.

  Returns:
    {label: points, the smallest first}; the label is the arm, with what is
    fixed where it has several lines.
  """
  of_size: dict[tuple[str, str], dict[int, list[groups_lib.Variant]]] = {}
  for variant, baseline in groups.rivals():
    line = of_size.setdefault((variant.first.label, fixed(variant.setting)), {})
    line.setdefault(size(baseline), []).append(variant)
  several = {key: line for key, line in of_size.items() if len(line) > 1}
  names = [name for name, _ in several]
  value = compare.nats(dataset)
  found = {}
  for (name, kept), line in several.items():
    label = name if names.count(name) == 1 else f'{name}, {kept}'
    found[label] = []
    for at, variants in sorted(line.items()):
      variant = groups_lib.best(variants)
      baseline = groups.baseline(variant) or variant
      found[label].append(Point(at, compare.gains(variant, baseline, value)))
  return found


def _total(variant: groups_lib.Variant) -> int:
  return variant.first.parameters['total']


def _vocabulary(variant: groups_lib.Variant) -> int:
  return variant.setting.vocab_size


def _table(
  lines: Mapping[str, Sequence[Point]], unit: str
) -> tuple[list[str], list[list[str]]]:
  """A row a size, a column a line."""
  sizes = sorted({point.size for points in lines.values() for point in points})
  by_size = [dict(points) for points in lines.values()]
  rows = [
    [
      f'{size:,}',
      *(
        tables.said(gains[size], '+.2f') if size in gains else tables.NONE
        for gains in by_size
      ),
    ]
    for size in sizes
  ]
  return [unit, *lines], rows


def _values(lines: Mapping[str, Sequence[Point]]) -> list[list]:
  """The same as numbers: a row a point."""
  return [['size', 'arm', 'gain_percent', 'low', 'high']] + [
    [point.size, label, *tables.ends(point.gain)]
    for label, points in lines.items()
    for point in points
  ]


def draw(lines: Mapping[str, Sequence[Point]], unit: str) -> figures.Figure:
  """Gain against size, a line an arm, with intervals where they are known.

  Args:
    lines: see `across`.
    unit: of the sizes.
  """
  figure = figures.Figure(layout='constrained')
  axes = figure.subplots()
  styles = palette.styles(lines)
  for label, points in lines.items():
    half_P = [p.gain.half_width or 0.0 for p in points]
    axes.errorbar(
      [p.size for p in points],
      [p.gain.mean for p in points],
      yerr=np.array(half_P),
      capsize=3,
      label=palette.plain(label),
      **styles[label],
    )
  axes.axhline(0, color='grey', linewidth=1)
  axes.set_xscale('log')
  sizes = sorted({point.size for points in lines.values() for point in points})
  axes.set_xticks(sizes)
  axes.xaxis.set_major_formatter(ticker.EngFormatter(places=1))
  axes.xaxis.set_minor_locator(ticker.NullLocator())
  axes.set_xlabel(unit)
  axes.set_ylabel('gain in perplexity, %')
  axes.spines[['top', 'right']].set_visible(False)
  axes.grid(alpha=0.3)
  palette.add_legend(figure, axes.containers)
  return figure
