"""Batches in an order that is a pure function of (fingerprint, seed, position).

Rows are put into batches first and dealt to processes then, so that a batch has
the same rows for any number of processes, and the number of rows so far is all
there is to save.
"""

from collections.abc import Iterator
import sys
from typing import Any

import grain
import numpy as np

from leviathan import arrays
from leviathan import errors
from leviathan.data import mixture as mixture_lib
from leviathan.data import records

# Threads share the interpreter: more of them than this only wait for it. The
# buffer counts batches, hence is small.
_READ = grain.ReadOptions(num_threads=4, prefetch_buffer_size=16)


def train_batches(
  mixture: mixture_lib.Mixture,
  *,
  batch_size: int,
  seed: int,
  start: int = 0,
  process_index: int = 0,
  process_count: int = 1,
  document_mask: bool = False,
) -> Iterator[arrays.Batch]:
  """The training batches of one process, without end.

  Batch i has the positions [start + i * batch_size, start + (i + 1) *
  batch_size) of the mixture's order; process p has the p-th part of them.

  Args:
    mixture: source of rows.
    batch_size: B of all processes together, in sequences.
    seed: of the order.
    start: position of the first batch, in sequences.
    process_index: p, in [0, process_count).
    process_count: P.
    document_mask: whether to tell the documents of a row apart.

  Returns:
    Batches of (batch_size // process_count, seq_len).

  Raises:
    ConfigError: batch_size is not positive or not divisible by process_count.
    DataError: the mixture has fewer sequences than one batch.
  """
  local = _local_size(batch_size, process_count)
  if mixture.sequences < batch_size:
    names = ', '.join(str(dataset.directory) for dataset in mixture.datasets)
    raise errors.DataError(
      f'dataset {names} has {mixture.sequences} sequences, fewer than '
      f'config.data.batch_size={batch_size}; lower it or prepare more data'
    )

  def read(i):
    first = start + i * local
    return mixture.read(np.arange(first, first + local), seed)

  eos_id = mixture.tokenizer.eos_id if document_mask else None
  endless = _Batches(read, sys.maxsize)
  return _iterate(endless, process_index, process_count, eos_id)


def eval_batches(
  dataset: records.Dataset,
  *,
  batch_size: int,
  process_index: int = 0,
  process_count: int = 1,
  document_mask: bool = False,
) -> Iterator[arrays.Batch]:
  """One process's part of a single pass over the dataset, in order.

  Every sequence is in one batch of one process. The last batch is filled up
  with rows of weight 0, so that all processes get as many batches as each
  other, all of the same shape.

  Args and ConfigError: see train_batches.
  """
  local = _local_size(batch_size, process_count)

  def read(i):
    rows = np.full(
      (local, dataset.manifest.seq_len + 1), records.PAD, records.ID
    )
    there = np.arange(i * local, min((i + 1) * local, len(dataset)))
    rows[: len(there)] = dataset.read(there)
    return rows

  eos_id = dataset.manifest.tokenizer.eos_id if document_mask else None
  count = -(-len(dataset) // batch_size) * process_count
  return _iterate(_Batches(read, count), process_index, process_count, eos_id)


class _Batches:
  """A Grain source whose elements are whole batches of rows.

  Grain spends some 12 us on each element, as much as a row costs in all.
  """

  def __init__(self, read, length: int):
    self._read, self._length = read, length

  def __len__(self) -> int:
    return self._length

  def __getitem__(self, index: Any) -> np.ndarray:
    return self._read(int(index))


def _iterate(
  batches: _Batches, process_index: int, process_count: int, eos_id: int | None
) -> Iterator[arrays.Batch]:
  """Every `process_count`-th batch, read ahead in threads."""
  mine = grain.MapDataset.source(batches)[process_index::process_count]
  shifted = mine.map(lambda rows: _shift(rows, eos_id))
  return iter(shifted.to_iter_dataset(_READ))


def _shift(rows: np.ndarray, eos_id: int | None) -> arrays.Batch:
  """From rows (B, seq_len + 1) with PAD to inputs, targets and weights.

  With an EOS id, also to segments: an EOS begins the document that follows it.
  """
  ids = rows.view(np.int32)  # PAD is -1.
  targets_BL = ids[:, 1:]
  inputs_BL = np.maximum(ids[:, :-1], 0)
  segments_BL = None
  if eos_id is not None:
    segments_BL = np.cumsum(inputs_BL == eos_id, axis=1, dtype=np.int32)
  return arrays.Batch(
    inputs_BL=inputs_BL,
    targets_BL=np.maximum(targets_BL, 0),
    weights_BL=(targets_BL >= 0).astype(np.float32),
    segments_BL=segments_BL,
  )


def _local_size(batch_size: int, process_count: int) -> int:
  """Sequences of one process in a batch."""
  if batch_size < 1 or batch_size % process_count:
    raise errors.ConfigError(
      f'data.batch_size={batch_size} sequences cannot be dealt to '
      f'{process_count} processes; give a multiple of {process_count}'
    )
  return batch_size // process_count
