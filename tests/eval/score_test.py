"""Scores do not depend on batches, padding or mesh."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from leviathan import arrays
from leviathan import experiment
from leviathan import sharding
from leviathan.data import loader
from leviathan.eval import score


def parts_on(config, mesh):
  count = int(np.prod(mesh))
  names = ('data', 'fsdp', 'tensor')
  made = sharding.make_mesh(
    sharding.MeshConfig(**dict(zip(names, mesh, strict=True))),
    jax.devices()[:count],
  )
  return experiment.Experiment(config, made)


def ragged(lengths, batch, length=16, vocab=512, packed=False):
  """Batches of sequences of these lengths, padded with weight 0.

  Packed, row i is cut into two documents after i + 1 of its tokens.
  """
  rng = np.random.default_rng(0)
  rows = []
  for n in lengths:
    row = np.zeros((3, length))
    row[0, :n] = rng.integers(0, vocab, n)
    row[1, :n] = rng.integers(0, vocab, n)
    row[2, :n] = 1
    rows.append(row)
  while len(rows) % batch:
    rows.append(np.zeros((3, length)))
  for i in range(0, len(rows), batch):
    stacked = np.stack(rows[i : i + batch])
    cuts_B1 = i + 1 + np.arange(batch)[:, None]
    segments_BL = (np.arange(length) >= cuts_B1).astype(np.int32)
    yield arrays.Batch(
      stacked[:, 0].astype(np.int32),
      stacked[:, 1].astype(np.int32),
      stacked[:, 2].astype(np.float32),
      segments_BL if packed else None,
    )


@pytest.fixture(scope='module')
def config(tiny):
  return tiny.config(model__layers=1)


@pytest.fixture(scope='module')
def params(config):
  state = parts_on(config, (1, 1, 1)).fresh_state()
  return jax.tree.map(np.asarray, state.params)


LENGTHS = (5, 6, 7, 8, 9, 10, 11)


@pytest.fixture(scope='module')
def wanted(config, params):
  """(sum of nll, tokens) of one sequence at a time, on one device."""
  return sums_on(config, params, (1, 1, 1), batch=1)


def sums_on(config, params, mesh, **rows):
  parts = parts_on(config, mesh)
  return parts.scorer(params, ragged(LENGTHS, **rows), np.zeros(512, np.int32))


@pytest.mark.parametrize(
  'batch, mesh',
  [(2, (1, 1, 1)), (4, (1, 1, 1)), (8, (1, 8, 1)), (8, (2, 2, 2))],
)
def test_sums_are_the_same_for_every_batch_and_mesh(
  config, params, wanted, batch, mesh
):
  sums = sums_on(config, params, mesh, batch=batch)
  assert sums.tokens == wanted.tokens == sum(LENGTHS)
  np.testing.assert_allclose(sums.nll, wanted.nll, rtol=1e-5)


@pytest.mark.parametrize('mesh', [(1, 1, 1), (2, 2, 2)])
def test_sums_are_the_same_in_chunks_and_have_no_z_loss(
  config, params, wanted, mesh
):
  settings = dataclasses.replace(config.train, loss_chunks=8, z_loss=1.0)
  changed = dataclasses.replace(config, train=settings)
  sums = sums_on(changed, params, mesh, batch=8)
  assert sums.tokens == wanted.tokens
  np.testing.assert_allclose(sums.nll, wanted.nll, rtol=1e-5)


@pytest.mark.parametrize('mesh', [(1, 8, 1), (2, 2, 2)])
def test_packed_documents_have_the_same_sums_on_every_mesh(
  config, params, wanted, mesh
):
  # Larger than at the start, so that what another document says would count.
  larger = {part: params[part] for part in ('blocks', 'head')}
  params = dict(params) | jax.tree.map(lambda p: 20 * p, larger)
  one, many, leaking = (
    sums_on(config, params, where, batch=8, packed=packed)
    for where, packed in (((1, 1, 1), True), (mesh, True), (mesh, False))
  )
  assert one.tokens == many.tokens == wanted.tokens
  np.testing.assert_allclose(many.nll, one.nll, rtol=1e-5)
  assert abs(leaking.nll / one.nll - 1) > 1e-3


def test_classes_add_up_to_the_total(config, params, wanted):
  parts = parts_on(config, (1, 1, 1))
  class_V = np.arange(512, dtype=np.int32) % 5
  sums = parts.scorer(params, ragged(LENGTHS, 4), class_V)
  assert sums.nll.shape == (5,)
  assert sums.tokens.sum() == sum(LENGTHS)
  np.testing.assert_allclose(sums.nll.sum(), wanted.nll[0], rtol=1e-6)
  targets = [b.targets_BL[b.weights_BL > 0] for b in ragged(LENGTHS, 4)]
  counts = np.bincount(np.concatenate(targets) % 5, minlength=5)
  np.testing.assert_array_equal(sums.tokens, counts)


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(config, params):
  """With a head of zeros every token has probability 1 / V."""
  parts = parts_on(config, (1, 1, 1))
  flat = dict(params) | {'head': {'out_VD': params['head']['out_VD'] * 0}}
  sums = parts.scorer(flat, ragged(LENGTHS, 4), np.zeros(512, np.int32))
  np.testing.assert_allclose(sums.nll / sums.tokens, np.log(512), rtol=1e-6)


def test_a_dataset_is_scored_once_token_for_token(tiny, config):
  dataset = experiment.open_dataset(str(tiny.directory / 'validation'), config)
  for batch_size in (1, 8):
    batches = loader.eval_batches(dataset, batch_size=batch_size)
    counted = itertools.chain.from_iterable(
      b.targets_BL[b.weights_BL > 0] for b in batches
    )
    found = np.bincount(np.fromiter(counted, np.int64), minlength=512)
    np.testing.assert_array_equal(found, dataset.unigram_counts())


def test_rows_of_a_batch_lie_over_data_and_fsdp(config):
  parts = parts_on(config, (2, 2, 2))
  batch = score.to_mesh(next(ragged(LENGTHS, 8)), parts.mesh)
  assert {s.data.shape for s in batch.inputs_BL.addressable_shards} == {(2, 16)}
  assert batch.segments_BL is None
