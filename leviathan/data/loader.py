"""Batches in an order that is a pure function of (fingerprint, seed, step).

Rows are put into batches first and dealt to processes then, so that a step has
the same rows for any number of processes, and the step is all there is to save.
"""

from collections.abc import Iterator
import hashlib

import grain
import numpy as np

from leviathan import arrays
from leviathan import errors
from leviathan.data import records

# Threads share the interpreter: more of them than this only wait for it. The
# buffer counts batches, hence is small.
_READ = grain.ReadOptions(num_threads=4, prefetch_buffer_size=16)


def train_batches(
  dataset: records.Dataset,
  *,
  batch_size: int,
  seed: int,
  start_step: int = 0,
  process_index: int = 0,
  process_count: int = 1,
) -> Iterator[arrays.Batch]:
  """The training batches of one process, without end.

  Step s has positions [s * batch_size, (s + 1) * batch_size) of the epochs put
  one after another, each shuffled anew; process p has the p-th part of them.

  Args:
    dataset: source of rows.
    batch_size: B of all processes together, in sequences.
    seed: of the order.
    start_step: the step of the first batch.
    process_index: p, in [0, process_count).
    process_count: P.

  Returns:
    Batches of (batch_size // process_count, seq_len).

  Raises:
    ConfigError: batch_size is not positive or not divisible by process_count.
    DataError: the dataset has fewer sequences than one batch.
  """
  local = _local_size(batch_size, process_count)
  if len(dataset) < batch_size:
    raise errors.DataError(
      f'dataset {dataset.directory} has {len(dataset)} sequences, fewer than '
      f'config.data.batch_size={batch_size}; lower it or prepare more data'
    )
  order = f'{dataset.manifest.fingerprint}:{seed}'.encode()
  shuffle_seed = int.from_bytes(hashlib.sha256(order).digest()[:4], 'big')
  batches = (
    grain.MapDataset.source(dataset)
    .seed(shuffle_seed)
    .shuffle()
    .repeat()
    .batch(local, drop_remainder=True)
  )
  first = start_step * process_count + process_index
  return iter(batches[first::process_count].map(_shift).to_iter_dataset(_READ))


def eval_batches(
  dataset: records.Dataset,
  *,
  batch_size: int,
  process_index: int = 0,
  process_count: int = 1,
) -> Iterator[arrays.Batch]:
  """One process's part of a single pass over the dataset, in order.

  Every sequence is in one batch of one process. The last batch is filled up
  with rows of weight 0, so that all processes get as many batches as each
  other, all of the same shape.

  Args and ConfigError: see train_batches.
  """
  local = _local_size(batch_size, process_count)
  batches = grain.MapDataset.source(_Filled(dataset, batch_size)).batch(local)
  return iter(
    batches[process_index::process_count].map(_shift).to_iter_dataset(_READ)
  )


class _Filled:
  """A dataset filled up with rows of PAD to a multiple of `multiple` rows."""

  def __init__(self, dataset: records.Dataset, multiple: int):
    self._dataset = dataset
    self._length = -(-len(dataset) // multiple) * multiple

  def __len__(self) -> int:
    return self._length

  def __getitem__(self, index: int) -> np.ndarray:
    if index < len(self._dataset):
      return self._dataset[index]
    row = self._dataset.manifest.seq_len + 1
    return np.full(row, records.PAD, np.uint32)


def _shift(rows: np.ndarray) -> arrays.Batch:
  """From rows (B, seq_len + 1) with PAD to inputs, targets and weights."""
  padding = rows == records.PAD
  ids = np.where(padding, 0, rows).astype(np.int32)
  return arrays.Batch(
    inputs_BL=ids[:, :-1],
    targets_BL=ids[:, 1:],
    weights_BL=(~padding[:, 1:]).astype(np.float32),
  )


def _local_size(batch_size: int, process_count: int) -> int:
  """Sequences of one process in a batch."""
  if batch_size < 1 or batch_size % process_count:
    raise errors.ConfigError(
      f'data.batch_size={batch_size} sequences cannot be dealt to '
      f'{process_count} processes; give a multiple of {process_count}'
    )
  return batch_size // process_count
