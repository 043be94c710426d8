"""Counts and entropy against values known by hand."""

import numpy as np
import pytest

from leviathan import errors
from leviathan.data import counts


def test_counts_by_hand():
  counts_V = counts.unigram_counts(np.array([[0, 2], [2, 2]], np.uint32), 4)
  assert counts_V.dtype == np.int64
  np.testing.assert_array_equal(counts_V, [1, 0, 3, 0])


def test_no_ids_count_nothing():
  np.testing.assert_array_equal(counts.unigram_counts(np.array([]), 2), [0, 0])


@pytest.mark.parametrize('bad', [4, -1, 2**32 - 1])
def test_an_id_outside_is_named(bad):
  with pytest.raises(errors.DataError, match=f'id {bad} at position 2'):
    counts.unigram_counts(np.array([0, 3, bad]), 4)


def test_entropy_by_hand():
  assert counts.entropy(np.array([5, 5, 0, 5, 5])) == pytest.approx(np.log(4))
  assert counts.entropy(np.array([2, 1, 1])) == pytest.approx(1.5 * np.log(2))
  assert counts.entropy(np.array([7, 0])) == 0
  assert counts.entropy(np.array([0, 0])) == 0
