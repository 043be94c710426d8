"""Perplexity of a prepared dataset, every token scored exactly once."""

import math
from typing import Any

from leviathan import metrics


def summary(
  sums: metrics.Sums, dataset_tokens: int, dataset_bytes: int
) -> dict[str, Any]:
  """The figures of one dataset.

  Args:
    sums: nll in nats and tokens scored, by class of any kind.
    dataset_tokens: how many tokens the dataset has, the one that closes a
      document included.
    dataset_bytes: UTF-8 bytes of the dataset's texts.

  Returns:
    nats_per_token, perplexity, bits_per_byte (which does not depend on the
    tokenizer), scored_tokens.
  """
  tokens = float(sums.tokens.sum())
  mean = float(sums.nll.sum()) / tokens
  return {
    **metrics.from_mean(mean),
    'bits_per_byte': mean / math.log(2) * dataset_tokens / dataset_bytes,
    'scored_tokens': int(tokens),
  }
