"""Documents out of text files, and what could not be one, by its reason.

A .txt file is one document; in the other kinds each line is a JSON object. A
line ends at LF only, since JSON strings may hold other separators as they are;
a line of white space holds no record.

The records of some files, read one after another, are cut into blocks by where
in the uncompressed bytes they begin, so that workers can share a file of any
kind: each reads all of it, and parses the blocks that are its own.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import json
import operator
from typing import Any
from typing import NamedTuple

from leviathan import errors
from leviathan.data import files

MAX_RECORD_BYTES = 64 << 20
_SUBSET_BYTES = 80  # Thrice as long where each is escaped.
_KEYS = 8  # So many are listed in a message.
# What JSON calls the types that it is read into.
_KINDS = {
  type(None): 'null',
  bool: 'true or false',
  int: 'a number',
  float: 'a number',
  str: 'a string',
  list: 'an array',
  dict: 'an object',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
  """One text and where it stands: a file and a line in it, from 1.

  Attributes:
    text: what it says; UTF-8 can hold it.
    path: the file.
    line: where the record begins.
    subset: what stands under the key that the data are split by, or ''.
  """

  text: str
  path: str
  line: int
  subset: str = ''

  @property
  def where(self) -> str:
    """'FILE:LINE', for messages."""
    return f'{self.path}:{self.line}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class BadRecord:
  """A record that is no document.

  Attributes:
    reason: what it is counted under, as 'not_json'.
    message: one line, without its place, with the remedy.
    path: the file.
    line: where the record begins.
  """

  reason: str
  message: str
  path: str
  line: int

  def error(self) -> errors.DataError:
    """The refusal of this record."""
    return errors.DataError(f'{self.path}:{self.line} {self.message}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Format:
  """How records are read.

  Attributes:
    text_key: key of the text in a JSON object.
    split_by: key of the subset, dots for depth; '' for none.
    max_record_bytes: a longer record is a bad one.
  """

  text_key: str = 'text'
  split_by: str = ''
  max_record_bytes: int = MAX_RECORD_BYTES


def documents(
  path: str, text_key: str, max_record_bytes: int = MAX_RECORD_BYTES
) -> Iterator[Document]:
  """The documents of one file in order; memory holds one at a time.

  Raises:
    DataError: a file or a record is not as above; names the file and line.
  """
  path = str(path)
  files.check(path)
  return _refusing(
    path, Format(text_key=text_key, max_record_bytes=max_record_bytes)
  )


def _refusing(path: str, format_: Format) -> Iterator[Document]:
  for _, records in blocks([path], format_):
    for record in records:
      if isinstance(record, BadRecord):
        raise record.error()
      yield record


def blocks(
  paths: Sequence[str],
  format_: Format,
  block_bytes: int = 1 << 62,
  wanted: Callable[[int], bool] = lambda block: True,
) -> Iterator[tuple[int, Iterator[Document | BadRecord]]]:
  """The records of some files, a block of them at a time.

  Args:
    paths: read one after another.
    format_: see Format.
    block_bytes: a record that begins at byte b of all the uncompressed bytes
      is in block b // block_bytes.
    wanted: says of a block whether to parse it.

  Yields:
    The number of each block in which a line begins, rising, and its records,
    to be used up before the next block; those of an unwanted block are left
    out, at little more than the cost of decompression.

  Raises:
    DataError: a file cannot be read.
  """
  lines = _Cutter(
    limit=format_.max_record_bytes,
    block_bytes=block_bytes,
    wanted=functools.lru_cache(1)(wanted),
  ).lines(paths)
  for block, group in itertools.groupby(lines, key=operator.itemgetter(0)):
    yield block, _records(group, format_)


class _Line(NamedTuple):
  """A line, or a whole .txt file; `data` is None where it was not wanted."""

  block: int
  path: str
  line: int
  data: bytes | None
  too_large: bool = False


@dataclasses.dataclass(kw_only=True)
class _Cutter:
  """Cuts files into lines, one file after another.

  Attributes:
    limit: bytes of a line; of a longer one memory holds no more.
    block_bytes: see blocks.
    wanted: see blocks.
    offset: bytes of the files that have been read.
  """

  limit: int
  block_bytes: int
  wanted: Callable[[int], bool]
  offset: int = 0

  def lines(self, paths: Sequence[str]) -> Iterator[_Line]:
    """All lines of wanted blocks, and one for each block that is not."""
    for path in paths:
      read = self._whole if path.endswith('.txt') else self._split
      yield from read(path)

  def _whole(self, path: str) -> Iterator[_Line]:
    """A .txt file as one line."""
    block, size = self.offset // self.block_bytes, files.size(path)
    data, large = None, size > self.limit
    if self.wanted(block):
      data = b'' if large else b''.join(files.chunks(path))
    yield _Line(block, path, 1, data, large)
    self.offset += size

  def _split(self, path: str) -> Iterator[_Line]:
    """The lines of a file."""
    start = offset = self.offset  # Of the file, and of the chunk at hand.
    begin, line = offset, 1  # Of the record at hand.
    block, stop, mine = 0, 0, True
    parts, held = [], 0
    for chunk in files.chunks(path):
      at = 0
      while at < len(chunk):
        if offset + at == begin:
          block, stop = begin // self.block_bytes, begin
          mine = self.wanted(block)
          if not mine:
            # All up to the first line feed that no record of the block follows.
            stop = (block + 1) * self.block_bytes - 1
            yield _Line(block, path, line, None)
        end = chunk.find(b'\n', max(at, stop - offset)) + 1
        if mine:
          held += (end or len(chunk)) - at
          if held - bool(end) <= self.limit:
            parts.append(chunk[at : end or None])
          else:
            parts.clear()  # Too large: memory holds no more of it than this.
          if end:
            yield _Line(
              block, path, line, b''.join(parts), held - 1 > self.limit
            )
        if mine:
          line += bool(end)
        else:
          line += chunk.count(b'\n', at, end or len(chunk))
        at = end or len(chunk)
        if end:
          begin, parts, held = offset + end, [], 0
      offset += len(chunk)
    if held:
      yield _Line(block, path, line, b''.join(parts), held > self.limit)
    if offset == start:
      raise errors.DataError(
        f'{path} holds 0 bytes when it is unpacked; remove it or write it again'
      )
    self.offset = offset


def _records(
  lines: Iterable[_Line], format_: Format
) -> Iterator[Document | BadRecord]:
  """What stands in the lines that were wanted."""
  for _, path, line, data, too_large in lines:
    try:
      if too_large:
        raise _Refusal(
          'too_large',
          f'is longer than {format_.max_record_bytes:,} bytes; cut the '
          'document or raise --max_record_bytes',
        )
      if data is None:
        continue
      if path.endswith('.txt'):
        if format_.split_by:
          raise _Refusal(
            'no_subset', 'has no keys to split by; give JSON or no --split_by'
          )
        yield Document(text=_decode(data), path=path, line=line)
      elif data and not data.isspace():
        text, subset = _fields(_decode(data), format_)
        yield Document(text=text, path=path, line=line, subset=subset)
    except _Refusal as e:
      yield BadRecord(reason=e.reason, message=str(e), path=path, line=line)


class _Refusal(Exception):
  """Why a record is bad."""

  def __init__(self, reason: str, message: str):
    super().__init__(message)
    self.reason = reason


def _decode(data: bytes) -> str:
  """The characters of a record."""
  try:
    return data.decode()
  except UnicodeDecodeError as e:
    raise _Refusal(
      'not_utf8', f'is not UTF-8 ({e.reason} at byte {e.start}); convert it'
    ) from e


def _fields(line: str, format_: Format) -> tuple[str, str]:
  """The text and the subset of one JSON line."""
  if line.startswith('\ufeff'):
    raise _Refusal(
      'not_json', 'begins with a byte order mark; remove these three bytes'
    )
  try:
    record = json.loads(line)
  except (ValueError, RecursionError) as e:
    raise _Refusal(
      'not_json', f'is not valid JSON ({e}); one object a line is wanted'
    ) from e
  if not isinstance(record, dict):
    raise _Refusal(
      'not_an_object',
      f'is {_KINDS[type(record)]}; an object with the key '
      f'{format_.text_key!r} is wanted',
    )
  if format_.text_key not in record:
    raise _Refusal(
      'no_text',
      f'has no key {format_.text_key!r}, only '
      f'{", ".join(map(_brief, list(record)[:_KEYS])) or "none"}'
      f'{", ..." if len(record) > _KEYS else ""}; give --text_key=KEY',
    )
  text = _string(record[format_.text_key], 'text', format_.text_key)
  if not format_.split_by:
    return text, ''
  return text, _subset(record, format_.split_by)


def _brief(key: str) -> str:
  """A key for a message, cut where it is long."""
  return repr(key if len(key) <= 40 else key[:40] + '...')


def _subset(record: dict[str, Any], split_by: str) -> str:
  """What stands under the dotted key `split_by`."""
  value: Any = record
  for key in split_by.split('.'):
    if not isinstance(value, dict) or key not in value:
      raise _Refusal(
        'no_subset', f'has no key {split_by!r}; give another --split_by'
      )
    value = value[key]
  if value == '':
    raise _Refusal('no_subset', f'has nothing under {split_by!r}; mend it')
  subset = _string(value, 'subset', split_by)
  if len(subset.encode()) > _SUBSET_BYTES:
    raise _Refusal(
      'subset_too_long',
      f'has more than {_SUBSET_BYTES} bytes under {split_by!r}, too much for '
      'the name of a directory; give another --split_by',
    )
  return subset


def _string(value: Any, kind: str, key: str) -> str:
  """`value` if it is a string that UTF-8 can hold."""
  if not isinstance(value, str):
    raise _Refusal(
      f'{kind}_not_a_string',
      f'has {_KINDS[type(value)]} under {key!r}; a string is wanted',
    )
  try:
    value.encode()
  except UnicodeEncodeError as e:
    raise _Refusal(
      f'{kind}_has_half_a_surrogate_pair',
      f'has half a surrogate pair under {key!r}; mend the text',
    ) from e
  return value
