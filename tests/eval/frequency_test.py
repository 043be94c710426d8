"""Strata partition the vocabulary; their sums are the total."""

import hashlib
import json
import math

import numpy as np
import pytest

from leviathan import errors
from leviathan import metrics
from leviathan.eval import frequency
from leviathan.eval import score

BINS = len(frequency.NAMES)


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


def drawn(rows=30, seed=0, empty=(1, 2)):
  """Scored rows with tokens in all bins but the empty ones."""
  rng = np.random.default_rng(seed)

  def sums():
    tokens_QR = rng.integers(1, 9, (BINS, rows)).astype(float)
    tokens_QR[list(empty)] = 0
    return metrics.Sums(tokens_QR * rng.uniform(1, 9, (BINS, rows)), tokens_QR)

  return score.Scored(sums(), sums())


def test_each_token_is_in_exactly_one_bin():
  trained_V = np.random.default_rng(0).zipf(1.2, 5000) - 1
  bin_V = frequency.bin_of_token(trained_V)
  assert bin_V.shape == (5000,)
  assert set(bin_V) <= set(range(BINS))
  figures = frequency.summary(drawn(), trained_V, np.arange(5000) % 2)
  for side in frequency.SIDES:
    types = [row['types'] for row in figures[side]]
    assert sum(types) == 5000 and types[0] == np.sum(trained_V == 0)
    scored = [row['types_scored'] for row in figures[side]]
    assert sum(scored) == 2500 and scored[0] == np.sum(trained_V[1::2] == 0)


def test_the_figures_say_by_which_counts_they_are_binned():
  trained_V = np.array([3, 0, 70000])
  wanted = hashlib.sha256(np.array([3, 0, 70000], '<i8').tobytes()).hexdigest()
  for counts_V in (trained_V, trained_V.astype('>i8')):
    figures = frequency.summary(drawn(), counts_V, np.ones(3))
    assert figures['trained_on_counts_sha256'] == wanted


def test_a_bin_without_tokens_says_so_and_is_not_nan():
  nll_QR, tokens_QR = np.zeros((2, BINS, 2))
  nll_QR[2], tokens_QR[2] = [4.0, 2.0], [1.0, 2.0]
  nll_QR[3], tokens_QR[3] = [0.0, 2.0], [0.0, 2.0]
  sums = metrics.Sums(nll_QR, tokens_QR)
  figures = frequency.summary(
    score.Scored(sums, sums), np.array([1, 1, 0]), np.array([1, 0, 0])
  )
  rows = figures['bins']
  assert rows == figures['input_bins']
  assert rows[0] == {
    'frequency': 'never seen', 'types': 1, 'types_scored': 0, 'tokens': 0,
  }  # fmt: skip
  assert rows[2]['nats_per_token'] == 2.0
  assert rows[2]['perplexity'] == pytest.approx(math.exp(2.0))
  assert rows[2]['nats_per_token_interval'] == pytest.approx([1, 4])
  assert [row['tokens'] for row in rows] == [0, 0, 3, 2, 0, 0, 0]
  # All of its tokens are in one sequence: how sure that is, nobody knows.
  assert rows[3]['nats_per_token'] == 1.0
  assert 'nats_per_token_interval' not in rows[3]


def shifted(scored, by, noise=0.0):
  """What another model gets on the same tokens: worse by so many nats each."""
  rng = np.random.default_rng(5)

  def worse(sums):
    change_QR = by + noise * rng.normal(size=sums.nll.shape)
    return metrics.Sums(sums.nll + sums.tokens * change_QR, sums.tokens)

  return score.Scored(*map(worse, scored))


def test_two_models_are_paired_by_sequence():
  one = drawn()
  other = shifted(one, -0.25, noise=0.05)
  compared = frequency.compare(*map(frequency.samples, (one, other)))
  for name, sums, others in zip(frequency.SIDES, one, other, strict=True):
    for q, row in enumerate(compared[name]):
      tokens = sums.tokens[q].sum()
      assert row['frequency'] == frequency.NAMES[q]
      assert row['tokens'] == tokens
      if q in (1, 2):
        assert set(row) == {'frequency', 'tokens'}
        continue
      mean = (others.nll[q].sum() - sums.nll[q].sum()) / tokens
      assert row['nats_per_token_difference'] == pytest.approx(mean)
      assert row['perplexity_ratio_percent'] == pytest.approx(
        100 * math.exp(mean)
      )
      low, high = row['nats_per_token_difference_interval']
      # Sequences differ by nats from one another, the models by little.
      assert low < mean < high and high - low < 0.1
  (row,) = compared['total']
  first, second = (s.predicted.nll.sum() for s in (one, other))
  tokens = row['tokens']
  assert tokens == one.predicted.tokens.sum()
  mean = (second - first) / tokens
  assert row['nats_per_token_difference'] == pytest.approx(mean)
  low, high = row['nats_per_token_difference_interval']
  assert low < mean < high and high - low < 0.1


def test_b_is_compared_to_a():
  one = drawn()
  lines = [frequency.samples(s) for s in (one, shifted(one, 0.5))]
  (ahead, behind) = (
    frequency.compare(*pair)['bins'][3] for pair in (lines, lines[::-1])
  )
  assert ahead['nats_per_token_difference'] == pytest.approx(0.5)
  assert ahead['nats_per_token_difference_interval'] == pytest.approx([0.5] * 2)
  assert behind['nats_per_token_difference'] == pytest.approx(-0.5)


def test_lines_from_a_file_are_compared_as_they_are():
  one = drawn(4)
  lines = [frequency.samples(s) for s in (one, shifted(one, 0.5))]
  again = json.loads(json.dumps(lines))
  assert again == lines
  again[0][2]['input']['nats'][3] = None  # What is not finite.
  compared = frequency.compare(*again)
  assert compared['bins'] == frequency.compare(*lines)['bins']
  assert math.isnan(compared['input_bins'][3]['nats_per_token_difference'])
  assert compared['input_bins'][4]['nats_per_token_difference'] == (
    pytest.approx(0.5)
  )


def test_models_of_other_tokens_are_not_paired():
  lines, others = (frequency.samples(drawn(4)) for _ in range(2))
  tokens = others[2]['input']['tokens']
  tokens[3], tokens[4] = tokens[3] + 1, tokens[4] - 1
  with pytest.raises(errors.DataError, match='sequence 2 .* input tokens'):
    frequency.compare(lines, others)
  with pytest.raises(errors.DataError, match='4 sequences.*with 3'):
    frequency.compare(lines, lines[:3])
