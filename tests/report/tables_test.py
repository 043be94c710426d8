"""Figures as text."""

import math

from leviathan.report import replicates
from leviathan.report import tables


def test_an_interval_is_said_where_it_is_known():
  known, alone = replicates.Estimate(1, 0.25), replicates.Estimate(-1, None)
  assert tables.said(known, '+.2f') == '+1.00 +- 0.25'
  assert tables.said(alone, '.1f') == '-1.0'
  around = replicates.Interval(1, 0.5, 2)
  assert tables.said(around, '+.1f') == '+1.0 [+0.5, +2.0]'
  nowhere = replicates.Interval(1, math.nan, math.nan)
  assert tables.said(nowhere, '.1f') == '1.0'


def test_the_ends_of_an_interval_are_nan_where_there_is_none():
  assert tables.ends(replicates.Estimate(1, 0.25)) == [1, 0.75, 1.25]
  assert tables.ends(replicates.Interval(1, 0.5, 2)) == [1, 0.5, 2]
  mean, *others = tables.ends(replicates.Estimate(1, None))
  assert mean == 1 and all(map(math.isnan, others))


def test_a_change_has_its_sign():
  assert tables.change(208_372_352, 206_840_320) == '+0.74 %'
  assert tables.change(0.5, 1) == '-50.00 %'
  assert tables.change(1, 0) == tables.change(math.nan, 1) == '-'


def test_names_of_files_have_no_other_characters():
  assert tables.name('loss', 'set/part one', 'V=7') == 'loss_set_part_one_V_7'
