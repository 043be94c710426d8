"""Documents out of text files: .txt, .jsonl, .jsonl.gz and .jsonl.zst."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import fnmatch
import gzip
import json
from typing import IO
from typing import Any
import zlib

from etils import epath
import zstandard

from leviathan import errors

SUFFIXES = ('.txt', '.jsonl', '.jsonl.gz', '.jsonl.zst')
_CHUNK = 1 << 20  # Bytes read, or fed to a decompressor, at a time.
_WILDCARDS = frozenset('*?[')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
  """One text and where it stands: a file and a line in it, from 1."""

  text: str
  path: epath.Path
  line: int

  @property
  def where(self) -> str:
    """'FILE:LINE', for messages."""
    return f'{self.path}:{self.line}'


def expand(pattern: str) -> list[epath.Path]:
  """The files that a glob names, sorted, each once.

  Args:
    pattern: a path or glob, `**` for any depth; several are joined by commas.

  Returns:
    Paths of files, none empty and each of a suffix in SUFFIXES.

  Raises:
    DataError: a pattern matches no file, or a file cannot be read as text.
  """
  paths = sorted({path for one in pattern.split(',') for path in _glob(one)})
  for path in paths:
    _check(path)
  return paths


def documents(path: epath.PathLike, text_key: str) -> Iterator[Document]:
  """The documents of one file in order; memory holds one at a time.

  A .txt file is one document; in the other kinds each line is a JSON object
  whose `text_key` holds the text. Lines end at LF only, since JSON strings may
  hold other separators as they are; lines of white space hold no record.

  Raises:
    DataError: a file or a record is not as above; names the file and line.
  """
  path = epath.Path(path).expanduser()
  _check(path)
  return _text_file(path) if path.suffix == '.txt' else _json(path, text_key)


def _glob(pattern: str) -> list[epath.Path]:
  """The files that one pattern names."""
  path = epath.Path(pattern.strip()).expanduser()
  if path.is_dir():
    raise errors.DataError(
      f'input {pattern!r} is a directory; give its files, as in '
      f'{path}/**/*.jsonl'
    )
  if path.exists():
    return [path]
  depth = next(
    (i for i, part in enumerate(path.parts) if _WILDCARDS & set(part)), None
  )
  found = []
  if depth is not None and (root := epath.Path(*path.parts[:depth])).is_dir():
    found = [p for p in _matches(root, path.parts[depth:]) if p.is_file()]
  if not found:
    raise errors.DataError(
      f'input {pattern!r} matches no file; check the path and quote the glob'
    )
  return found


def _matches(
  directory: epath.Path, parts: Sequence[str]
) -> Iterator[epath.Path]:
  """What the parts of a glob match below; epath's own glob has no `**`."""
  first, *rest = parts
  if first == '**':
    yield from _matches(directory, rest or ['*'])
  for child in directory.iterdir():
    if child.name.startswith('.') and not first.startswith('.'):
      continue  # Hidden: unfinished outputs among others.
    if first == '**':
      if child.is_dir():
        yield from _matches(child, parts)
    elif fnmatch.fnmatchcase(child.name, first):
      if not rest:
        yield child
      elif child.is_dir():
        yield from _matches(child, rest)


def _check(path: epath.Path) -> None:
  """Raises DataError unless `path` is a non-empty file of a known suffix."""
  if not path.name.endswith(SUFFIXES):
    raise errors.DataError(
      f'{path} is of no known kind; give files that end in '
      f'{", ".join(SUFFIXES)}'
    )
  if not path.is_file():
    raise errors.DataError(f'{path} is not a file; check the path')
  if not path.stat().length:
    raise errors.DataError(f'{path} has 0 bytes; remove it or write it again')


def _text_file(path: epath.Path) -> Iterator[Document]:
  """The one document of a .txt file."""
  data = path.read_bytes()
  try:
    yield Document(text=data.decode(), path=path, line=1)
  except UnicodeDecodeError as e:
    line = data.count(b'\n', 0, e.start) + 1
    raise errors.DataError(
      f'{path}:{line} is not UTF-8 ({e.reason}); convert the file'
    ) from e


def _json(path: epath.Path, text_key: str) -> Iterator[Document]:
  """One document a line of a .jsonl file, compressed or not."""
  line = 0
  try:
    with path.open('rb') as file:
      for line, data in enumerate(_lines(_chunks(path, file)), start=1):
        if data.strip():
          text = _text(data, text_key, f'{path}:{line}')
          yield Document(text=text, path=path, line=line)
  except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as e:
    raise errors.DataError(
      f'{path} is truncated or damaged after line {line} ({e}); fetch it again'
    ) from e


def _text(data: bytes, text_key: str, where: str) -> str:
  """The text of one JSON line."""
  try:
    record = json.loads(data.decode())
  except UnicodeDecodeError as e:
    raise errors.DataError(
      f'{where} is not UTF-8 ({e.reason}); convert the file'
    ) from e
  except (ValueError, RecursionError) as e:
    raise errors.DataError(
      f'{where} is not valid JSON ({e}); one JSON object a line is wanted'
    ) from e
  if not isinstance(record, dict):
    raise errors.DataError(
      f'{where} is a JSON {type(record).__name__}; an object with the key '
      f'{text_key!r} is wanted'
    )
  if text_key not in record:
    raise errors.DataError(
      f'{where} has no key {text_key!r}, only '
      f'{", ".join(map(repr, record)) or "none"}; give --text_key=KEY'
    )
  return _checked(record[text_key], text_key, where)


def _checked(text: Any, text_key: str, where: str) -> str:
  """`text` if it is a string that UTF-8 can hold."""
  if not isinstance(text, str):
    raise errors.DataError(
      f'{where} has a {type(text).__name__} under {text_key!r}; a string is '
      'wanted'
    )
  try:
    text.encode()
  except UnicodeEncodeError as e:
    raise errors.DataError(
      f'{where} has half a surrogate pair under {text_key!r}; mend the text'
    ) from e
  return text


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
  """Lines split at LF, without it."""
  rest = b''
  for chunk in chunks:
    *lines, rest = (rest + chunk).split(b'\n')
    yield from lines
  if rest:
    yield rest


def _chunks(path: epath.Path, file: IO[bytes]) -> Iterator[bytes]:
  """The uncompressed bytes of `file`."""
  if path.suffix == '.zst':
    yield from _unzstd(file)
    return
  stream = gzip.open(file) if path.suffix == '.gz' else file
  while chunk := stream.read(_CHUNK):
    yield chunk


def _unzstd(file: IO[bytes]) -> Iterator[bytes]:
  """The bytes of all frames; EOFError if the last one is cut short.

  zstandard's own file reader takes a cut frame for the end of the data.
  """
  decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
  frame = None
  while data := file.read(_CHUNK):
    while data:
      frame = frame or decompressor.decompressobj()
      yield frame.decompress(data)
      data = frame.unused_data
      if frame.eof:
        frame = None
  if frame is not None:
    raise EOFError('the last frame has no end')
