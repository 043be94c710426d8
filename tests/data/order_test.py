"""Orders are permutations, exact shares, and the same forever."""

import collections

import numpy as np
import pytest

from leviathan.data import order


@pytest.mark.parametrize('length', [1, 2, 3, 4, 5, 16, 17, 1000, 65_537])
def test_a_permutation_has_each_index_once(length):
  for seed in (0, 1, 2**64 - 1):
    found = order.permute(np.arange(length), length, seed)
    np.testing.assert_array_equal(np.sort(found), np.arange(length))


def test_a_permutation_is_the_same_forever():
  assert order.permute(np.arange(10), 10, 0).tolist() == [
    2,
    0,
    4,
    6,
    3,
    1,
    9,
    5,
    8,
    7,
  ]
  big = order.permute(np.array([0, 1, 10**12 - 1]), 10**12, 1)
  assert big.tolist() == [200703635289, 497881811976, 429815400084]


def test_all_permutations_are_about_as_likely():
  """Chi-squared of the 24 orders of four; 23 degrees, 58 is one in 100,000."""
  drawn = collections.Counter(
    tuple(order.permute(np.arange(4), 4, seed)) for seed in range(24_000)
  )
  assert sum((n - 1000) ** 2 / 1000 for n in drawn.values()) < 58
  assert len(drawn) == 24


def test_neighbours_are_scattered():
  found = order.permute(np.arange(100_000), 100_000, 3)
  assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.02
  assert abs(np.corrcoef(found, np.arange(100_000))[0, 1]) < 0.02


@pytest.mark.parametrize('stored_first', [False, True])
def test_positions_may_be_asked_for_in_any_order(stored_first):
  positions = np.arange(70)
  whole = order.rows(positions, 20, 'a', stored_first)
  for epoch in range(3):
    np.testing.assert_array_equal(
      np.sort(whole[20 * epoch :][:20]), np.arange(20)
    )
  backwards = order.rows(positions[::-1], 20, 'a', stored_first)
  np.testing.assert_array_equal(backwards[::-1], whole)
  alone = [order.rows([p], 20, 'a', stored_first)[0] for p in positions]
  np.testing.assert_array_equal(alone, whole)
  assert (order.rows(positions, 20, 'b', stored_first) != whole).any()


@pytest.mark.parametrize(
  'weights, shares',
  [
    ((1.0,), (10_000,)),
    ((3.0, 1.0), (7500, 2500)),
    ((0.7, 0.2, 0.1), (7000, 2000, 1000)),
    # A third each: the one left over goes to the first of the largest rests.
    ((5.0, 5.0, 5.0), (3334, 3333, 3333)),
    ((1.0, 2.0), (3333, 6667)),
    ((1.0, 1e-9), (10_000, 0)),
  ],
)
def test_shares_by_hand(weights, shares):
  assert order.quotas(weights) == shares


def test_a_mixture_keeps_its_shares_and_numbers_each_source_without_gap():
  weights = (0.5, 0.3, 0.2)
  positions = np.arange(25_000)
  sources, places = order.mix(positions, weights, 'a')
  for start in (0, 10_000):
    period = sources[start:][:10_000]
    assert np.bincount(period).tolist() == [5000, 3000, 2000]
    # Well mixed: in any tenth of a period each has about its share.
    for tenth in np.split(period, 10):
      np.testing.assert_allclose(np.bincount(tenth) / 1000, weights, atol=0.08)
  for source in range(3):
    mine = places[sources == source]
    np.testing.assert_array_equal(mine, np.arange(len(mine)))
  late = order.mix(positions[12_345:], weights, 'a')
  np.testing.assert_array_equal(late, np.stack([sources, places])[:, 12_345:])
  assert (order.mix(positions, weights, 'b')[0] != sources).any()
