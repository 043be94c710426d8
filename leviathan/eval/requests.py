"""Scoring token sequences: how likely each one's end is, given its beginning.

Tasks and documents are lists of such requests. They are put into batches of
like length, each filled up at its end, which no token that counts can see; only
the scored positions go through the head. What a request comes to depends on it
alone, not on its neighbours, the batch or the mesh.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import itertools
from typing import Any
from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np

from leviathan import losses
from leviathan import model as model_lib
from leviathan import sharding

# Scored positions of a row that go through the head at a time.
CHUNK = 8
# Lengths of batches: of a row that is longer than the first at most a third is
# filling.
LENGTHS = tuple(n << i for i in range(4, 28) for n in (2, 3))


class Request(NamedTuple):
  """A sequence whose end is to be scored.

  Attributes:
    ids: token ids, in [0, V).
    start: ids[start:] are scored, each exactly once; 1 or more.
  """

  ids: Sequence[int]
  start: int


class Scored(NamedTuple):
  """What a request came to.

  Attributes:
    nats: negative log-likelihood of the scored tokens, summed.
    tokens: how many they are.
    greedy: whether each of them was the likeliest.
    windows: passes through the model that it took.
    truncated: whether some scored token did not see all that is before it.
  """

  nats: float
  tokens: int
  greedy: bool
  windows: int
  truncated: bool


# (params, requests, tick, stride=length) -> [Scored] of each request. `tick(n)`
# is called when n more are done, in all processes equally often; what it raises
# ends it. Of `stride` see `windows`.
Scorer = Callable[..., list[Scored]]


class Window(NamedTuple):
  """One pass: it reads ids[first : end - 1] and scores ids[target:end]."""

  first: int
  target: int
  end: int


def windows(
  count: int, start: int, length: int, stride: int
) -> Iterator[Window]:
  """The passes that score ids[start:count], each id exactly once.

  Each scores `stride` ids and sees as much before as fits; where there is less
  before, the first scores more. A stride of `length` is what
  lm-evaluation-harness does with texts that are too long; a smaller one gives
  more context to each id.

  Args:
    count: ids in all.
    start: first of those to be scored, 1 or more.
    length: inputs of a pass at most.
    stride: from 1 to `length`.
  """
  target, end = start, min(count, max(start + stride, length + 1))
  while target < count:
    yield Window(max(0, end - 1 - length), target, end)
    target, end = end, min(count, end + stride)


def make(
  model: model_lib.Transformer,
  mesh: jax.sharding.Mesh,
  *,
  length: int,
  tokens: int,
  positions: int,
) -> Scorer:
  """A scorer of requests on a mesh.

  Args:
    model: the model.
    mesh: rows of a batch lie over its axes of the batch.
    length: inputs of one pass at most.
    tokens: inputs of a batch, about, over all devices.
    positions: of those that go through the head at a time, about.

  Returns:
    See `Scorer`; it raises ValueError where a request has nothing to score or
    nothing before that.
  """
  score_batch = _batch_scorer(model, mesh)
  rows_of = sharding.batch_sharding(mesh)
  ways = mesh.shape['data'] * mesh.shape['fsdp']

  def to_mesh(array):
    # Every process has the whole batch, and gives its devices their rows.
    return jax.make_array_from_callback(
      array.shape, rows_of, lambda index: array[index]
    )

  def rows_of_batch(size):
    most = min(tokens // size, positions // CHUNK)
    return ways * max(1, most // ways)

  def score(params, requests, tick, stride=length):
    for number, (ids, start) in enumerate(requests):
      if not 1 <= start < len(ids):
        raise ValueError(f'request {number}: start={start} of {len(ids)} ids')
    found = _Results(requests, tick)
    passes = _passes(requests, length, stride)
    with jax.set_mesh(mesh):
      # A batch is read after the next one has been dispatched.
      pending = None
      for size, members in _batches(passes, length, rows_of_batch):
        chunks, *arrays = _fill(requests, members, rows_of_batch(size), size)
        outputs = score_batch(params, *map(to_mesh, arrays), chunks)
        if pending:
          found.add(*pending)
        pending = members, outputs
      if pending:
        found.add(*pending)
    return found.scored()

  return score


def _passes(
  requests: Sequence[Request], length: int, stride: int
) -> list[tuple[int, Window]]:
  """(number of the request, window) of all, those of like shape together."""
  all_ = [
    (number, window)
    for number, (ids, start) in enumerate(requests)
    for window in windows(len(ids), start, length, stride)
  ]
  # The longest first: those take the most memory.
  return sorted(all_, key=lambda p: (_shape(p[1], length), p[0]), reverse=True)


def _batches(
  passes: list[tuple[int, Window]],
  length: int,
  rows_of_batch: Callable[[int], int],
) -> Iterator[tuple[int, list[tuple[int, Window]]]]:
  """(inputs of a row, passes) of each batch, in the order of the passes."""

  def size_of(member):
    return _shape(member[1], length)[0]

  for size, group in itertools.groupby(passes, size_of):
    while members := list(itertools.islice(group, rows_of_batch(size))):
      yield size, members


def _batch_scorer(
  model: model_lib.Transformer, mesh: jax.sharding.Mesh
) -> Callable:
  """(params, ids_BL, places_BP, targets_BP, chunks) -> nll_BP, greedy_BP.

  Row b's scored tokens are targets_BP[b], each predicted at the input that
  places_BP[b] names. Of both outputs the first `chunks` times CHUNK columns are
  made, and whole on every device.
  """
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  vocab_size = model.config.vocab_size

  def score_batch(params, ids_BL, places_BP, targets_BP, chunks):
    features: Any = model.apply({'params': params}, ids_BL, method='features')
    x_BLD, w_VD = features
    w_VD = w_VD.astype(x_BLD.dtype)

    def score_chunk(i, found):
      def cut(x_BP):
        return lax.dynamic_slice_in_dim(x_BP, i * CHUNK, CHUNK, axis=1)

      x_BPD = jnp.take_along_axis(x_BLD, cut(places_BP)[..., None], axis=1)
      logits_BPV = losses.logits(x_BPD, w_VD, vocab_size)
      chunk_BP = cut(targets_BP)
      new = (
        losses.token_nll(logits_BPV, chunk_BP),
        jnp.argmax(logits_BPV, axis=-1) == chunk_BP,
      )
      return tuple(
        lax.dynamic_update_slice_in_dim(old, part, i * CHUNK, axis=1)
        for old, part in zip(found, new, strict=True)
      )

    empty = jnp.zeros(places_BP.shape, jnp.float32)
    return lax.fori_loop(0, chunks, score_chunk, (empty, empty > 0))

  return jax.jit(score_batch, out_shardings=whole)


def _shape(window: Window, length: int) -> tuple[int, int]:
  """(inputs of the batch it goes into, chunks that it needs)."""
  inputs = window.end - 1 - window.first
  size = next(n for n in LENGTHS if n >= inputs)
  return min(size, length), -(-(window.end - window.target) // CHUNK)


def _fill(requests, members, rows, size):
  """(chunks, ids_BL, places_BP, targets_BP) of a batch."""
  ids_BL = np.zeros((rows, size), np.int32)
  places_BP = np.zeros((rows, -(-size // CHUNK) * CHUNK), np.int32)
  targets_BP = np.zeros_like(places_BP)
  most = 0
  for row, (request, (first, target, end)) in enumerate(members):
    ids = np.asarray(requests[request].ids[first:end], np.int32)
    scored = end - target
    ids_BL[row, : len(ids) - 1] = ids[:-1]
    places_BP[row, :scored] = np.arange(target, end) - first - 1
    targets_BP[row, :scored] = ids[target - first :]
    most = max(most, scored)
  return -(-most // CHUNK), ids_BL, places_BP, targets_BP


class _Results:
  """Sums over each request's windows, in float64."""

  def __init__(
    self, requests: Sequence[Request], tick: Callable[[int], object]
  ):
    self._requests, self._tick = requests, tick
    count = len(requests)
    self._nats = np.zeros(count)
    self._greedy = np.ones(count, bool)
    self._windows, self._tokens = np.zeros((2, count), np.int64)
    self._truncated = np.zeros(count, bool)

  def add(self, members, outputs):
    """Adds a batch, for which it waits."""
    nll_BP, greedy_BP = (np.asarray(x) for x in outputs)
    done = 0
    for row, (request, (first, target, end)) in enumerate(members):
      scored = end - target
      self._nats[request] += nll_BP[row, :scored].sum(dtype=np.float64)
      self._greedy[request] &= greedy_BP[row, :scored].all()
      self._windows[request] += 1
      self._tokens[request] += scored
      self._truncated[request] |= first > 0
      ids, start = self._requests[request]
      done += bool(self._tokens[request] == len(ids) - start)
    self._tick(done)

  def scored(self) -> list[Scored]:
    """What each request came to."""
    columns = (
      self._nats,
      self._tokens,
      self._greedy,
      self._windows,
      self._truncated,
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Scored(*row) for row in rows]
