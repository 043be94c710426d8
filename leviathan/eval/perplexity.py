"""Perplexity of a prepared dataset, every token scored exactly once."""

from collections.abc import Sequence
import math
from typing import Any

import numpy as np

from leviathan import metrics
from leviathan.eval import bootstrap


def summary(
  sums: metrics.Sums, dataset_tokens: int, dataset_bytes: int
) -> dict[str, Any]:
  """The figures of one dataset.

  Args:
    sums: nll in nats and tokens scored, by class and row of any kind.
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


def with_interval(
  sums: metrics.Sums, dataset_tokens: int, dataset_bytes: int
) -> dict[str, Any]:
  """See `summary`; also how sure the mean is, by the bootstrap over rows.

  Args:
    sums: of shape (classes, rows), the rows those of the dataset.
    dataset_tokens: see `summary`.
    dataset_bytes: see `summary`.
  """
  nll_QR, tokens_QR = (
    np.sum(x_QR, axis=0, keepdims=True) for x_QR in (sums.nll, sums.tokens)
  )
  (interval,) = bootstrap.intervals(nll_QR, tokens_QR)
  figures = summary(sums, dataset_tokens, dataset_bytes)
  return figures | spread(figures['perplexity'], interval)


def spread(
  perplexity: float, interval: bootstrap.Interval | None
) -> dict[str, Any]:
  """Standard errors and 95 % intervals as figures; nothing for None.

  Returns:
    nats_per_token_stderr and nats_per_token_interval, of the mean;
    perplexity_stderr, to first order, and perplexity_interval.
  """
  if interval is None:
    return {}
  ends = [interval.low, interval.high]
  return {
    'nats_per_token_stderr': interval.stderr,
    'nats_per_token_interval': ends,
    'perplexity_stderr': perplexity * interval.stderr,
    'perplexity_interval': [metrics.from_mean(x)['perplexity'] for x in ends],
  }


def joined(parts: Sequence[metrics.Sums]) -> metrics.Sums:
  """The rows of several datasets as if they were those of one."""
  return metrics.Sums(
    nll=np.concatenate([sums.nll for sums in parts], axis=1),
    tokens=np.concatenate([sums.tokens for sums in parts], axis=1),
  )


def samples(sums: metrics.Sums) -> list[dict[str, Any]]:
  """What each sequence cost, in all: sums of shape (classes, rows), by row."""
  nll_R, tokens_R = sums.nll.sum(axis=0), sums.tokens.sum(axis=0)
  return [
    {'sequence': i, 'nats': float(nats), 'tokens': int(tokens)}
    for i, (nats, tokens) in enumerate(zip(nll_R, tokens_R, strict=True))
  ]
