"""Tokens alike in use lie together."""

import itertools

import numpy as np
import pytest
import scipy.sparse

from leviathan.token_order import distributional

GROUPS, SIZE = 4, 8


@pytest.fixture(scope='module')
def counts():
  """Tokens of four groups, shuffled: each group has contexts of its own."""
  rng = np.random.default_rng(0)
  group_V = rng.permutation(np.repeat(np.arange(GROUPS), SIZE))
  mean_VX = np.where(group_V[:, None] == np.arange(40) % GROUPS, 30.0, 1.0)
  return group_V, scipy.sparse.csr_array(rng.poisson(mean_VX))


def test_groups_of_one_use_lie_together(counts):
  group_V, table = counts
  counts_V = np.full(len(group_V), 1000)
  spelled = np.random.default_rng(1).permutation(len(group_V))
  ids = distributional.order(table, counts_V, spelled, SIZE)
  assert sorted(ids) == list(range(len(group_V)))
  assert len(list(itertools.groupby(group_V[ids]))) == GROUPS


def test_a_rare_token_lies_beside_the_one_spelled_alike(counts):
  group_V, table = counts
  counts_V = np.full(len(group_V), 1000)
  # The last token of the spelling is too rare; the one before it is not.
  spelled = np.random.default_rng(1).permutation(len(group_V))
  rare, neighbour = spelled[-1], spelled[-2]
  counts_V[rare] = distributional.MIN_COUNT - 1
  ids = distributional.order(table, counts_V, spelled, SIZE).tolist()
  assert ids.index(rare) - ids.index(neighbour) == 1


def test_without_frequent_tokens_spelling_is_all_there_is(counts):
  _, table = counts
  spelled = np.random.default_rng(1).permutation(GROUPS * SIZE)
  ids = distributional.order(table, np.zeros(GROUPS * SIZE), spelled, SIZE)
  np.testing.assert_array_equal(ids, spelled)


def test_points_on_a_line_come_in_its_order():
  places = np.random.default_rng(0).permutation(37)
  line = np.outer(places, [1.0, -2.0, 0.5])
  found = places[distributional.bisect(line, 4)].tolist()
  assert found in (sorted(places), sorted(places, reverse=True))


def test_points_on_a_curve_come_in_its_order():
  """Though the principal axis is another one in each part, of either sign."""
  angle = np.random.default_rng(0).permutation(200) * np.pi / 200
  curve = np.stack([np.cos(angle), np.sin(angle)], axis=1)
  steps = np.diff(angle[distributional.bisect(curve, 7)])
  assert (steps > 0).all() or (steps < 0).all()


@pytest.mark.parametrize(
  'count, base, cut',
  [
    (17, 4, 16),
    (16, 4, 8),
    (33, 4, 16),
    (3, 26, 2),
    (4, 26, 2),
    (700, 26, 676),
  ],
)
def test_cuts_fall_where_a_digit_changes(count, base, cut):
  assert distributional._cut(count, base) == cut


def test_groups_as_large_as_blocks_fill_blocks():
  group_V = np.random.default_rng(0).permutation(np.repeat(np.arange(9), 9))
  points = np.random.default_rng(1).normal(size=(9, 5))[group_V]
  found = group_V[distributional.bisect(points, 9)].reshape(9, 9)
  assert (found == found[:, :1]).all()


def test_equal_points_stay_as_they_came():
  rng = np.random.default_rng(0)
  group_V = rng.integers(0, 40, 2000)
  # A third, and sums of it, have no exact mean.
  points = (rng.normal(size=(40, 8)) / 3)[group_V]
  found = distributional.bisect(points, 13)
  for group in range(40):
    assert (np.diff(found[group_V[found] == group]) > 0).all()


def test_more_points_than_dimensions_and_fewer_have_one_axis():
  points = np.random.default_rng(0).normal(size=(5, 5)) * [9, 3, 1, 1, 1]
  by_columns = distributional._principal_axis(points)
  wide = np.concatenate([points, np.zeros((5, 1))], axis=1)
  by_rows = distributional._principal_axis(wide)[:5]
  by_rows /= np.linalg.norm(by_rows)
  assert abs(by_columns @ by_rows) == pytest.approx(1)


def test_groups_without_a_common_context_are_ordered_alike_each_time():
  """A table of low rank, where a solver begins again with random numbers."""
  table = scipy.sparse.csr_array(np.kron(np.eye(3), np.full((40, 10), 5)))
  first, second = (distributional.vectors(table) for _ in range(2))
  np.testing.assert_array_equal(first, second)


def test_tokens_all_used_alike_are_ordered_by_their_spelling():
  table = scipy.sparse.csr_array(np.outer(np.arange(1, 13), np.arange(1, 5)))
  spelled = np.random.default_rng(0).permutation(12)
  ids = distributional.order(table, np.full(12, 100), spelled, 3)
  np.testing.assert_array_equal(ids, spelled)


def test_counts_are_left_as_they_are(counts):
  table = counts[1].copy()
  distributional.vectors(table)
  assert abs(table - counts[1]).nnz == 0 and table.nnz == counts[1].nnz


def test_mutual_information_is_that_of_the_formula():
  table = scipy.sparse.csr_array(np.array([[8, 0], [1, 3]]))
  found = distributional._ppmi(table).toarray()
  expected = np.log([[8 * 12 / (8 * 9), 1], [1, 3 * 12 / (4 * 3)]])
  np.testing.assert_allclose(found, expected)
