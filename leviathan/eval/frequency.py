"""Perplexity by how frequent a token was in the training data.

Twice: by the predicted token, which the head has to find, and by the input
token that it is predicted after, whose embedding is read.
"""

from collections.abc import Sequence
import hashlib
from typing import Any

import numpy as np

from leviathan import errors
from leviathan import metrics
from leviathan.eval import bootstrap
from leviathan.eval import perplexity
from leviathan.eval import score

# A bin a decade of training frequency, count / total; the first is for tokens
# that training never showed.
NEVER = 'never seen'
EDGES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
NAMES = (
  NEVER,
  f'below {EDGES[0]:.0e}',
  *(
    f'{low:.0e} to {high:.0e}'
    for low, high in zip(EDGES, EDGES[1:], strict=False)
  ),
  f'above {EDGES[-1]:.0e}',
)
# {name of a list of rows in the figures: what its tokens are to a prediction}
SIDES = {'bins': 'predicted', 'input_bins': 'input'}


def bin_of_token(counts_V: np.ndarray) -> np.ndarray:
  """Each token's bin, an index into NAMES.

  Args:
    counts_V: int64 counts in the training data.

  Returns:
    int32 array of shape (V,). A frequency on an edge belongs to the bin above.
  """
  frequency_V = counts_V / max(counts_V.sum(), 1)
  bin_V = 1 + np.searchsorted(EDGES, frequency_V, side='right')
  return np.where(counts_V == 0, 0, bin_V).astype(np.int32)


def summary(
  scored: score.Scored, trained_V: np.ndarray, scored_V: np.ndarray
) -> dict[str, Any]:
  """The figures of one dataset.

  Args:
    scored: the dataset's rows, by `bin_of_token(trained_V)`.
    trained_V: int64 counts in the training data.
    scored_V: int64 counts in the dataset. Whatever is predicted is an input as
      well: the stream begins with the EOS that it ends with.

  Returns:
    `trained_on_counts_sha256` of the little-endian int64 counts; `bins`, a row
    a bin by predicted token, and `input_bins`, by input token. A row's `types`
    are the tokens of the vocabulary in the bin, `types_scored` those of them
    that the dataset has. A bin without tokens has no more than these; one that
    is in a single sequence has no interval.
  """
  bin_V = bin_of_token(trained_V)
  types_QX = np.stack(
    [
      np.bincount(bins, minlength=len(NAMES))
      for bins in (bin_V, bin_V[scored_V > 0])
    ],
    axis=1,
  )
  counts = np.ascontiguousarray(trained_V, '<i8')
  return {
    'trained_on_counts_sha256': hashlib.sha256(counts.tobytes()).hexdigest(),
    'bins': _rows(scored.predicted, types_QX),
    'input_bins': _rows(scored.input, types_QX),
  }


def _rows(sums: metrics.Sums, types_QX: np.ndarray) -> list[dict[str, Any]]:
  rows = []
  spreads = bootstrap.intervals(sums.nll, sums.tokens)
  for q, name in enumerate(NAMES):
    tokens = int(sums.tokens[q].sum())
    row: dict[str, Any] = {
      'frequency': name,
      'types': int(types_QX[q, 0]),
      'types_scored': int(types_QX[q, 1]),
      'tokens': tokens,
    }
    if tokens:
      row |= metrics.from_mean(float(sums.nll[q].sum()) / tokens)
      row |= perplexity.spread(row['perplexity'], spreads[q])
    rows.append(row)
  return rows


def samples(scored: score.Scored) -> list[dict[str, Any]]:
  """What each sequence cost, by bin: a line a sequence, as `compare` reads."""

  def part(sums, i):
    return {
      'nats': sums.nll[:, i].tolist(),
      'tokens': sums.tokens[:, i].astype(int).tolist(),
    }

  return [
    {
      'sequence': i,
      'predicted': part(scored.predicted, i),
      'input': part(scored.input, i),
    }
    for i in range(scored.predicted.nll.shape[1])
  ]


def compare(
  samples_a: Sequence[dict[str, Any]], samples_b: Sequence[dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
  """Two models on the same tokens, b less a, paired by sequence.

  Args:
    samples_a: what `samples` gave of one model, as it is or from JSON.
    samples_b: of the other.

  Returns:
    `bins` and `input_bins` as in `summary`, and `total`, which is one such row:
    with `tokens`, `nats_per_token_difference` and its 95 % interval,
    `nats_per_token_difference_interval`, and `perplexity_ratio_percent`, of b
    to a. A bin without tokens has nothing but these; one that is in a single
    sequence has no interval.

  Raises:
    DataError: they were not scored on the same tokens in the same bins.
  """
  if len(samples_a) != len(samples_b):
    raise errors.DataError(
      f'{len(samples_a)} sequences cannot be paired with {len(samples_b)}; '
      'evaluate both on the same data'
    )
  found = {}
  for name, side in SIDES.items():
    a, b = _sums(samples_a, side), _sums(samples_b, side)
    found[name] = _differences(a, b, side, NAMES)
    if 'total' not in found:
      found['total'] = _differences(_total(a), _total(b), side, ('all',))
  return found


def _total(sums: metrics.Sums) -> metrics.Sums:
  """Over all bins, in one."""
  return metrics.Sums(*(np.sum(x, axis=0, keepdims=True) for x in sums[:2]))


def _sums(lines: Sequence[dict[str, Any]], side: str) -> metrics.Sums:
  """Of shape (bins, sequences); null is nan."""
  parts = [line[side] for line in lines]
  nll_QR, tokens_QR = (
    np.array([p[key] for p in parts], float).reshape(-1, len(NAMES)).T
    for key in ('nats', 'tokens')
  )
  return metrics.Sums(nll_QR, tokens_QR)


def _differences(
  a: metrics.Sums, b: metrics.Sums, side: str, names: Sequence[str]
) -> list[dict[str, Any]]:
  unlike_R = np.any(a.tokens != b.tokens, axis=0)
  if unlike_R.any():
    i = int(unlike_R.argmax())
    theirs, ours = (s.tokens[:, i].astype(int).tolist() for s in (a, b))
    raise errors.DataError(
      f'sequence {i} has {theirs} {side} tokens by bin in one and {ours} in '
      'the other; evaluate both on the same data, with one tokenizer and the '
      'same training counts'
    )
  nll_QR = b.nll - a.nll
  intervals = bootstrap.intervals(nll_QR, a.tokens)
  rows = []
  for name, nll_R, tokens_R, interval in zip(
    names, nll_QR, a.tokens, intervals, strict=True
  ):
    tokens = int(tokens_R.sum())
    row: dict[str, Any] = {'frequency': name, 'tokens': tokens}
    if tokens:
      mean = float(nll_R.sum()) / tokens
      row['nats_per_token_difference'] = mean
      ratio = metrics.from_mean(mean)['perplexity']
      row['perplexity_ratio_percent'] = 100 * ratio
    if interval is not None:
      ends = [interval.low, interval.high]
      row['nats_per_token_difference_interval'] = ends
    rows.append(row)
  return rows
