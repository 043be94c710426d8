"""Intervals of ratios are those of the known case, by row, and reproducible."""

import numpy as np
import pytest

from leviathan.eval import bootstrap


def drawn(rows, seed=0):
  """(nll, tokens) of one class whose rows have a mean of 3 nats a token."""
  rng = np.random.default_rng(seed)
  tokens_R = rng.integers(1, 64, rows).astype(float)
  nll_R = tokens_R * 3 + rng.normal(size=rows) * 8
  return nll_R[None], tokens_R[None]


def linearised(nll_R, tokens_R):
  """The ratio, and its standard error to first order in 1 / rows."""
  ratio = nll_R.sum() / tokens_R.sum()
  residual_R = nll_R - ratio * tokens_R
  return ratio, np.sqrt(np.sum(residual_R**2)) / tokens_R.sum()


# As they are, and in groups of unequal size.
@pytest.mark.parametrize('rows', [2000, 10_001])
def test_many_rows_have_the_normal_interval(rows):
  nll_QR, tokens_QR = drawn(rows)
  (found,) = bootstrap.intervals(nll_QR, tokens_QR)
  ratio, stderr = linearised(nll_QR[0], tokens_QR[0])
  # Of 1000 draws a standard error is known to 1 / sqrt(2000), the ends of the
  # interval to 0.08 of one.
  assert found.stderr == pytest.approx(stderr, rel=0.08)
  assert found.low == pytest.approx(ratio - 1.96 * stderr, abs=0.25 * stderr)
  assert found.high == pytest.approx(ratio + 1.96 * stderr, abs=0.25 * stderr)


def test_the_interval_holds_the_mean_as_often_as_it_says(monkeypatch):
  monkeypatch.setattr(bootstrap, 'RESAMPLES', 300)
  held = 0
  for seed in range(400):
    (found,) = bootstrap.intervals(*drawn(80, seed))
    held += found.low <= 3 <= found.high
  # 380 of 400, give or take 9 for the two standard deviations of such a count.
  assert 0.91 <= held / 400 <= 0.98


def test_rows_are_drawn_and_not_tokens():
  """What is alike within rows is no more than one finding a row."""
  mean_R = np.random.default_rng(0).normal(3, 1, 500)
  short, long = (
    bootstrap.intervals((mean_R * n)[None], np.full((1, 500), n))[0]
    for n in (1, 512)
  )
  assert long.stderr == pytest.approx(short.stderr)
  assert long.stderr == pytest.approx(mean_R.std() / 500**0.5, rel=0.08)


def test_the_same_rows_and_seed_give_the_same_interval():
  rows = drawn(50)
  first = bootstrap.intervals(*rows)
  assert bootstrap.intervals(*rows) == first
  assert bootstrap.intervals(*rows, seed=1) != first


def test_classes_share_the_draws():
  """So a class's interval is its own, whatever else is measured."""
  (nll_QR, tokens_QR), (more_QR, _) = drawn(50), drawn(50, seed=1)
  alone = bootstrap.intervals(nll_QR, tokens_QR)
  both = bootstrap.intervals(
    np.concatenate([more_QR, nll_QR]), np.concatenate([tokens_QR, tokens_QR])
  )
  assert both[1] == pytest.approx(alone[0], rel=1e-12)
  assert both[0] != pytest.approx(alone[0], rel=1e-3)


def test_blocks_do_not_change_what_is_drawn(monkeypatch):
  rows = drawn(50)
  whole = bootstrap.intervals(*rows)
  monkeypatch.setattr(bootstrap, '_BLOCK', 50 * 7)
  assert bootstrap.intervals(*rows)[0] == pytest.approx(whole[0], rel=1e-12)


def test_a_class_in_fewer_than_two_rows_has_none():
  tokens_QR = np.array([[0, 0, 0], [0, 5, 0], [2, 5, 0]])
  nll_QR = np.array([[0, 0, 0], [0, 9.0, 0], [8.0, 5.0, 0]])
  found = bootstrap.intervals(nll_QR, tokens_QR)
  assert found[:2] == [None, None]
  # The draws that have no row of the class are left out: no nan. Of the others
  # the ends have one of its two rows alone.
  assert found[2].low == pytest.approx(1) and found[2].high == pytest.approx(4)


def test_neighbours_among_many_rows_are_still_drawn_apart():
  nll_QR, tokens_QR = np.zeros((2, 1, 3 * bootstrap.GROUPS))
  nll_QR[0, 70:72], tokens_QR[0, 70:72] = (30, 10), (3, 5)
  (found,) = bootstrap.intervals(nll_QR, tokens_QR)
  assert found.low == pytest.approx(2) and found.high == pytest.approx(10)


def test_pairs_are_surer_than_what_they_are_made_of():
  """Two models that differ by 0.1 in each row, whatever the rows are."""
  nll_QR, tokens_QR = drawn(200)
  noise_R = np.random.default_rng(2).normal(size=200)
  other_QR = nll_QR + 0.1 * tokens_QR + noise_R
  (alone,) = bootstrap.intervals(nll_QR, tokens_QR)
  (paired,) = bootstrap.intervals(other_QR - nll_QR, tokens_QR)
  _, stderr = linearised((other_QR - nll_QR)[0], tokens_QR[0])
  assert paired.stderr == pytest.approx(stderr, rel=0.1)
  assert paired.stderr < alone.stderr / 4
  assert paired.low < 0.1 < paired.high


def test_what_is_not_finite_has_no_finite_interval():
  nll_QR, tokens_QR = np.tile(drawn(20), (1, 2, 1))
  nll_QR[0, 3] = np.nan
  lost, kept = bootstrap.intervals(nll_QR, tokens_QR)
  assert np.isnan(lost).all() and np.isfinite(kept).all()
