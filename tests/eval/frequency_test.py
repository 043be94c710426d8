"""Strata partition the vocabulary; their sums are the total."""

import math

import numpy as np
import pytest

from leviathan import metrics
from leviathan.eval import frequency


def test_bins_by_hand():
  counts_V = np.zeros(10, np.int64)
  total = 10**9
  counts_V[:9] = [0, 10, 99, 100, 5_000, 50_000, 500_000, 1_000_000, 0]
  counts_V[9] = total - counts_V.sum()
  names = [frequency.NAMES[i] for i in frequency.bin_of_token(counts_V)]
  assert names == [
    'never seen',
    'below 1e-07',
    'below 1e-07',
    '1e-07 to 1e-06',  # An edge belongs to the bin above it.
    '1e-06 to 1e-05',
    '1e-05 to 1e-04',
    '1e-04 to 1e-03',
    'above 1e-03',
    'never seen',
    'above 1e-03',
  ]


def test_each_token_is_in_exactly_one_bin():
  counts_V = np.random.default_rng(0).zipf(1.2, 5000) - 1
  bin_V = frequency.bin_of_token(counts_V)
  assert bin_V.shape == (5000,)
  assert set(bin_V) <= set(range(len(frequency.NAMES)))
  sums = metrics.Sums(
    np.ones(len(frequency.NAMES)), np.ones(len(frequency.NAMES))
  )
  rows = frequency.summary(sums, bin_V)
  assert sum(row['types'] for row in rows) == 5000


def test_a_bin_without_tokens_says_so_and_is_not_nan():
  sums = metrics.Sums(np.array([0.0, 0.0, 6.0]), np.array([0.0, 0.0, 3.0]))
  rows = frequency.summary(sums, np.array([2, 2, 0]))
  assert rows[0] == {'frequency': 'never seen', 'types': 1, 'tokens': 0}
  assert rows[2]['nats_per_token'] == 2.0
  assert rows[2]['perplexity'] == pytest.approx(math.exp(2.0))
  assert [row['tokens'] for row in rows] == [0, 0, 3, 0, 0, 0, 0]
