"""The order is a pure function of (fingerprint, seed, position)."""

import itertools
import types

from etils import epath
import grain
import numpy as np
import pytest

from leviathan import errors
from leviathan.data import loader
from leviathan.data import mixture
from leviathan.data import records
from leviathan.data import shards

PAD = records.PAD


class Rows:
  """A dataset in memory whose row i is [i, i + 1, ...]."""

  directory = epath.Path('rows')

  def __init__(self, length, seq_len=3, fingerprint='f', shuffle_seed=None):
    self._length = length
    self.manifest = types.SimpleNamespace(
      seq_len=seq_len,
      fingerprint=fingerprint,
      shuffle_seed=shuffle_seed,
      tokenizer=types.SimpleNamespace(eos_id=7),
    )

  def __len__(self):
    return self._length

  def read(self, indices):
    steps = np.arange(self.manifest.seq_len + 1)
    return (np.asarray(indices)[:, None] + steps).astype(np.uint32)


def train(dataset, steps, **settings):
  """The row numbers of some steps: (steps, local batch)."""
  settings = {'batch_size': 4, 'seed': 0} | settings
  mixed = mixture.Mixture([dataset])
  batches = loader.train_batches(mixed, **settings)
  return np.stack([b.inputs_BL[:, 0] for b in itertools.islice(batches, steps)])


class Padded(Rows):
  """Two rows, the second of which is filled up; EOS is 7."""

  def read(self, indices):
    return np.array([[5, 6, 7, 8], [7, 9, PAD, PAD]], np.uint32)[indices]


def test_the_shift_by_hand():
  (batch,) = loader.eval_batches(Padded(2), batch_size=2)
  np.testing.assert_array_equal(batch.inputs_BL, [[5, 6, 7], [7, 9, 0]])
  np.testing.assert_array_equal(batch.targets_BL, [[6, 7, 8], [9, 0, 0]])
  np.testing.assert_array_equal(batch.weights_BL, [[1, 1, 1], [1, 0, 0]])
  assert [x.dtype for x in batch[:3]] == [np.int32, np.int32, np.float32]
  assert batch.segments_BL is None


def test_a_document_begins_at_its_end_of_sequence():
  (batch,) = loader.eval_batches(Padded(2), batch_size=2, document_mask=True)
  np.testing.assert_array_equal(batch.segments_BL, [[0, 0, 1], [1, 1, 1]])
  assert batch.segments_BL.dtype == np.int32


@pytest.mark.parametrize('length', [4, 10, 12])
def test_each_epoch_has_each_row_once_and_its_own_order(length):
  batch, epochs = 4, 4
  order = train(Rows(length), length * epochs // batch, batch_size=batch)
  by_epoch = order.reshape(epochs, length)
  np.testing.assert_array_equal(
    np.sort(by_epoch), np.tile(np.arange(length), (epochs, 1))
  )
  assert len({tuple(epoch) for epoch in by_epoch}) > 1


def test_the_order_is_the_same_forever():
  # A run that is resumed with a newer version must go on in the same order.
  np.testing.assert_array_equal(
    train(Rows(10), 4), [[7, 1, 8, 3], [6, 5, 9, 2], [4, 0, 1, 8], [2, 0, 3, 9]]
  )


def test_what_is_stored_shuffled_is_first_read_as_it_lies():
  order = train(Rows(10, shuffle_seed=0), 5).ravel()
  first, second = order[:10], order[10:]
  np.testing.assert_array_equal(first, (first[0] + np.arange(10)) % 10)
  np.testing.assert_array_equal(second, train(Rows(10), 5).ravel()[10:])
  begins = {train(Rows(10, shuffle_seed=0), 1, seed=i)[0, 0] for i in range(20)}
  assert len(begins) > 5


def test_a_run_goes_on_with_another_batch_size_without_repeat_or_gap():
  straight = train(Rows(50), 10, batch_size=10).ravel()
  first = train(Rows(50), 4, batch_size=10).ravel()
  second = train(Rows(50), 10, batch_size=6, start=40).ravel()
  np.testing.assert_array_equal(np.concatenate([first, second]), straight)


def test_the_order_depends_on_seed_and_fingerprint_alone():
  order = train(Rows(50), 12)
  np.testing.assert_array_equal(train(Rows(50), 12), order)
  assert (train(Rows(50), 12, seed=1) != order).any()
  assert (train(Rows(50, fingerprint='g'), 12) != order).any()


@pytest.mark.parametrize('start', [1, 2, 3, 5, 60])
@pytest.mark.parametrize('process_count', [1, 2])
def test_a_later_start_equals_skipping(start, process_count):
  settings = {'process_index': process_count - 1}
  settings['process_count'] = process_count
  straight = train(Rows(10), start + 5, **settings)
  late = train(Rows(10), 5, start=4 * start, **settings)
  np.testing.assert_array_equal(late, straight[start:])


@pytest.mark.parametrize('threads', [0, 1, 16])
def test_threads_change_nothing(monkeypatch, threads):
  whole = train(Rows(50), 30)
  options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads)
  monkeypatch.setattr(loader, '_READ', options)
  np.testing.assert_array_equal(train(Rows(50), 30), whole)


@pytest.mark.parametrize('process_count', [2, 4, 8])
def test_processes_share_the_same_global_batches(process_count):
  whole = train(Rows(21), 9, batch_size=8, start=24)
  parts = [
    train(
      Rows(21),
      9,
      batch_size=8,
      start=24,
      process_index=p,
      process_count=process_count,
    )
    for p in range(process_count)
  ]
  np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


@pytest.mark.parametrize('length', [1, 7, 8, 9, 16])
@pytest.mark.parametrize('process_count', [1, 2, 4])
def test_evaluation_has_each_row_once_in_order_on_equal_terms(
  length, process_count
):
  parts = [
    list(
      loader.eval_batches(
        Rows(length, seq_len=2),
        batch_size=8,
        process_index=p,
        process_count=process_count,
      )
    )
    for p in range(process_count)
  ]
  assert {len(part) for part in parts} == {-(-length // 8)}
  assert {b.weights_BL.shape for part in parts for b in part} == {
    (8 // process_count, 2)
  }
  batches = [b for step in zip(*parts, strict=True) for b in step]
  first = np.concatenate([b.inputs_BL[:, 0] for b in batches])
  weights = np.concatenate([b.weights_BL for b in batches])
  np.testing.assert_array_equal(first[:length], np.arange(length))
  assert (weights[:length] == 1).all() and (weights[length:] == 0).all()


@pytest.mark.parametrize(
  'make',
  [
    lambda rows, **k: loader.train_batches(
      mixture.Mixture([rows]), seed=0, **k
    ),
    loader.eval_batches,
  ],
)
def test_wrong_sizes_are_refused_at_once(make):
  with pytest.raises(errors.ConfigError, match='batch_size=6 .* multiple of 4'):
    make(Rows(10), batch_size=6, process_count=4)
  with pytest.raises(errors.ConfigError, match='batch_size=0'):
    make(Rows(10), batch_size=0)


def test_a_dataset_smaller_than_a_batch_is_refused_at_once():
  with pytest.raises(errors.DataError, match='10 sequences, .*batch_size=11'):
    train(Rows(10), 1, batch_size=11)
  assert len(train(Rows(10), 2, batch_size=10)) == 2


def test_a_bad_row_surfaces_as_itself():
  class Bad(Rows):
    def read(self, indices):
      if 3 in indices:
        raise errors.DataError('shard s: record 3')
      return super().read(indices)

  with pytest.raises(errors.DataError) as e:
    list(loader.eval_batches(Bad(6), batch_size=2))
  assert str(e.value) == 'shard s: record 3'


def test_a_real_dataset_loses_no_token(
  make_dataset, tiny, tmp_path, monkeypatch
):
  monkeypatch.setattr(shards, '_SHARD_BYTES', 600)
  make_dataset(
    tmp_path / 'd',
    [f'document {i}\n' for i in range(90)],
    f'spm:{tiny.tokenizer}',
    seq_len=5,
  )
  dataset = records.open_dataset(tmp_path / 'd')
  assert len(dataset.manifest.shards) > 3
  train_batches = loader.train_batches(
    mixture.Mixture([dataset]), batch_size=1, seed=0, start=len(dataset)
  )
  for name, batches in {
    'eval': loader.eval_batches(dataset, batch_size=8),
    'train': itertools.islice(train_batches, len(dataset)),
  }.items():
    counts_V = np.zeros(len(dataset.unigram_counts()), np.int64)
    for batch in batches:
      seen = batch.targets_BL[batch.weights_BL == 1]
      counts_V += np.bincount(seen, minlength=len(counts_V))
    np.testing.assert_array_equal(counts_V, dataset.unigram_counts(), name)
