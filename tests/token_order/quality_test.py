"""How much of the use of tokens their first digits say."""

import numpy as np
import pytest
import scipy.sparse

from leviathan.token_order import quality

FREQUENT_V = np.full(27, 100)
# Three uses, nine tokens each; three digits of base 3.
COUNTS = scipy.sparse.csr_array(np.repeat(np.eye(3, dtype=int) * 5, 9, axis=0))


def test_blocks_of_one_use_say_all():
  assert quality.kept(COUNTS, FREQUENT_V, np.arange(27), 3) == pytest.approx(
    [1, 1]
  )


def test_blocks_that_hold_every_use_alike_say_nothing():
  rank_V = np.arange(27).reshape(3, 9).T.ravel()  # One of each side by side.
  rank_V = np.argsort(rank_V)
  assert quality.kept(COUNTS, FREQUENT_V, rank_V, 3) == pytest.approx(
    [0, 0], abs=1e-12
  )


def test_tokens_count_alike_however_frequent():
  rank_V = np.random.default_rng(0).permutation(27)
  often = COUNTS.multiply(np.arange(1, 28)[:, None]).tocsr()
  assert quality.kept(often, FREQUENT_V, rank_V, 3) == pytest.approx(
    quality.kept(COUNTS, FREQUENT_V, rank_V, 3)
  )


def test_rare_tokens_do_not_count():
  rank_V = np.random.default_rng(0).permutation(27)
  counts_V = np.where(np.arange(27) < 20, 100, 1)
  noisy = COUNTS.toarray()
  noisy[20:] = 7
  assert quality.kept(
    scipy.sparse.csr_array(noisy), counts_V, rank_V, 3
  ) == quality.kept(COUNTS, counts_V, rank_V, 3)
