"""Ways to order tokens, each with what it is good for."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np

from leviathan import digits
from leviathan import errors
from leviathan.data import records
from leviathan.data import tokenizer as tokenizers
from leviathan.token_order import cooccurrence
from leviathan.token_order import distributional
from leviathan.token_order import files

DIGITS = 3  # J of the paper's layers; blocks of tokens are made for it.
Tick = Callable[[int], Any]


def make(
  datasets: Sequence[records.Dataset],
  method: str,
  seed: int = 0,
  tick: Tick = lambda tokens: None,
) -> files.TokenOrder:
  """Orders the tokens of some datasets, which are read in full where needed.

  Args:
    datasets: of one tokenizer.
    method: one of files.METHODS.
    seed: of `random`.
    tick: called with the tokens read since the last call.

  Raises:
    DataError: the datasets have several tokenizers.
  """
  found = {dataset.manifest.tokenizer.sha256 for dataset in datasets}
  if len(found) > 1:
    raise errors.DataError(
      f'{datasets[0].directory} and others have {len(found)} tokenizers; give '
      'datasets of one'
    )
  ids = _MAKERS[method](datasets, seed, tick)
  rank_V = np.empty(len(ids), np.int32)
  rank_V[ids] = np.arange(len(ids))
  return files.TokenOrder(
    rank_V,
    files.Origin(
      method=method,
      seed=seed,
      tokenizer_sha256=found.pop(),
      dataset_fingerprints=tuple(d.manifest.fingerprint for d in datasets),
    ),
  )


def spelling(tokenizer: tokenizers.Tokenizer) -> np.ndarray:
  """The token ids by their bytes.

  As in a dictionary: case and the space before a word count only among tokens
  that are otherwise spelled alike.
  """

  def key(token_id):
    exact = tokenizer.token_bytes(token_id)
    word = exact.removeprefix(b' ')
    folded = word.decode(errors='surrogateescape').casefold()
    return folded.encode(errors='surrogateescape'), word, exact, token_id

  return np.array(sorted(range(tokenizer.vocab_size), key=key))


def _tokenizer(datasets, seed, tick) -> np.ndarray:
  """The ids as they are: the paper's."""
  del seed, tick
  return np.arange(datasets[0].manifest.tokenizer.vocab_size)


def _random(datasets, seed, tick) -> np.ndarray:
  """A control: what an order without any sense is worth."""
  del tick
  vocab_size = datasets[0].manifest.tokenizer.vocab_size
  return np.random.default_rng(seed).permutation(vocab_size)


def _bytes(datasets, seed, tick) -> np.ndarray:
  """By spelling."""
  del seed, tick
  return spelling(datasets[0].tokenizer())


def _frequency(datasets, seed, tick) -> np.ndarray:
  """The most frequent first."""
  del seed, tick
  return np.argsort(-_counts(datasets), kind='stable')


def _distributional(datasets, seed, tick) -> np.ndarray:
  """By use."""
  del seed
  counts_V = _counts(datasets)
  counts = cooccurrence.count(datasets, counts_V, tick)
  spelled_V = spelling(datasets[0].tokenizer())
  base = digits.base(len(counts_V), DIGITS)
  return distributional.order(counts, counts_V, spelled_V, base)


def _counts(datasets: Sequence[records.Dataset]) -> np.ndarray:
  return np.sum([dataset.unigram_counts() for dataset in datasets], axis=0)


_MAKERS = {
  'tokenizer': _tokenizer,
  'random': _random,
  'bytes': _bytes,
  'frequency': _frequency,
  'distributional': _distributional,
}
