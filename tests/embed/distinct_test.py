"""The distinct ids of a batch, against NumPy's."""

import jax
import numpy as np
import pytest

from leviathan.embed import distinct

FIND = jax.jit(distinct.find, static_argnums=1)


def check(ids_T, limit):
  found = jax.tree.map(np.asarray, FIND(ids_T, limit))
  unique = np.unique(ids_T)
  assert found.count == len(unique)
  np.testing.assert_array_equal(found.ids_T[: len(unique)], unique)
  # What fills up is an id of the batch: another one's modes might be inf.
  assert np.all(np.isin(found.ids_T, unique))
  assert found.ids_T.shape == ids_T.shape
  np.testing.assert_array_equal(found.ids_T[found.inverse_T], ids_T)


@pytest.mark.parametrize('limit', [1, 7, 1024, 1025, 5000])
def test_random_ids(limit):
  rng = np.random.default_rng(limit)
  check(rng.integers(0, limit, 300).astype(np.int32), limit)


@pytest.mark.parametrize(
  'ids',
  [[5], [3, 3, 3], [2999, 0], [0, 1023, 1024, 2047, 2048, 2999]],
)
def test_one_id_equal_ids_and_both_ends(ids):
  check(np.asarray(ids, np.int32), 3000)


def test_every_id_differs():
  check(np.random.default_rng(0).permutation(3000).astype(np.int32), 3000)
