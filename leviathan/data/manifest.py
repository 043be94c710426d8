"""`manifest.json`: what a dataset holds and where it came from.

Read strictly: a field that is missing, unknown, of another type or at odds with
the others is refused.
"""

from collections.abc import Sequence
import dataclasses
import hashlib
import json
import types
import typing
from typing import Any

from leviathan import errors

FORMAT_VERSION = 2
FILE = 'manifest.json'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenizer:
  """The tokenizer of a dataset; `file` is its copy in the directory."""

  kind: str
  sha256: str
  vocab_size: int
  eos_id: int
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
    seq_len: L; a row has L + 1 ids.
    shuffle_seed: of the order that the rows are stored in; None where it is
      that of the inputs.
    sequences: rows in all shards.
    tokens: predicted tokens, those of the documents and one EOS for each.
    documents: documents in the stream.
    duplicates: documents whose text an earlier one has had already.
    bytes: of their texts in UTF-8.
    records: what the inputs hold: `documents`, `elsewhere` and `skipped`.
    elsewhere: documents that are in the datasets made together with this one.
    skipped: records that are no document, counted by reason.
    inputs: the files they came from.
    shards: in order.
    fingerprint: hash of all that determines the rows.
  """

  format_version: int
  tokenizer: Tokenizer
  seq_len: int
  shuffle_seed: int | None
  sequences: int
  tokens: int
  documents: int
  duplicates: int
  bytes: int
  records: int
  elsewhere: int
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
      'records': (
        self.records,
        self.documents + self.elsewhere + sum(self.skipped.values()),
      ),
      'fingerprint': (
        self.fingerprint,
        fingerprint(
          self.tokenizer, self.seq_len, self.shuffle_seed, self.shards
        ),
      ),
    }
    for name, (found, wanted) in facts.items():
      if found != wanted:
        raise errors.DataError(
          f'{where}: {name} does not fit the other fields ({found} against '
          f'{wanted}); the file was changed, prepare the dataset again'
        )


def fingerprint(
  tokenizer: Tokenizer,
  seq_len: int,
  shuffle_seed: int | None,
  shards: Sequence[Shard],
) -> str:
  """Hash, in hex, of all that determines the rows and their meaning."""
  rows = [
    FORMAT_VERSION,
    seq_len,
    shuffle_seed,
    tokenizer.vocab_size,
    tokenizer.sha256,
    [shard.sha256 for shard in shards],
  ]
  return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _typed(hint: Any, value: Any, where: str) -> Any:
  """JSON `value` as `hint`: a dataclass, tuple, dict, int, str or `| None`."""
  origin = typing.get_origin(hint)
  if origin is types.UnionType:
    hint = type(None) if value is None else typing.get_args(hint)[0]
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
