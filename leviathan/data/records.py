"""The dataset format: rows of token ids in ArrayRecord shards, and a manifest.

The token stream is EOS, document, EOS, document, EOS and so on. Row i of it is
its tokens [i * seq_len, i * seq_len + seq_len], one more than seq_len:
neighbours share a token, and each token but the first is predicted exactly
once. Nothing is dropped: the last row is filled up with PAD, which is no token
id. Rows are stored in the order of the stream or in a shuffled one.

A directory holds `manifest.json`, the shards, `unigram_counts.npy` (how often
each id is predicted, so the sum is `tokens`), `document_hashes.npy` and a copy
of the tokenizer.
"""

from collections.abc import Sequence
import itertools
import operator
import os
import resource
from typing import Any

from array_record.python import array_record_module  # pyright: ignore
from etils import epath
import numpy as np

from leviathan import errors
from leviathan.data import copies
from leviathan.data import manifest as manifest_lib
from leviathan.data import tokenizer as tokenizers

PAD = 2**32 - 1
COUNTS_FILE = 'unigram_counts.npy'
HASHES_FILE = 'document_hashes.npy'
ID = np.dtype('<u4')
# Ids are stored as they are: a compressor would cost more time than all else
# but the tokenizer, and the reader half of its speed.
WRITER_OPTIONS = 'group_size:1,uncompressed'


def write_shard(path: epath.PathLike, rows: Any) -> None:
  """Writes one shard from an iterable of rows, of type ID."""
  writer = array_record_module.ArrayRecordWriter(
    os.fspath(path), WRITER_OPTIONS
  )
  try:
    for row in rows:
      writer.write(row.tobytes())
  finally:
    writer.close()


class Dataset:
  """The rows of a dataset; threads may share it, and it can be pickled."""

  def __init__(self, directory: epath.PathLike):
    """See open_dataset."""
    self.directory = copies.local(epath.Path(directory).expanduser())
    self.manifest = _read_manifest(self.directory)
    _allow_files()
    self._readers = [
      _open_shard(self.directory / shard.name, shard.sequences)
      for shard in self.manifest.shards
    ]
    self._ends = np.array(
      list(itertools.accumulate(s.sequences for s in self.manifest.shards))
    )

  def __reduce__(self):
    return open_dataset, (self.directory,)

  def __len__(self) -> int:
    return self.manifest.sequences

  def __getitem__(self, index: int) -> np.ndarray:
    """Row `index`, an int in [0, len); see `read`."""
    return self.read([operator.index(index)])[0]

  def read(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
    """Some rows: uint32 (n, seq_len + 1), ids in [0, V) and then PAD, if any.

    Raises:
      IndexError: an index is outside [0, len).
      DataError: a record is not such a row; names shard, record and offset.
    """
    indices = np.asarray(indices, np.int64)
    if len(indices) and not 0 <= indices.min() <= indices.max() < len(self):
      raise IndexError(f'sequences {indices} of {len(self)}')
    rows = np.empty((len(indices), self.manifest.seq_len + 1), ID)
    shards = np.searchsorted(self._ends, indices, side='right')
    for shard in np.unique(shards):
      here = np.flatnonzero(shards == shard)
      first = self._ends[shard - 1] if shard else 0
      rows[here] = self._read_shard(shard, (indices[here] - first).tolist())
    return rows

  def _read_shard(self, shard: int, wanted: list[int]) -> np.ndarray:
    """Rows of one shard, checked."""
    path = self.directory / self.manifest.shards[shard].name
    reader = self._readers[shard]
    try:
      found = reader.read(wanted)
    except (RuntimeError, ValueError):
      found = [_read_record(reader, path, record) for record in wanted]
    size = (self.manifest.seq_len + 1) * ID.itemsize
    for record, data in zip(wanted, found, strict=True):
      if len(data) != size:
        raise errors.DataError(
          f'{path}: record {record} has {len(data)} bytes, not {size}; '
          'prepare the dataset again'
        )
    rows = np.frombuffer(b''.join(found), ID).reshape(len(wanted), -1)
    if rows.max() >= self.manifest.tokenizer.vocab_size:
      for record, row in zip(wanted, rows, strict=True):
        self._check_row(row, f'{path}: record {record}')
    return rows

  def _check_row(self, row: np.ndarray, where: str) -> None:
    """Raises DataError unless PAD is all that follows the ids."""
    vocab_size = self.manifest.tokenizer.vocab_size
    offset = int((row >= vocab_size).argmax())
    if row[offset] >= vocab_size and (row[offset:] != PAD).any():
      raise errors.DataError(
        f'{where}, offset {offset}: id {row[offset]} is outside [0, '
        f'{vocab_size}); prepare the dataset again'
      )

  def tokenizer(self) -> tokenizers.Tokenizer:
    """The tokenizer that made the ids, from the copy in the directory.

    Raises:
      DataError: the copy is missing or is another one.
    """
    entry = self.manifest.tokenizer
    tokenizer = tokenizers.load(f'{entry.kind}:{self.directory / entry.file}')
    if tokenizer.sha256 != entry.sha256:
      raise errors.DataError(
        f'{self.directory / entry.file} has sha256 {tokenizer.sha256}, but the '
        f'dataset was made with {entry.sha256}; restore the file'
      )
    return tokenizer

  def unigram_counts(self) -> np.ndarray:
    """int64 counts_V: how often each id is predicted; the sum is `tokens`.

    Raises:
      DataError: the file is missing or does not belong to the manifest.
    """
    counts_V = self._array(COUNTS_FILE, self.manifest.tokenizer.vocab_size)
    if counts_V.sum() != self.manifest.tokens:
      raise errors.DataError(
        f'{self.directory / COUNTS_FILE} has sum {counts_V.sum()}, not '
        f'{self.manifest.tokens}; restore the file'
      )
    return counts_V

  def document_hashes(self) -> np.ndarray:
    """uint64, sorted: 64 bits of the SHA-256 of each document's text.

    Raises:
      DataError: the file is missing or does not belong to the manifest.
    """
    return self._array(HASHES_FILE, self.manifest.documents)

  def _array(self, name: str, length: int) -> np.ndarray:
    path = self.directory / name
    try:
      array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as e:
      raise errors.DataError(
        f'{path} cannot be read ({e}); restore the file or prepare again'
      ) from e
    if array.shape != (length,):
      raise errors.DataError(
        f'{path} has shape {array.shape}, not {(length,)}; restore the file'
      )
    return array


def _allow_files() -> None:
  """Lets this process open as many files as it may; each shard is one."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  if soft != hard:
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _read_record(reader: Any, path: epath.Path, record: int) -> bytes:
  """One record; names it if it is the damaged one."""
  try:
    return reader.read([record])[0]
  except (RuntimeError, ValueError) as e:
    raise errors.DataError(
      f'{path}: record {record} is damaged ({e}); restore the file or prepare '
      'again'
    ) from e


def open_dataset(directory: epath.PathLike) -> Dataset:
  """Opens a dataset: its manifest, and the number of records of each shard.

  Raises:
    DataError: there is no dataset, or a part of it is missing or damaged.
  """
  return Dataset(directory)


def below(directory: epath.PathLike) -> list[str]:
  """Names of what should be datasets, one level below a directory.

  None if it is itself one, or no directory in it is.
  """
  top = epath.Path(directory).expanduser()
  copies.check(top)
  if not top.is_dir() or (top / manifest_lib.FILE).is_file():
    return []
  inside = [p for p in top.iterdir() if p.is_dir() and p.name[0] != '.']
  if not any((p / manifest_lib.FILE).is_file() for p in inside):
    return []
  return sorted(p.name for p in inside)


def shared_texts(
  directories: Sequence[epath.PathLike], others: Sequence[epath.PathLike]
) -> int:
  """How many distinct texts are in both of two lists of datasets."""
  ours, theirs = (
    np.concatenate([open_dataset(d).document_hashes() for d in side])
    for side in (directories, others)
  )
  return len(np.intersect1d(ours, theirs))


def _read_manifest(directory: epath.Path) -> manifest_lib.Manifest:
  """The manifest, or an error that lists the datasets one level below."""
  path = directory / manifest_lib.FILE
  if not path.is_file():
    inside = [
      name
      for name in below(directory)
      if (directory / name / manifest_lib.FILE).is_file()
    ]
    remedy = f'; give one of {", ".join(inside)} in it' if inside else ''
    raise errors.DataError(
      f'{directory} is not a dataset, it has no {manifest_lib.FILE}'
      f'{remedy or "; `leviathan prepare` makes one"}'
    )
  return manifest_lib.Manifest.from_json(path.read_text(), str(path))


def _open_shard(path: epath.Path, sequences: int) -> Any:
  """A reader for random access to a shard of so many records."""
  if not path.is_file():
    raise errors.DataError(
      f'shard {path} is missing; restore it or prepare the dataset again'
    )
  try:
    reader = array_record_module.ArrayRecordReader(
      os.fspath(path), 'readahead_buffer_size:0,max_parallelism:0'
    )
    found = reader.num_records()
  except (RuntimeError, ValueError) as e:
    raise errors.DataError(
      f'shard {path} is damaged ({e}); restore it or prepare the dataset again'
    ) from e
  if found != sequences:
    raise errors.DataError(
      f'shard {path} has {found} records, but the manifest says {sequences}; '
      'restore it or prepare the dataset again'
    )
  return reader
