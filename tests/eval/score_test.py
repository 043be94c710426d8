"""Scores of a row do not depend on batches, padding or mesh."""

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


LENGTHS = (5, 6, 7, 8, 9, 10, 11)


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


@pytest.fixture(scope='module')
def wanted(config, params):
  """The rows one at a time, on one device."""
  return scored_on(config, params, (1, 1, 1), batch=1)


CLASSES = 5
CLASS_V = np.arange(512, dtype=np.int32) % CLASSES


def scored_on(config, params, mesh, **rows):
  scorer = parts_on(config, mesh).scorer
  batches = ragged(LENGTHS, **rows)
  return scorer(params, batches, CLASS_V, CLASSES).first(len(LENGTHS))


def check_same(found, wanted):
  for ours, theirs in zip(found, wanted, strict=True):
    np.testing.assert_array_equal(ours.tokens, theirs.tokens)
    np.testing.assert_allclose(ours.nll, theirs.nll, rtol=1e-5)


@pytest.mark.parametrize(
  'batch, mesh',
  [
    (2, (1, 1, 1)),
    (4, (1, 1, 1)),
    (8, (1, 1, 1)),
    (8, (1, 8, 1)),
    (8, (2, 2, 2)),
  ],
)
def test_sums_are_the_same_for_every_batch_and_mesh(
  config, params, wanted, batch, mesh
):
  found = scored_on(config, params, mesh, batch=batch)
  check_same(found, wanted)
  for sums in found:
    np.testing.assert_array_equal(sums.tokens.sum(axis=0), LENGTHS)
    assert sums.nll.dtype == sums.tokens.dtype == np.float64


@pytest.mark.parametrize('mesh', [(1, 1, 1), (2, 2, 2)])
def test_sums_are_the_same_in_chunks_and_have_no_z_loss(
  config, params, wanted, mesh
):
  settings = dataclasses.replace(config.train, loss_chunks=8, z_loss=1.0)
  changed = dataclasses.replace(config, train=settings)
  check_same(scored_on(changed, params, mesh, batch=8), wanted)


@pytest.mark.parametrize('mesh', [(1, 8, 1), (2, 2, 2)])
def test_packed_documents_have_the_same_sums_on_every_mesh(
  config, params, mesh
):
  # Larger than at the start, so that what another document says would count.
  larger = {part: params[part] for part in ('blocks', 'head')}
  params = dict(params) | jax.tree.map(lambda p: 20 * p, larger)
  one, many, leaking = (
    scored_on(config, params, where, batch=8, packed=packed)
    for where, packed in (((1, 1, 1), True), (mesh, True), (mesh, False))
  )
  check_same(many, one)
  change = leaking.predicted.nll.sum() / one.predicted.nll.sum() - 1
  assert abs(change) > 1e-3


def test_classes_are_those_of_the_targets_and_of_the_inputs(wanted):
  (batch,) = ragged(LENGTHS, len(LENGTHS))
  for sums, ids_BL in zip(
    wanted, (batch.targets_BL, batch.inputs_BL), strict=True
  ):
    for i, length in enumerate(LENGTHS):
      counts_Q = np.bincount(CLASS_V[ids_BL[i, :length]], minlength=CLASSES)
      np.testing.assert_array_equal(sums.tokens[:, i], counts_Q)
  # The same tokens, differently dealt to classes.
  predicted, input_ = wanted
  np.testing.assert_allclose(
    predicted.nll.sum(axis=0), input_.nll.sum(axis=0), rtol=1e-6
  )
  assert not np.allclose(predicted.nll, input_.nll, rtol=1e-2)


def test_the_number_of_classes_is_that_asked_for(config, params, wanted):
  """Also where the vocabulary has none of the last, or there are no rows."""
  scorer = parts_on(config, (1, 1, 1)).scorer
  one_class_V = np.zeros(512, np.int32)
  sums = scorer(params, ragged(LENGTHS, 8), one_class_V, 3).predicted
  assert sums.nll.shape == (3, 8)
  assert sums.tokens.sum(axis=1).tolist() == [sum(LENGTHS), 0, 0]
  assert sums.tokens[:, len(LENGTHS) :].sum() == 0
  np.testing.assert_allclose(
    sums.nll[0, : len(LENGTHS)], wanted.predicted.nll.sum(axis=0), rtol=1e-5
  )
  assert scorer(params, [], one_class_V, 3).input.nll.shape == (3, 0)


def test_rows_come_in_order_wherever_the_mesh_puts_them(
  config, params, wanted, monkeypatch
):
  """As over hosts whose devices do not follow one another in the mesh."""
  honest = score.to_mesh

  def shuffled(batch, mesh):
    order_B = np.random.default_rng(0).permutation(4)
    return honest(jax.tree.map(lambda x: x[order_B], batch), mesh)

  monkeypatch.setattr(score, 'to_mesh', shuffled)
  check_same(scored_on(config, params, (1, 1, 1), batch=4), wanted)


def test_a_uniform_model_has_the_perplexity_of_its_vocabulary(config, params):
  """With a head of zeros every token has probability 1 / V."""
  flat = dict(params) | {'head': {'out_VD': params['head']['out_VD'] * 0}}
  sums = scored_on(config, flat, (1, 1, 1), batch=4).predicted
  np.testing.assert_allclose(sums.nll, sums.tokens * np.log(512), rtol=1e-6)


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
