"""The figures of a dataset, by hand."""

import math

import numpy as np
import pytest

from leviathan import metrics
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
