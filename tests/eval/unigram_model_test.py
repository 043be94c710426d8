"""A model that says log p of each token, whatever it has read.

Its figures are those of arithmetic, from the counts of a dataset alone.
"""

import math

import jax
import numpy as np
import pytest

from leviathan import experiment
from leviathan import sharding
from leviathan.data import tokenizer as tokenizer_lib
from leviathan.eval import downstream
from leviathan.eval import frequency
from leviathan.eval import perplexity
from leviathan.eval import requests as requests_lib
from leviathan.eval import tasks
from leviathan.eval import wikitext

V = 512


@pytest.fixture(scope='module')
def p_V():
  p_V = 1 / np.arange(1, V + 1) ** 3.0
  return np.random.default_rng(0).permutation(p_V / p_V.sum())


@pytest.fixture(scope='module')
def config(tiny):
  return tiny.config('untied', model__layers=1)


@pytest.fixture(scope='module')
def mesh(config):
  return sharding.make_mesh(config.mesh, jax.devices()[:1])


@pytest.fixture(scope='module')
def dataset(tiny, config):
  return experiment.open_dataset(str(tiny.directory / 'validation'), config)


@pytest.fixture(scope='module')
def params(config, mesh, p_V):
  params = experiment.Experiment(config, mesh).fresh_state().params
  params = jax.tree.map(np.array, params)
  # Layers add nothing to rows of ones, and the last norm leaves them at x.
  params['embedder']['table_VD'][:] = 1
  params['blocks']['attention']['out_HKD'][:] = 0
  params['blocks']['mlp']['down_FD'][:] = 0
  x, width = 1 / np.sqrt(1 + 1e-5), config.model.width
  params['head']['out_VD'][:] = np.log(p_V)[:, None] / (width * x)
  return params


@pytest.fixture(scope='module')
def trained_V(p_V):
  """Training counts as of a corpus of 10 million tokens."""
  return np.round(p_V * 1e7).astype(np.int64)


@pytest.fixture(scope='module')
def scored(config, mesh, params, dataset, trained_V):
  parts = experiment.Experiment(config, mesh)
  bin_V = frequency.bin_of_token(trained_V)
  batches = parts.eval_batches(dataset)
  found = parts.scorer(params, batches, bin_V, len(frequency.NAMES))
  return found.first(len(dataset))


def test_the_perplexity_is_that_of_arithmetic(scored, dataset, p_V):
  counts_V = dataset.unigram_counts()
  found = dataset.manifest
  row = perplexity.with_interval(scored.predicted, found.tokens, found.bytes)
  nats = -np.sum(counts_V * np.log(p_V))
  assert row['scored_tokens'] == counts_V.sum() == found.tokens
  mean = nats / counts_V.sum()
  assert row['nats_per_token'] == pytest.approx(mean, rel=1e-6)
  assert row['perplexity'] == pytest.approx(math.exp(mean), rel=1e-5)
  assert row['bits_per_byte'] == pytest.approx(
    nats / math.log(2) / found.bytes, rel=1e-6
  )


def test_strata_are_those_of_arithmetic(scored, dataset, p_V, trained_V):
  counts_V = dataset.unigram_counts()
  bin_V = frequency.bin_of_token(trained_V)
  rows = frequency.summary(scored, trained_V, counts_V)['bins']
  for q, row in enumerate(rows):
    here_V = np.where(bin_V == q, counts_V, 0)
    assert row['tokens'] == here_V.sum()
    assert row['types'] == np.sum(bin_V == q)
    assert row['types_scored'] == np.count_nonzero(here_V)
    if row['tokens']:
      mean = -np.sum(here_V * np.log(p_V)) / here_V.sum()
      assert row['nats_per_token'] == pytest.approx(mean, rel=1e-6)
      assert row['perplexity'] == pytest.approx(math.exp(mean), rel=1e-5)
  assert sum(row['tokens'] > 0 for row in rows) > 3
  # A probability is the training frequency, so it lies between the edges.
  assert rows[4]['frequency'] == '1e-05 to 1e-04'
  assert 1e4 < rows[4]['perplexity'] < 1e5


def test_strata_by_input_are_the_mean_of_what_follows(
  scored, dataset, p_V, trained_V
):
  counts_V = dataset.unigram_counts()
  bin_V = frequency.bin_of_token(trained_V)
  rows = frequency.summary(scored, trained_V, counts_V)['input_bins']
  ids = dataset.read(np.arange(len(dataset))).view(np.int32)
  before, after = (x[ids[:, 1:] >= 0] for x in (ids[:, :-1], ids[:, 1:]))
  # Each token that is predicted is also read: the EOS at the start for the
  # EOS at the end.
  np.testing.assert_array_equal(np.bincount(before, minlength=V), counts_V)
  for q, row in enumerate(rows):
    here = bin_V[before] == q
    assert row['tokens'] == here.sum()
    if row['tokens']:
      mean = -np.log(p_V[after[here]]).mean()
      assert row['nats_per_token'] == pytest.approx(mean, rel=1e-6)


def test_strata_add_up_to_the_total(scored, dataset, trained_V):
  figures = frequency.summary(scored, trained_V, dataset.unigram_counts())
  found = dataset.manifest
  total = perplexity.summary(scored.predicted, found.tokens, found.bytes)
  for side in frequency.SIDES:
    met = [row for row in figures[side] if row['tokens']]
    nats = sum(row['tokens'] * row['nats_per_token'] for row in met)
    assert sum(row['tokens'] for row in met) == total['scored_tokens']
    assert nats / total['scored_tokens'] == pytest.approx(
      total['nats_per_token'], rel=1e-6
    )


LAMBADA = [
  'Ann took the cup to the kitchen and washed the cup',
  'He had a dog and where he went so went the dog.',
  'They said that it was very cold',
]


def asked(config, mesh, params, pairs):
  """What the model answers to them."""
  requests = [requests_lib.Request(pair.ids, pair.start) for pair in pairs]
  scorer = experiment.Experiment(config, mesh).request_scorer
  return scorer(params, requests, lambda count: None)


def test_lambada_is_that_of_arithmetic(config, mesh, params, tiny, p_V):
  tokenizer = tokenizer_lib.load(f'spm:{tiny.tokenizer}')
  task = tasks.TASKS['lambada']
  items = [task.item({'text': text}, i) for i, text in enumerate(LAMBADA)]
  pairs = downstream.encode(tokenizer, items)
  found, samples = downstream.figures(
    task, items, pairs, asked(config, mesh, params, pairs)
  )
  nats = []
  for text in LAMBADA:
    word = tokenizer.encode(' ' + text.split(' ')[-1])
    assert len(word) > 1
    nats.append(-sum(math.log(p_V[token]) for token in word))
  assert [s['nats'][0] for s in samples] == pytest.approx(nats, rel=1e-6)
  perplexity_ = math.exp(sum(nats) / 3)
  assert found['perplexity'] == pytest.approx(perplexity_, rel=1e-5)
  assert found['acc'] == 0
  stderr = perplexity_ * np.std(nats, ddof=1) / math.sqrt(3)
  assert found['perplexity_stderr'] == pytest.approx(stderr, rel=1e-5)


def test_wikitext_is_that_of_arithmetic(config, mesh, params, tiny, p_V):
  """A page of many windows: each token is scored once."""
  tokenizer = tokenizer_lib.load(f'spm:{tiny.tokenizer}')
  pages = [' = A = \n' + 'some words . ' * 50, ' = B = \nmore of them\n']
  scored = asked(config, mesh, params, wikitext.encode(tokenizer, pages))
  found, _ = wikitext.figures(pages, scored)
  ids = [i for p in pages for i in tokenizer.encode(wikitext.detokenize(p))]
  nats = -np.log(p_V[ids]).sum()
  assert scored[0].windows > 2
  assert found['scored_tokens'] == len(ids)
  for name, units in (
    ('perplexity', len(ids)),
    ('word_perplexity', found['words']),
    ('byte_perplexity', sum(len(page.encode()) for page in pages)),
  ):
    assert found[name] == pytest.approx(math.exp(nats / units), rel=1e-5)
