"""The figures of a dataset, by hand."""

import math

import numpy as np
import pytest

from leviathan import metrics
from leviathan.eval import bootstrap
from leviathan.eval import perplexity


def test_by_hand():
  sums = metrics.Sums(np.array([6.0, 0.0, 4.0]), np.array([3.0, 0.0, 2.0]))
  row = perplexity.summary(sums, dataset_tokens=5, dataset_bytes=20)
  assert row == {
    'nats_per_token': 2.0,
    'perplexity': pytest.approx(math.exp(2.0)),
    # 10 nats in all are 10 / ln 2 bits, over 20 bytes.
    'bits_per_byte': pytest.approx(10 / math.log(2) / 20),
    'scored_tokens': 5,
  }


def two_classes(rows, seed):
  rng = np.random.default_rng(seed)
  tokens_QR = rng.integers(0, 9, (2, rows)).astype(float)
  return metrics.Sums(tokens_QR * rng.uniform(1, 3, (2, rows)), tokens_QR)


def test_the_interval_is_of_the_rows_whatever_their_classes():
  sums = two_classes(40, 0)
  row = perplexity.with_interval(sums, 300, 900)
  assert row.items() >= perplexity.summary(sums, 300, 900).items()
  (wanted,) = bootstrap.intervals(
    sums.nll.sum(axis=0)[None], sums.tokens.sum(axis=0)[None]
  )
  assert row['nats_per_token_stderr'] == pytest.approx(wanted.stderr)
  low, high = row['nats_per_token_interval']
  assert (low, high) == pytest.approx((wanted.low, wanted.high))
  assert low < row['nats_per_token'] < high
  assert row['perplexity_interval'] == pytest.approx(
    [np.exp(low), np.exp(high)]
  )
  assert row['perplexity_stderr'] == pytest.approx(
    np.exp(row['nats_per_token']) * wanted.stderr
  )


def test_one_sequence_has_no_interval():
  assert set(perplexity.with_interval(two_classes(1, 0), 10, 30)) == {
    'nats_per_token', 'perplexity', 'bits_per_byte', 'scored_tokens',
  }  # fmt: skip


def test_a_total_is_of_all_tokens_not_the_mean_of_means():
  one = metrics.Sums(np.array([[2.0, 4.0]]), np.array([[1.0, 2.0]]))
  other = metrics.Sums(np.array([[30.0]]), np.array([[6.0]]))
  row = perplexity.with_interval(perplexity.joined([one, other]), 9, 20)
  assert row['nats_per_token'] == pytest.approx(36 / 9)
  assert row['bits_per_byte'] == pytest.approx(36 / math.log(2) / 20)
  assert row['scored_tokens'] == 9
  low, high = row['nats_per_token_interval']
  assert (low, high) == pytest.approx((2, 5))


def test_samples_add_up_to_the_figures():
  sums = two_classes(40, 1)
  lines = perplexity.samples(sums)
  assert [line['sequence'] for line in lines] == list(range(40))
  row = perplexity.summary(sums, 300, 900)
  tokens = sum(line['tokens'] for line in lines)
  assert tokens == row['scored_tokens']
  nats = sum(line['nats'] for line in lines)
  assert nats / tokens == pytest.approx(row['nats_per_token'], rel=1e-12)
