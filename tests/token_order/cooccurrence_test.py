"""Counts of neighbours, against counting one by one."""

import collections

import numpy as np
import pytest

from leviathan.data import records
from leviathan.token_order import cooccurrence

OFFSETS = (-2, -1, 1, 2)


def by_hand(dataset, counts_V, contexts):
  """{(token, offset, context): times}."""
  frequent = sorted(range(len(counts_V)), key=lambda i: (-counts_V[i], i))
  frequent = set(frequent[:contexts])
  found = collections.Counter()
  for row in dataset.read(np.arange(len(dataset))):
    ids = [int(i) for i in row if i != records.PAD]
    for at, token in enumerate(ids):
      for offset in OFFSETS:
        if 0 <= at + offset < len(ids) and ids[at + offset] in frequent:
          found[token, offset, ids[at + offset]] += 1
  return found


@pytest.fixture(scope='module')
def dataset(tiny):
  return records.open_dataset(tiny.directory / 'validation')


@pytest.mark.parametrize('contexts, block', [(600, 4 << 20), (40, 200)])
def test_every_pair_is_counted_once(dataset, monkeypatch, contexts, block):
  monkeypatch.setattr(cooccurrence, 'CONTEXTS', contexts)
  monkeypatch.setattr(cooccurrence, '_BLOCK', block)
  counts_V = dataset.unigram_counts()
  width = min(contexts, len(counts_V))
  read = []
  table = cooccurrence.count([dataset], counts_V, read.append).tocoo()
  columns = np.argsort(-counts_V, kind='stable')[:width]
  found = {
    (int(row), OFFSETS[column // width], int(columns[column % width])): times
    for row, column, times in zip(table.row, table.col, table.data, strict=True)
  }
  assert found == by_hand(dataset, counts_V, contexts)
  assert sum(read) == len(dataset) * dataset.manifest.seq_len


def test_several_datasets_are_added_up(dataset):
  counts_V = dataset.unigram_counts()
  once = cooccurrence.count([dataset], counts_V)
  twice = cooccurrence.count([dataset, dataset], counts_V)
  assert abs(twice - 2 * once).nnz == 0


def test_a_table_that_grows_too_large_keeps_what_is_frequent(
  dataset, monkeypatch
):
  counts_V = dataset.unigram_counts()
  whole = cooccurrence.count([dataset], counts_V)
  monkeypatch.setattr(cooccurrence, '_MOST_COUNTS', whole.nnz // 4)
  monkeypatch.setattr(cooccurrence, '_BLOCK', 2000)
  kept = cooccurrence.count([dataset], counts_V)
  assert 0 < kept.nnz <= whole.nnz // 4
  assert kept.data.min() > 1
  assert kept.data.max() == whole.data.max()
  # What is left never says more than there was.
  assert (whole - kept).data.min() >= 0
