"""Requests come to the same alone, in any batch and on any mesh."""

from flax import linen as nn
import jax
import numpy as np
import pytest

from leviathan import losses
from leviathan import sharding
from leviathan.eval import requests as requests_lib

LENGTH = 16  # inputs of a pass
VOCAB_SIZE = 512


def silent(n):
  del n


def mesh_of(devices):
  config = sharding.MeshConfig(data=devices, fsdp=1, tensor=1)
  return sharding.make_mesh(config, jax.devices()[:devices])


@pytest.fixture(scope='module')
def model(tiny):
  return tiny.config(model__layers=1).model.make()


@pytest.fixture(scope='module')
def params(model):
  """Large enough that tokens are far from equally likely."""
  ids_BL = np.zeros((1, LENGTH), np.int32)
  boxed = model.init(jax.random.key(0), ids_BL)
  return jax.tree.map(lambda x: 8 * x, nn.unbox(boxed)['params'])


@pytest.fixture(scope='module')
def by_hand(model, params):
  """Of ids[target:end], read from ids[first:end - 1]: nats, likeliest ids."""

  @jax.jit
  def logits_of(ids_BL):
    return model.apply({'params': params}, ids_BL)

  def score(ids, first, target, end):
    ids = ids[first:end]
    padded_BL = np.zeros((1, LENGTH), np.int32)
    padded_BL[0, : len(ids) - 1] = ids[:-1]
    logits_BLV = logits_of(padded_BL)[:, target - first - 1 : len(ids) - 1]
    targets_BL = np.asarray(ids[target - first :], np.int32)[None]
    nll_BL = losses.token_nll(logits_BLV, targets_BL)
    return float(nll_BL.sum()), np.asarray(logits_BLV).argmax(-1)[0].tolist()

  return score


def sequences(lengths, seed=0):
  """Requests of as many ids, which score all but the first two."""
  rng = np.random.default_rng(seed)
  return [
    requests_lib.Request(rng.integers(VOCAB_SIZE, size=n).tolist(), 2)
    for n in lengths
  ]


def test_windows_by_hand():
  def windows(*arguments):
    return [tuple(w) for w in requests_lib.windows(*arguments)]

  # All fits.
  assert windows(5, 1, 4, 4) == [(0, 1, 5)]
  assert windows(5, 3, 8, 8) == [(0, 3, 5)]
  # What is before is cut on the left.
  assert windows(10, 8, 4, 4) == [(5, 8, 10)]
  # Disjoint targets, the last one with as much before it as fits.
  assert windows(10, 1, 4, 4) == [(0, 1, 5), (4, 5, 9), (5, 9, 10)]
  # A stride: the first scores all that fits, the others two at a time.
  assert windows(10, 1, 4, 2) == [(0, 1, 5), (2, 5, 7), (4, 7, 9), (5, 9, 10)]


@pytest.mark.parametrize('stride', [1, 3, 7, 8])
def test_windows_score_each_id_once_and_read_no_more_than_fits(stride):
  for count in range(2, 40):
    for start in range(1, count):
      found = list(requests_lib.windows(count, start, 8, stride))
      scored = [i for w in found for i in range(w.target, w.end)]
      assert scored == list(range(start, count))
      for w in found:
        assert 0 <= w.first < w.target
        assert w.end - 1 - w.first <= 8


def test_windows_are_the_rolling_ones_of_the_harness():
  utils = pytest.importorskip('lm_eval.utils')
  ids = list(range(100, 130))
  for count in range(1, 30):
    theirs = utils.get_rolling_token_windows(ids[:count], 7, 8, 1)
    all_ = [7, *ids[:count]]
    ours = [
      (all_[w.first : w.end - 1], all_[w.target : w.end])
      for w in requests_lib.windows(count + 1, 1, 8, 8)
    ]
    assert ours == list(theirs)


@pytest.mark.parametrize('devices', [1, 8])
@pytest.mark.parametrize('rows', [1, 2, 4, 8])
def test_seven_sequences_in_any_batch_on_any_mesh(
  model, params, by_hand, devices, rows
):
  seven = sequences(range(5, 12))
  score = requests_lib.make(
    model, mesh_of(devices), length=LENGTH, tokens=rows * LENGTH, positions=999
  )
  done = []
  found = score(params, seven, done.append)
  assert [s.tokens for s in found] == [3, 4, 5, 6, 7, 8, 9]
  assert sum(done) == 7
  assert len(done) == -(-7 // max(rows, devices))
  for request, scored in zip(seven, found, strict=True):
    nats, likeliest = by_hand(request.ids, 0, 2, len(request.ids))
    assert scored.nats == pytest.approx(nats, rel=1e-5)
    assert scored.greedy == (likeliest == request.ids[2:])
    assert (scored.windows, scored.truncated) == (1, False)


@pytest.mark.parametrize(
  'tokens, positions, batches',
  # By inputs, by what goes through the head, and one row is the least.
  [(4 * LENGTH, 999, 2), (999, 2 * requests_lib.CHUNK, 4), (1, 1, 7)],
)
def test_batches_are_bounded_by_inputs_and_by_positions(
  model, params, tokens, positions, batches
):
  score = requests_lib.make(
    model, mesh_of(1), length=LENGTH, tokens=tokens, positions=positions
  )
  done = []
  score(params, sequences(range(5, 12)), done.append)
  assert len(done) == batches


def test_an_end_that_is_the_likeliest_is_greedy(model, params, by_hand):
  """Also where it takes more than one chunk, and not when one token differs."""
  ids = [5, 6]
  for _ in range(12):
    ids += by_hand([*ids, 0], 0, len(ids), len(ids) + 1)[1]
  other = [*ids[:-1], (ids[-1] + 1) % VOCAB_SIZE]
  score = requests_lib.make(
    model, mesh_of(1), length=LENGTH, tokens=64, positions=64
  )
  requests = [requests_lib.Request(x, 2) for x in (ids, other)]
  assert [s.greedy for s in score(params, requests, silent)] == [True, False]


@pytest.mark.parametrize('stride', [LENGTH, 5])
def test_what_is_too_long_is_scored_in_windows(model, params, by_hand, stride):
  score = requests_lib.make(
    model, mesh_of(8), length=LENGTH, tokens=64, positions=64
  )
  requests = [
    requests_lib.Request(sequences([60])[0].ids, start) for start in (1, 30, 55)
  ]
  for request, scored in zip(
    requests, score(params, requests, silent, stride), strict=True
  ):
    windows = list(requests_lib.windows(60, request.start, LENGTH, stride))
    nats = sum(by_hand(request.ids, *w)[0] for w in windows)
    assert scored.nats == pytest.approx(nats, rel=1e-5)
    assert scored.tokens == 60 - request.start
    assert scored.windows == len(windows)
    assert scored.truncated


@pytest.mark.parametrize('start', [0, 3])
def test_a_request_with_nothing_to_score_or_nothing_before_it(
  model, params, start
):
  score = requests_lib.make(
    model, mesh_of(1), length=LENGTH, tokens=64, positions=64
  )
  with pytest.raises(ValueError, match=f'request 1: start={start} of 3 ids'):
    requests = [([1, 2, 3], 1), ([1, 2, 3], start)]
    score(params, [requests_lib.Request(*r) for r in requests], silent)


def test_what_a_tick_raises_ends_it(model, params):
  score = requests_lib.make(
    model, mesh_of(1), length=LENGTH, tokens=LENGTH, positions=64
  )
  calls = []

  def tick(n):
    calls.append(n)
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    score(params, sequences(range(5, 12)), tick)
  assert len(calls) == 1
