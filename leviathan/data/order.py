"""Which row comes when: a pure function of a position, never of a history.

Nothing here holds state, so any number of processes and threads may ask for any
positions, in any order, and a run goes on from a number alone.
"""

import functools
import hashlib

import numpy as np

ROUNDS = 6
# Positions after which a mixture has kept to its weights exactly.
PERIOD = 10_000


def permute(indices: np.ndarray, length: int, seed: int) -> np.ndarray:
  """Where a pseudo-random permutation of [0, length) sends `indices`.

  A Feistel network on the smallest even number of bits that holds `length`;
  what falls outside goes through again until it falls inside, which keeps it a
  permutation. It costs no memory, whatever the length.

  Args:
    indices: integers in [0, length), of any shape.
    length: 1 or more.
    seed: 64 bits; another one gives another permutation.

  Returns:
    int64, of the shape of `indices`.
  """
  half = np.uint64(max(1, ((length - 1).bit_length() + 1) // 2))
  mask = (np.uint64(1) << half) - np.uint64(1)
  keys = _mix(np.uint64(seed) + np.arange(ROUNDS, dtype=np.uint64) * _GOLDEN)
  values = np.asarray(indices).astype(np.uint64)
  outside = np.ones(values.shape, bool)
  while outside.any():
    left, right = values[outside] >> half, values[outside] & mask
    for key in keys:
      left, right = right, left ^ (_mix(right ^ key) & mask)
    values[outside] = (left << half) | right
    outside = values >= length
  return values.astype(np.int64)


def rows(
  positions: np.ndarray, length: int, identity: str, stored_first: bool
) -> np.ndarray:
  """The rows at some positions of endless epochs over `length` rows.

  Args:
    positions: integers from 0.
    length: rows of the dataset.
    identity: names the order; another one gives another.
    stored_first: the rows are stored in a random order already, so the first
      epoch reads them as they lie, from a row of its own on.

  Returns:
    int64 indices, of the shape of `positions`.
  """
  epochs, indices = np.divmod(np.asarray(positions, np.int64), length)
  found = np.empty_like(indices)
  for epoch in np.unique(epochs):
    seed, here = _seed(f'{identity}:{epoch}'), epochs == epoch
    if stored_first and epoch == 0:
      found[here] = (indices[here] + seed % length) % length
    else:
      found[here] = permute(indices[here], length, seed)
  return found


def mix(
  positions: np.ndarray, weights: tuple[float, ...], identity: str
) -> tuple[np.ndarray, np.ndarray]:
  """Deals positions to sources: each has its share of every PERIOD of them.

  Args:
    positions: integers from 0.
    weights: of the sources; only their proportions count.
    identity: names the order within a period.

  Returns:
    sources, which one each position goes to, and places, how many positions
    before it went to the same one; int64, of the shape of `positions`.
  """
  shares = quotas(weights)
  periods, slots = np.divmod(np.asarray(positions, np.int64), PERIOD)
  sources, places = np.empty_like(slots), np.empty_like(slots)
  for period in np.unique(periods):
    here = periods == period
    source_of_slot, place_of_slot = _deal(shares, f'{identity}:{period}')
    sources[here] = source_of_slot[slots[here]]
    places[here] = place_of_slot[slots[here]]
  return sources, places + periods * np.array(shares)[sources]


def quotas(weights: tuple[float, ...]) -> tuple[int, ...]:
  """How many of PERIOD positions each source has; the sum is PERIOD.

  Rounded down, and what is left goes to the largest remainders.
  """
  exact = np.array(weights, np.float64) / sum(weights) * PERIOD
  shares = np.floor(exact).astype(np.int64)
  largest = np.argsort(shares - exact, kind='stable')
  shares[largest[: PERIOD - shares.sum()]] += 1
  return tuple(shares.tolist())


@functools.lru_cache(maxsize=4)
def _deal(
  shares: tuple[int, ...], identity: str
) -> tuple[np.ndarray, np.ndarray]:
  """The source of each slot of a period, and its place among that source's."""
  dealt = np.repeat(np.arange(len(shares)), shares)
  sources = dealt[permute(np.arange(PERIOD), PERIOD, _seed(identity))]
  places = np.empty(PERIOD, np.int64)
  for source, share in enumerate(shares):
    places[sources == source] = np.arange(share)
  return sources, places


def _seed(identity: str) -> int:
  """64 bits of a name's hash."""
  return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], 'big')


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
  """The finalizer of splitmix64: every bit of `x` changes half of the bits."""
  with np.errstate(over='ignore'):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
