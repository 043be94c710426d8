"""Sizes and times as people read them."""

import pytest

from leviathan import units


@pytest.mark.parametrize(
  'count, said',
  [
    (16911433728, '16.91 GB'),
    (20e6, '20.00 MB'),
    (-1500, '-1.50 kB'),
    (999, '999 B'),
    (None, 'unknown'),
  ],
)
def test_a_size_has_the_largest_unit_that_it_reaches(count, said):
  assert units.size(count) == said


def test_below_a_second_a_time_is_in_thousandths():
  assert [units.duration(s) for s in (1.234, 0.31)] == ['1.23 s', '310 ms']
