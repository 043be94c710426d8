"""Several datasets as one: exact shares, one tokenizer, honest refusals."""

import hashlib

import numpy as np
import pytest

from leviathan import errors
from leviathan.data import loader
from leviathan.data import mixture
from leviathan.data import order
from leviathan.data import records


@pytest.fixture(scope='module')
def datasets(make_dataset, tiny, tmp_path_factory):
  """Three datasets, of some 160, 80 and 40 rows."""
  directory = tmp_path_factory.mktemp('mixture')
  for name, count in (('a', 80), ('b', 40), ('c', 20)):
    make_dataset(
      directory / name,
      [hashlib.sha256(f'{name}{i}'.encode()).hexdigest() for i in range(count)],
      f'spm:{tiny.tokenizer}',
      seq_len=16,
    )
  return [records.open_dataset(directory / name) for name in 'abc']


def whose(datasets, rows):
  """Which dataset each row is of, and which row of it; rows are all unlike."""
  known = {
    dataset[i].tobytes(): (d, i)
    for d, dataset in enumerate(datasets)
    for i in range(len(dataset))
  }
  assert len(known) == sum(map(len, datasets))
  return np.array([known[row.tobytes()] for row in rows]).T


def test_shares_are_exact_and_each_dataset_goes_through_its_epochs(datasets):
  mixed = mixture.Mixture(datasets, (0.5, 0.3, 0.2))
  rows = mixed.read(np.arange(order.PERIOD), seed=1)
  sources, indices = whose(datasets, rows)
  assert np.bincount(sources).tolist() == [5000, 3000, 2000]
  for d, dataset in enumerate(datasets):
    mine = indices[sources == d]
    for start in range(0, len(mine) - len(dataset), len(dataset)):
      epoch = mine[start : start + len(dataset)]
      np.testing.assert_array_equal(np.sort(epoch), np.arange(len(dataset)))


def test_each_seed_deals_the_datasets_in_an_order_of_its_own(datasets):
  mixed = mixture.Mixture(datasets, (0.5, 0.3, 0.2))
  one, other = (
    whose(datasets, mixed.read(np.arange(100), seed))[0] for seed in (0, 1)
  )
  assert (one != other).any()


def test_without_weights_shares_are_as_the_sizes(datasets):
  sizes = np.array(list(map(len, datasets)))
  mixed = mixture.Mixture(datasets)
  sources, _ = whose(datasets, mixed.read(np.arange(order.PERIOD), seed=0))
  np.testing.assert_allclose(
    np.bincount(sources), order.PERIOD * sizes / sizes.sum(), atol=1
  )


@pytest.mark.parametrize('process_count', [2, 4, 8])
def test_processes_share_the_same_global_batches(datasets, process_count):
  mixed = mixture.Mixture(datasets, (0.5, 0.3, 0.2))
  settings = {'batch_size': 8, 'seed': 0, 'start': 13}
  whole = next(loader.train_batches(mixed, **settings))
  parts = [
    next(
      loader.train_batches(
        mixed, process_index=p, process_count=process_count, **settings
      )
    )
    for p in range(process_count)
  ]
  np.testing.assert_array_equal(
    np.concatenate([part.inputs_BL for part in parts]), whole.inputs_BL
  )
  positions = np.arange(13, 21)
  np.testing.assert_array_equal(
    whole.inputs_BL, mixed.read(positions, 0)[:, :-1]
  )


def test_the_fingerprint_names_datasets_and_shares(datasets):
  a, b, _ = datasets
  one = mixture.Mixture([a])
  assert one.fingerprint == a.manifest.fingerprint
  found = [
    mixture.Mixture(*args).fingerprint
    for args in (
      ([a, b], (1, 1)),
      ([a, b], (2, 2)),
      ([b, a], (1, 1)),
      ([a, b], (1, 2)),
    )
  ]
  assert found[0] == found[1]
  assert len({*found, one.fingerprint}) == 4


def test_counts_are_those_of_the_shares(datasets):
  a, b, _ = datasets
  mixed = mixture.Mixture([a, b], (3, 1))
  tokens = a.manifest.tokens + b.manifest.tokens
  expected = tokens * (
    0.75 * a.unigram_counts() / a.manifest.tokens
    + 0.25 * b.unigram_counts() / b.manifest.tokens
  )
  np.testing.assert_allclose(mixed.unigram_counts(), expected, atol=0.5)


@pytest.mark.parametrize(
  'weights, message',
  [
    ((1.0,), 'are 1, but config.data.train names 2'),
    ((1.0, 0.0), 'positive numbers'),
    ((1.0, -1.0), 'positive numbers'),
    ((1.0, float('nan')), 'positive numbers'),
    ((1.0, 1e-6), 'less than one row of 10000'),
  ],
)
def test_weights_that_do_not_suit_are_refused(datasets, weights, message):
  with pytest.raises(errors.ConfigError, match=message):
    mixture.Mixture(datasets[:2], weights)


def test_sizes_too_unlike_are_named_as_sizes(datasets):
  class Huge:
    manifest, directory = datasets[1].manifest, datasets[1].directory

    def __len__(self):
      return 10**8

  with pytest.raises(errors.ConfigError, match="the datasets' sizes leave"):
    mixture.Mixture([datasets[0], Huge()])


def test_datasets_that_differ_are_refused(
  datasets, make_dataset, tiny, tmp_path
):
  make_dataset(tmp_path / 'd', ['text'], f'spm:{tiny.tokenizer}', seq_len=8)
  other = records.open_dataset(tmp_path / 'd')
  with pytest.raises(errors.DataError, match='differ in seq_len .16 against 8'):
    mixture.Mixture([datasets[0], other])
