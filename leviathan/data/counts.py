"""How often each token occurs, and the entropy of that."""

import numpy as np

from leviathan import errors


def unigram_counts(ids: np.ndarray, vocab_size: int) -> np.ndarray:
  """How often each token id occurs.

  Args:
    ids: integers of any shape, all in [0, vocab_size).
    vocab_size: V.

  Returns:
    int64 counts_V.

  Raises:
    DataError: an id is outside [0, V).
  """
  ids = np.asarray(ids).ravel()
  if ids.size and not 0 <= ids.min() <= ids.max() < vocab_size:
    at = int(((ids < 0) | (ids >= vocab_size)).argmax())
    raise errors.DataError(
      f'token id {ids[at]} at position {at} is outside [0, {vocab_size}); '
      'use the tokenizer that made the ids'
    )
  return np.bincount(ids.astype(np.int64, copy=False), minlength=vocab_size)


def entropy(counts_V: np.ndarray) -> float:
  """Entropy of the unigram distribution, in nats per token.

  It is the loss of the best model that ignores all context, hence the mark that
  a trained one must pass. An empty count has entropy 0.
  """
  seen = counts_V[counts_V > 0].astype(np.float64)
  p = seen / seen.sum()
  return float(-(p * np.log(p)).sum()) + 0.0  # No negative zero.
