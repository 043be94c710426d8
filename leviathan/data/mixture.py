"""What is trained on: one dataset, or several dealt together by weight."""

from collections.abc import Sequence
import hashlib
import json

import numpy as np

from leviathan import errors
from leviathan.data import manifest as manifest_lib
from leviathan.data import order
from leviathan.data import records


class Mixture:
  """Endless epochs over each of some datasets.

  Of every order.PERIOD rows each dataset has its share, to the row.

  Attributes:
    datasets: of one tokenizer and seq_len.
    weights: their shares, by number of rows.
    seq_len: L.
    sequences: rows of all datasets together.
    fingerprint: hash of the datasets' and their shares; of one dataset, its.
  """

  def __init__(
    self,
    datasets: Sequence[records.Dataset],
    weights: Sequence[float] = (),
  ):
    """See the class; without weights, shares are as the datasets' sizes.

    Raises:
      ConfigError: the weights do not suit the datasets.
      DataError: the datasets differ in tokenizer or seq_len.
    """
    self.datasets = tuple(datasets)
    self.weights = tuple(weights) or tuple(map(float, map(len, datasets)))
    self.seq_len = datasets[0].manifest.seq_len
    self.sequences = sum(map(len, datasets))
    _check_weights(weights, self.weights, self.datasets)
    for dataset in datasets:
      _check_alike(datasets[0], dataset)
    prints = [dataset.manifest.fingerprint for dataset in datasets]
    self.fingerprint = prints[0]
    if len(prints) > 1:
      rows = json.dumps([prints, order.quotas(self.weights)])
      self.fingerprint = hashlib.sha256(rows.encode()).hexdigest()

  @property
  def tokenizer(self) -> manifest_lib.Tokenizer:
    """What made the ids of all datasets."""
    return self.datasets[0].manifest.tokenizer

  def read(self, positions: np.ndarray, seed: int) -> np.ndarray:
    """The rows at some positions of the order that `seed` names.

    Args:
      positions: (n,) integers from 0, without end.
      seed: of the order.

    Returns:
      uint32 (n, seq_len + 1), see records.Dataset.read.
    """
    sources, places = order.mix(
      positions, self.weights, f'{self.fingerprint}:{seed}'
    )
    rows = np.empty((len(sources), self.seq_len + 1), records.ID)
    for i, dataset in enumerate(self.datasets):
      here = sources == i
      indices = order.rows(
        places[here],
        len(dataset),
        f'{dataset.manifest.fingerprint}:{seed}',
        dataset.manifest.shuffle_seed is not None,
      )
      rows[here] = dataset.read(indices)
    return rows

  def unigram_counts(self) -> np.ndarray:
    """int64 counts_V: how often each id is predicted, shares considered.

    Of as many tokens as the datasets hold together.
    """
    tokens = sum(dataset.manifest.tokens for dataset in self.datasets)
    shares = np.array(order.quotas(self.weights)) / order.PERIOD
    counts_V = sum(
      dataset.unigram_counts() * (share * tokens / dataset.manifest.tokens)
      for dataset, share in zip(self.datasets, shares, strict=True)
    )
    return np.rint(counts_V).astype(np.int64)


def _check_weights(
  given: Sequence[float],
  weights: tuple[float, ...],
  datasets: tuple[records.Dataset, ...],
) -> None:
  """Raises ConfigError unless there is a usable weight for each dataset."""
  if len(weights) != len(datasets):
    raise errors.ConfigError(
      f'config.data.weights={weights} are {len(weights)}, but '
      f'config.data.train names {len(datasets)} datasets; give one each, or '
      'none'
    )
  if not all(0 < weight < np.inf for weight in weights):
    raise errors.ConfigError(
      f'config.data.weights={weights}; give positive numbers'
    )
  for share, dataset in zip(order.quotas(weights), datasets, strict=True):
    if not share:
      cause = f'config.data.weights={given}' if given else "the datasets' sizes"
      raise errors.ConfigError(
        f'{cause} leave {dataset.directory} less than one row of '
        f'{order.PERIOD}; give it more by config.data.weights, or leave it out'
      )


def _check_alike(first: records.Dataset, other: records.Dataset) -> None:
  """Raises DataError unless two datasets can be mixed."""
  for name in ('tokenizer', 'seq_len'):
    ours, theirs = (getattr(d.manifest, name) for d in (first, other))
    if ours != theirs:
      raise errors.DataError(
        f'{first.directory} and {other.directory} differ in {name} ({ours} '
        f'against {theirs}); prepare them alike'
      )
