"""The dataset format: rows of token ids in ArrayRecord shards, and a manifest.

The token stream is EOS, document, EOS, document, EOS and so on. Record i is its
tokens [i * seq_len, i * seq_len + seq_len], one more than seq_len: neighbours
share a token, and each token but the first is predicted exactly once. Nothing
is dropped: the last record is filled up with PAD, which is no token id.

A directory holds `manifest.json`, the shards, `unigram_counts.npy` (how often
each id is predicted, so the sum is `tokens`) and a copy of the tokenizer.
"""

import bisect
from collections.abc import Sequence
import contextlib
import dataclasses
import hashlib
import itertools
import json
import operator
import os
import typing
from typing import Any

from array_record.python import array_record_module  # pyright: ignore
from etils import epath
import numpy as np

from leviathan import errors
from leviathan.data import counts
from leviathan.data import outputs
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers

FORMAT_VERSION = 1
PAD = 2**32 - 1
MANIFEST_FILE = 'manifest.json'
COUNTS_FILE = 'unigram_counts.npy'
_ID = np.dtype('<u4')
_SHARD_BYTES = 1 << 30  # Of ids, before compression.
_BLOCK = 1 << 16  # Tokens that are cut into records at once.


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerEntry:
  """The tokenizer of a dataset; `file` is its copy in the directory."""

  kind: str
  sha256: str
  vocab_size: int
  file: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input:
  """A file that was read, and its size in bytes."""

  name: str
  bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shard:
  """A shard file, its number of records and the hash of the file."""

  name: str
  sequences: int
  sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
  """What a dataset holds and where it came from.

  Attributes:
    format_version: of this layout.
    tokenizer: what made the ids.
    seq_len: L; a record has L + 1 ids.
    sequences: records in all shards.
    tokens: predicted tokens, those of the documents and one EOS for each.
    documents: documents in the stream.
    bytes: of their texts in UTF-8.
    skipped: documents that were left out, counted by reason.
    inputs: the files they came from.
    shards: in order.
    fingerprint: hash of all that determines the rows.
  """

  format_version: int
  tokenizer: TokenizerEntry
  seq_len: int
  sequences: int
  tokens: int
  documents: int
  bytes: int
  skipped: dict[str, int]
  inputs: tuple[Input, ...]
  shards: tuple[Shard, ...]
  fingerprint: str

  def to_json(self) -> str:
    """The text of `manifest.json`."""
    return json.dumps(dataclasses.asdict(self), indent=2) + '\n'

  @classmethod
  def from_json(cls, data: str, where: str) -> 'Manifest':
    """The manifest in `data`; `where` names the file in messages.

    Raises:
      DataError: it is of another version, or a field is missing, unknown, of
        another type or at odds with the others.
    """
    try:
      values = json.loads(data)
    except ValueError as e:
      raise errors.DataError(
        f'{where} is not valid JSON ({e}); prepare the dataset again'
      ) from e
    version = values.get('format_version') if isinstance(values, dict) else None
    if version != FORMAT_VERSION:
      raise errors.DataError(
        f'{where}: format_version={version}, but this version of leviathan '
        f'reads {FORMAT_VERSION}; prepare the dataset again'
      )
    manifest = _typed(cls, values, where)
    manifest._check(where)
    return manifest

  def _check(self, where: str) -> None:
    """Raises DataError if the fields contradict one another."""
    facts = {
      'sequences': (
        self.sequences,
        sum(shard.sequences for shard in self.shards),
      ),
      'tokens': (self.sequences, -(-self.tokens // max(self.seq_len, 1))),
      'fingerprint': (
        self.fingerprint,
        fingerprint(self.tokenizer, self.seq_len, self.shards),
      ),
    }
    for name, (found, wanted) in facts.items():
      if found != wanted:
        raise errors.DataError(
          f'{where}: {name} does not fit the other fields ({found} against '
          f'{wanted}); the file was changed, prepare the dataset again'
        )


def fingerprint(
  tokenizer: TokenizerEntry, seq_len: int, shards: Sequence[Shard]
) -> str:
  """Hash, in hex, of all that determines the rows and their meaning."""
  rows = [
    FORMAT_VERSION,
    seq_len,
    tokenizer.vocab_size,
    tokenizer.sha256,
    [shard.sha256 for shard in shards],
  ]
  return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _typed(hint: Any, value: Any, where: str) -> Any:
  """JSON `value` as the type `hint`: a dataclass, tuple, dict, int or str."""
  origin = typing.get_origin(hint)
  if dataclasses.is_dataclass(hint) and isinstance(value, dict):
    hints = typing.get_type_hints(hint)
    if odd := sorted(hints.keys() ^ value.keys()):
      raise errors.DataError(
        f'{where}: {odd[0]!r} is {"unknown" if odd[0] in value else "missing"}'
        '; prepare the dataset again'
      )
    return typing.cast(type, hint)(
      **{k: _typed(hints[k], v, f'{where}: {k}') for k, v in value.items()}
    )
  if origin is tuple and isinstance(value, list):
    inner = typing.get_args(hint)[0]
    return tuple(_typed(inner, v, f'{where}[{i}]') for i, v in enumerate(value))
  if origin is dict and isinstance(value, dict):
    inner = typing.get_args(hint)[1]
    return {k: _typed(inner, v, f'{where}.{k}') for k, v in value.items()}
  if type(value) is hint:
    return value
  raise errors.DataError(
    f'{where}={value!r} is of the wrong type; prepare the dataset again'
  )


class Writer:
  """Writes a dataset, one document at a time, under its name when whole.

  A context manager: leaving it well finishes the dataset, whose description is
  then in `manifest`; leaving it with an error removes what was written. The
  number of documents so far is `documents`.

  Raises, on entering:
    DataError: there is something at `directory` already.
    ConfigError: seq_len is below 1.
  """

  manifest: Manifest

  def __init__(
    self,
    directory: epath.PathLike,
    *,
    tokenizer: tokenizers.Tokenizer,
    seq_len: int,
    inputs: Sequence[epath.Path] = (),
    shard_bytes: int = _SHARD_BYTES,
  ):
    """See the class.

    Args:
      directory: the dataset to make.
      tokenizer: what makes the ids.
      seq_len: L, in tokens.
      inputs: files that the documents come from, for the manifest.
      shard_bytes: size of a shard's ids before compression, at most.
    """
    if seq_len < 1:
      raise errors.ConfigError(f'seq_len={seq_len}; give 1 or more tokens')
    self._directory = directory
    self._tokenizer = tokenizer
    self._seq_len = seq_len
    self._inputs = tuple(
      Input(name=str(path), bytes=path.stat().length) for path in inputs
    )
    self._shard_sequences = max(
      1, shard_bytes // (_ID.itemsize * (seq_len + 1))
    )
    self._counts_V = np.zeros(tokenizer.vocab_size, np.int64)
    self.documents = 0
    self._bytes = 0
    self._skipped = {}
    self._shards: list[int] = []  # Records in each.
    self._shard = None
    self._rest = np.array([tokenizer.eos_id], _ID)  # Begins the next record.
    self._new: list[np.ndarray] = []
    self._new_tokens = 0
    self._stack = contextlib.ExitStack()

  def __enter__(self) -> 'Writer':
    self._temporary = self._stack.enter_context(
      outputs.new_directory(self._directory)
    )
    self._stack.callback(self._close_shard)
    return self

  def __exit__(self, kind, error, trace) -> None:
    with self._stack:  # Cleans up after an error of the caller's and of ours.
      if error is not None:
        raise error
      self._finish()

  def add(self, document: text.Document) -> None:
    """Appends a document and its EOS; one without text is only counted.

    Raises:
      DataError: the tokenizer gives ids that are no token of a text.
    """
    if not document.text:
      self._skipped['empty_text'] = self._skipped.get('empty_text', 0) + 1
      return
    ids = self._tokenizer.encode(document.text)
    if self._tokenizer.eos_id in ids:
      raise errors.DataError(
        f'{document.where}: the tokenizer makes end-of-sequence, id '
        f'{self._tokenizer.eos_id}, out of its text; use another tokenizer'
      )
    self.documents += 1
    self._bytes += len(document.text.encode())
    self._new.append(np.array([*ids, self._tokenizer.eos_id], np.int64))
    self._new_tokens += len(ids) + 1
    if self._new_tokens >= _BLOCK:
      self._cut()

  def _cut(self) -> None:
    """Writes the full records of the tokens so far."""
    new = np.concatenate(self._new)
    self._counts_V += counts.unigram_counts(new, self._tokenizer.vocab_size)
    stream = np.concatenate([self._rest, new.astype(_ID)])
    step = self._seq_len
    full = (len(stream) - 1) // step
    for start in range(0, full * step, step):
      self._write(stream[start : start + step + 1])
    self._rest = stream[full * step :]
    self._new, self._new_tokens = [], 0

  def _write(self, row: np.ndarray) -> None:
    if self._shard is None:
      path = self._temporary / f'{len(self._shards)}'
      self._shard = array_record_module.ArrayRecordWriter(
        os.fspath(path), 'group_size:1'
      )
      self._shards.append(0)
    self._shard.write(row.tobytes())
    self._shards[-1] += 1
    if self._shards[-1] == self._shard_sequences:
      self._close_shard()

  def _close_shard(self) -> None:
    if self._shard is not None:
      self._shard.close()
      self._shard = None

  def _finish(self) -> None:
    """Writes the last record and all that stands beside the shards."""
    if not self.documents:
      skipped = sum(self._skipped.values())
      raise errors.DataError(
        f'dataset {self._directory} would have 0 tokens ({skipped} documents '
        'skipped); give documents with text'
      )
    if self._new:
      self._cut()
    if len(self._rest) > 1:
      row = np.full(self._seq_len + 1, PAD, _ID)
      row[: len(self._rest)] = self._rest
      self._write(row)
    self._close_shard()
    np.save(self._temporary / COUNTS_FILE, self._counts_V)
    file = self._tokenizer.save(self._temporary)
    self.manifest = self._describe(file.name)
    (self._temporary / MANIFEST_FILE).write_text(self.manifest.to_json())

  def _describe(self, tokenizer_file: str) -> Manifest:
    """The manifest; gives the shards their names, now that n is known."""
    tokenizer = TokenizerEntry(
      kind=self._tokenizer.kind,
      sha256=self._tokenizer.sha256,
      vocab_size=self._tokenizer.vocab_size,
      file=tokenizer_file,
    )
    shards = []
    for i, sequences in enumerate(self._shards):
      name = f'shard-{i:05d}-of-{len(self._shards):05d}.array_record'
      path = (self._temporary / f'{i}').rename(self._temporary / name)
      with open(path, 'rb') as file:
        sha256 = hashlib.file_digest(file, 'sha256').hexdigest()
      shards.append(Shard(name=name, sequences=sequences, sha256=sha256))
    return Manifest(
      format_version=FORMAT_VERSION,
      tokenizer=tokenizer,
      seq_len=self._seq_len,
      sequences=sum(self._shards),
      tokens=int(self._counts_V.sum()),
      documents=self.documents,
      bytes=self._bytes,
      skipped=self._skipped,
      inputs=self._inputs,
      shards=tuple(shards),
      fingerprint=fingerprint(tokenizer, self._seq_len, shards),
    )


class Dataset:
  """The rows of a dataset; threads may share it, and it can be pickled."""

  def __init__(self, directory: epath.PathLike):
    """See open_dataset."""
    self.directory = epath.Path(directory).expanduser()
    self.manifest = _read_manifest(self.directory)
    self._readers = [
      _open_shard(self.directory / shard.name, shard.sequences)
      for shard in self.manifest.shards
    ]
    self._ends = list(
      itertools.accumulate(shard.sequences for shard in self.manifest.shards)
    )

  def __reduce__(self):
    return open_dataset, (self.directory,)

  def __len__(self) -> int:
    return self.manifest.sequences

  def __getitem__(self, index: int) -> np.ndarray:
    """Row `index`: uint32, (seq_len + 1,), ids in [0, V) and then PAD, if any.

    Raises:
      IndexError: index is outside [0, len).
      DataError: the record is not such a row; names shard, record and offset.
    """
    index = operator.index(index)
    if not 0 <= index < len(self):
      raise IndexError(f'sequence {index} of {len(self)}')
    shard = bisect.bisect_right(self._ends, index)
    record = index - (self._ends[shard - 1] if shard else 0)
    where = (
      f'{self.directory / self.manifest.shards[shard].name}: record {record}'
    )
    try:
      data = self._readers[shard].read([record])[0]
    except (RuntimeError, ValueError) as e:
      raise errors.DataError(
        f'{where} is damaged ({e}); restore the file or prepare again'
      ) from e
    return self._row(data, where)

  def _row(self, data: bytes, where: str) -> np.ndarray:
    """The ids of one record, checked."""
    size = (self.manifest.seq_len + 1) * _ID.itemsize
    if len(data) != size:
      raise errors.DataError(
        f'{where} has {len(data)} bytes, not {size}; prepare the dataset again'
      )
    row = np.frombuffer(data, _ID)
    valid = row < self.manifest.tokenizer.vocab_size
    if not valid.all():
      offset = int(valid.argmin())
      if (row[offset:] != PAD).any():
        raise errors.DataError(
          f'{where}, offset {offset}: id {row[offset]} is outside [0, '
          f'{self.manifest.tokenizer.vocab_size}); prepare the dataset again'
        )
    return row

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
    path = self.directory / COUNTS_FILE
    try:
      counts_V = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as e:
      raise errors.DataError(
        f'{path} cannot be read ({e}); restore the file or prepare again'
      ) from e
    shape = (self.manifest.tokenizer.vocab_size,)
    if counts_V.shape != shape or counts_V.sum() != self.manifest.tokens:
      raise errors.DataError(
        f'{path} has shape {counts_V.shape} and sum {counts_V.sum()}, not '
        f'{shape} and {self.manifest.tokens}; restore the file'
      )
    return counts_V


def open_dataset(directory: epath.PathLike) -> Dataset:
  """Opens a dataset: its manifest, and the number of records of each shard.

  Raises:
    DataError: there is no dataset, or a part of it is missing or damaged.
  """
  return Dataset(directory)


def _read_manifest(directory: epath.Path) -> Manifest:
  """The manifest, or an error that lists the datasets one level below."""
  path = directory / MANIFEST_FILE
  if not path.is_file():
    below = sorted(p.parent.name for p in directory.glob(f'*/{MANIFEST_FILE}'))
    remedy = f'; give one of {", ".join(below)} in it' if below else ''
    raise errors.DataError(
      f'{directory} is not a dataset, it has no {MANIFEST_FILE}'
      f'{remedy or "; `leviathan prepare` makes one"}'
    )
  return Manifest.from_json(path.read_text(), str(path))


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
