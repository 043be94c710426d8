"""What is gained by how frequent a token was in training."""

from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any

from matplotlib import figure as figures
import numpy as np

from leviathan import metrics
from leviathan.eval import frequency
from leviathan.report import compare
from leviathan.report import document
from leviathan.report import groups as groups_lib
from leviathan.report import pairing
from leviathan.report import palette
from leviathan.report import tables

Strata = Mapping[str, Sequence[compare.Stratum]]
Styles = Mapping[str, Mapping[str, Any]]
SAID = 4  # Commands in a paragraph.


def sections(groups: groups_lib.Groups, dataset: str) -> list[document.Section]:
  """Loss by frequency, differences to the baselines, and their picture.

  A section a vocabulary: bins of different tokens are not compared.
  """
  found = []
  styles = palette.styles(v.label for v in groups.drawn())
  every = groups.vocabularies()
  for size, of_size in every.items():
    words = (f'V={size}',) if len(every) > 1 else ()
    found.append(
      document.Section(
        f'By training frequency on {", ".join([dataset, *words])}',
        _parts(of_size, dataset, tables.name(dataset, *words), styles),
      )
    )
  return found


def _parts(
  groups: groups_lib.Groups, dataset: str, file: str, styles: Styles
) -> list:
  parts = []
  for side in frequency.SIDES:
    every = [r for variant in groups.variants for r in variant.runs]
    if not all(side in r.results['frequency'][dataset] for r in every):
      continue  # Evaluated by an early version.
    parts += _losses(groups, dataset, side, file)
    if groups.rivals():
      parts += _differences(groups, dataset, side, file, styles)
  if missing := _without_samples(groups, dataset):
    first, others = missing[:SAID], len(missing[SAID:])
    more = f', and so {others} more runs' if others else ''
    parts.append(
      'For intervals over sequences, evaluate again, which writes what each '
      f'sequence cost: {", ".join(first)}{more}.'
    )
  return parts


def _losses(
  groups: groups_lib.Groups, dataset: str, side: str, file: str
) -> list[document.Table]:
  """Of nats and of perplexity: a row a bin, a column a variant."""
  words = frequency.SIDES[side]
  counted = groups.variants[0].first.results['frequency'][dataset][side]
  header = ['training frequency', 'types', 'tokens scored']
  header += [variant.label for variant in groups.variants]
  found = []
  for unit, key, show in (
    ('nats', 'nats_per_token', lambda nats: f'{nats:.4f}'),
    (
      'perplexity',
      'perplexity',
      lambda nats: f'{metrics.from_mean(nats)["perplexity"]:,.2f}',
    ),
  ):
    rows = []
    values: list[list] = [header]
    for i, row in enumerate(counted):
      nats_V = [_mean(v, dataset, side, i) for v in groups.variants]
      counts = [f'{row["types"]:,}', f'{row["tokens"]:,}']
      cells = [
        'n = 0' if math.isnan(nats) and not row['tokens'] else show(nats)
        for nats in nats_V
      ]
      rows.append([row['frequency'], *counts, *cells])
      plain = [metrics.from_mean(nats)[key] for nats in nats_V]
      values.append([row['frequency'], row['types'], row['tokens'], *plain])
    title = 'Nats per token' if unit == 'nats' else 'Perplexity'
    caption = (
      f'{title} by how frequent the {words} token was in training, of the '
      'mean over seeds.'
    )
    name = tables.name('strata', words, unit, file)
    found.append(document.Table(name, caption, header, rows, values))
  return found


def _mean(variant: groups_lib.Variant, dataset: str, side: str, i: int):
  return compare.mean(variant, compare.in_bin(dataset, side, i))


def _differences(
  groups: groups_lib.Groups,
  dataset: str,
  side: str,
  file: str,
  styles: Styles,
) -> list[document.Table | document.Picture]:
  """A row a bin, a column a variant; and the picture."""
  words = frequency.SIDES[side]
  compared = {
    variant.label: compare.strata(variant, baseline, dataset, side)
    for variant, baseline in groups.rivals()
  }
  rows = []
  for bins in zip(*compared.values(), strict=True):
    cells = [_cell(stratum) for stratum in bins]
    rows.append([bins[0].frequency, f'{bins[0].tokens:,}', *cells])
  header = ['training frequency', 'tokens scored', *compared]
  caption = (
    'Difference to the baseline, nats per token, by how frequent the '
    f'{words} token was in training; in brackets its interval, after it the '
    f'gain in perplexity. {pairing.of_rivals(groups.rivals(), dataset)}'
  )
  name = tables.name('strata', words, 'difference', file)
  table = document.Table(name, caption, header, rows, values(compared))
  drawn = {label: bins for label, bins in compared.items() if label in styles}
  if not drawn:
    return [table]
  picture = document.Picture(
    tables.name('strata', words, 'gain', file),
    f'Gain in perplexity over the baseline by how frequent the {words} token '
    'was in training; bars are the intervals of the table.'
    + groups_lib.said_of_drawn(drawn, compared),
    draw(drawn, words, styles),
  )
  return [table, picture]


def values(compared: Strata, what: str = 'arm') -> list[list]:
  """The differences as numbers: a row a bin and label.

  Args:
    compared: {label: its strata}.
    what: the column of the labels.
  """
  header = [
    'training_frequency', 'tokens_scored', what, 'nats_per_token', 'nats_low',
    'nats_high', 'gain_percent', 'gain_low', 'gain_high',
  ]  # fmt: skip
  return [header] + [
    [*stratum[:2], label, *stratum.difference, *stratum.gain]
    for label, strata in compared.items()
    for stratum in strata
  ]


def _cell(stratum: compare.Stratum) -> str:
  """'-0.0312 [-0.0401, -0.0223], +3.1 %'."""
  if not stratum.tokens:
    return 'n = 0'
  nats = tables.said(stratum.difference, '+.4f')
  return f'{nats}, {stratum.gain.mean:+.1f} %'


def draw(compared: Strata, words: str, styles: Styles) -> figures.Figure:
  """Gain against rarity: a line a variant, the rarest bin to the left.

  Args:
    compared: {label: its strata}, all of the same bins.
    words: what the tokens are to a prediction.
    styles: see `palette.styles`.
  """
  figure = figures.Figure(layout='constrained')
  axes = figure.subplots()
  names = [s.frequency for s in next(iter(compared.values())) if s.tokens]
  apart = min(0.08, 0.8 / len(compared))  # All within their bin.
  for i, (label, strata) in enumerate(compared.items()):
    gain_B, low_B, high_B = np.array([s.gain for s in strata if s.tokens]).T
    axes.errorbar(
      # Beside one another, or bars of one bin would hide each other.
      np.arange(len(gain_B)) + apart * (i - (len(compared) - 1) / 2),
      gain_B,
      yerr=(gain_B - low_B, high_B - gain_B),
      capsize=3,
      label=palette.plain(label),
      **styles[label],
    )
  axes.axhline(0, color='grey', linewidth=1)
  axes.set_xticks(range(len(names)), names, rotation=30, ha='right')
  axes.set_xlabel(f'share of the {words} token in training')
  axes.set_ylabel('gain in perplexity, %')
  axes.spines[['top', 'right']].set_visible(False)
  axes.grid(alpha=0.3)
  palette.add_legend(figure, axes.containers)
  return figure


def _without_samples(groups: groups_lib.Groups, dataset: str) -> list[str]:
  """The commands that pairs of one seed lack samples for."""
  lacking = {}
  for variant, baseline in groups.rivals():
    paired = pairing.pairs(variant, baseline)
    for run in paired[0] if len(paired) == 1 else ():
      if dataset not in run.samples:
        lacking[run.path] = (
          f'`leviathan evaluate --workdir={run.path} --step={run.step} '
          '--tasks=frequency`'
        )
  return list(lacking.values())
