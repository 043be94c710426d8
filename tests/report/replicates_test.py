"""Means and intervals over seeds."""

import numpy as np
import pytest

from leviathan.report import replicates


def test_the_interval_is_student_s():
  # Of 1, 2 and 3: s = 1, t(0.975, 2) = 4.3027.
  found = replicates.estimate([1.0, 2.0, 3.0])
  assert found.mean == pytest.approx(2)
  assert found.half_width == pytest.approx(4.302653 / 3**0.5)


def test_one_value_has_no_interval():
  assert replicates.estimate([0.5]) == (0.5, None)


def test_the_interval_holds_the_mean_as_often_as_it_says():
  rng = np.random.default_rng(0)
  held = 0
  for _ in range(4000):
    found = replicates.estimate(rng.normal(size=3))
    held += abs(found.mean) <= found.half_width
  assert held / 4000 == pytest.approx(0.95, abs=0.01)


def test_differences_are_paired():
  found = replicates.difference([1.0, 5.0], [0.5, 4.5])
  assert found == (0.5, 0)


def test_pairs_without_a_partner_are_refused():
  with pytest.raises(ValueError):
    replicates.difference([1.0], [1.0, 2.0])
