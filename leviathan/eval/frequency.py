"""Perplexity by how frequent the predicted token was in the training data."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from leviathan import metrics

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


def summary(sums: metrics.Sums, bin_V: np.ndarray) -> Sequence[dict[str, Any]]:
  """One row a bin; a bin that was not met has n = 0 and no perplexity."""
  rows = []
  for i, name in enumerate(NAMES):
    met = i < len(sums.tokens) and sums.tokens[i] > 0
    row: dict[str, Any] = {
      'frequency': name,
      'types': int(np.sum(bin_V == i)),
      'tokens': int(sums.tokens[i]) if met else 0,
    }
    if met:
      row |= metrics.from_mean(float(sums.nll[i] / sums.tokens[i]))
    rows.append(row)
  return rows
