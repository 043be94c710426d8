"""The picture of gain against rarity shows what the strata say."""

import math

import numpy as np
import pytest

from leviathan.report import compare
from leviathan.report import document
from leviathan.report import groups
from leviathan.report import palette
from leviathan.report import strata


def test_gains_and_their_ends_are_drawn_from_rare_to_frequent():
  def stratum(name, tokens, gains):
    nats = (math.log(1 - gain / 100) for gain in gains)
    return compare.Stratum(name, tokens, *nats)

  nothing = compare.Stratum('never seen', 0, *[math.nan] * 3)
  unsure = compare.Stratum('frequent', 9, math.log(1.1), math.nan, math.nan)
  figure = strata.draw(
    {
      # A low end in nats is a high one in percent.
      'lev': [nothing, stratum('rare', 5, (20, 30, 5)), unsure],
      'albert': [nothing, stratum('rare', 5, (0, 1, -1)), unsure],
    },
    'input',
    palette.styles(['tied', 'lev', 'albert']),
  )
  (axes,) = figure.axes
  names = [text.get_text() for text in axes.get_xticklabels()]
  assert names == ['rare', 'frequent']
  lev, albert = axes.containers
  assert (lev.get_label(), albert.get_label()) == ('lev', 'albert')
  # As in the report's other pictures, also of what this one leaves out.
  assert lev.lines[0].get_color() == palette.COLOURS[1]
  assert lev.lines[0].get_ydata() == pytest.approx([20, -10])
  low, high = lev.lines[2][0].get_segments()[0][:, 1]
  assert (low, high) == pytest.approx((5, 30))
  # Beside one another, around the name of the bin.
  x = [line.lines[0].get_xdata()[0] for line in (lev, albert)]
  assert x[0] < 0 < x[1] < 0.2


def drawn(labels):
  stratum = compare.Stratum('rare', 5, -0.1, -0.2, 0.1)
  found = {label: [stratum, stratum] for label in labels}
  return strata.draw(found, 'input', palette.styles(labels))


def test_many_variants_stay_in_their_bin_and_beside_their_legend():
  figure = drawn([f'variant {i}' for i in range(25)])
  (axes,) = figure.axes
  x_VB = np.array([line.lines[0].get_xdata() for line in axes.containers])
  assert (np.abs(x_VB - [0, 1]) < 0.5).all()
  figure.draw_without_rendering()
  (legend,) = figure.legends
  assert not legend.get_window_extent().overlaps(axes.get_window_extent())
  assert axes.get_window_extent().height > 200


def test_a_legend_names_all_as_they_are_called():
  figure = drawn(['_lev', r'$\frac$'])
  figure.draw_without_rendering()
  texts = [text.get_text().strip() for text in figure.legends[0].get_texts()]
  assert texts == ['_lev', r'\$\frac\$']


def test_the_file_of_differences_has_a_row_a_number(make_run):
  rare = {1: (3.0, 7)}
  found = groups.read(
    [
      str(make_run('a', strata=rare)),
      str(make_run('b', seed=1, strata=rare)),
      str(make_run('c', 'lev', strata={1: (2.5, 7)})),
      str(make_run('d', 'lev', seed=1, strata={1: (2.5, 7)})),
    ]
  )
  (section,) = strata.sections(found, 'a')
  tables = {p.name: p for p in section.parts if isinstance(p, document.Table)}
  header, *rows = tables['strata_predicted_difference_a'].values
  (row,) = (dict(zip(header, r, strict=True)) for r in rows if r[1])
  assert row['arm'] == 'lev' and row['tokens_scored'] == 7
  assert row['nats_per_token'] == pytest.approx(-0.5)
  assert row['nats_low'] <= -0.5 <= row['nats_high']
  assert row['gain_percent'] == pytest.approx(100 * (1 - math.exp(-0.5)))
  assert row['gain_low'] <= row['gain_percent'] <= row['gain_high']
  header, *rows = tables['strata_predicted_nats_a'].values
  assert header[-2:] == ['tied', 'lev']
  assert [r[1:] for r in rows if r[2]] == [[7, 7, 3.0, 2.5]]
