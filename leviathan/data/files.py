"""Input files, on this machine or anywhere fsspec reaches (`gs://`, `s3://`)."""

from collections.abc import Iterator
import gzip
import sys
from typing import IO
from typing import Any
import zlib

import fsspec

from leviathan import errors

if sys.version_info >= (3, 14):
  from compression import zstd  # pyright: ignore
else:
  from backports import zstd

SUFFIXES = ('.txt', '.jsonl', '.jsonl.gz', '.jsonl.zst', '.json.gz')
_CHUNK = 1 << 20  # Bytes read at a time, after decompression.


def expand(pattern: str) -> list[str]:
  """The files that a glob names, sorted, each once.

  Args:
    pattern: a path or glob, `**` for any depth; several are joined by commas.
      What is hidden (a name that begins with a dot) is matched only by a dot.

  Returns:
    Paths or URLs of files, none empty and each of a suffix in SUFFIXES.

  Raises:
    DataError: a pattern matches no file, or a file cannot be read as text.
  """
  patterns = [one.strip() for one in pattern.split(',') if one.strip()]
  if not patterns:
    raise errors.DataError(f'input {pattern!r} names no file; give a path')
  found = sorted({path for one in patterns for path in _glob(one)})
  for path in found:
    check(path)
  return found


def size(path: str) -> int:
  """Bytes of a file as it is stored."""
  system, name = _system(path)
  return int(system.size(name) or 0)


def check(path: str) -> None:
  """Raises DataError unless `path` is a non-empty file of a known suffix."""
  if not path.endswith(SUFFIXES):
    raise errors.DataError(
      f'{path} is of no known kind; give files that end in '
      f'{", ".join(SUFFIXES)}'
    )
  system, name = _system(path)
  if not system.isfile(name):
    raise errors.DataError(f'{path} is not a file; check the path')
  if not size(path):
    raise errors.DataError(f'{path} has 0 bytes; remove it or write it again')


def chunks(path: str) -> Iterator[bytes]:
  """The bytes of a file, decompressed, at most 1 MiB at a time.

  Both compressed kinds may consist of several members or frames.

  Raises:
    DataError: a compressed file is cut short or damaged, or cannot be read.
  """
  system, name = _system(path)
  try:
    with system.open(name, 'rb') as file:
      stream = _decompressed(path, file)
      while chunk := stream.read(_CHUNK):
        yield chunk
  except (EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError) as e:
    raise errors.DataError(
      f'{path} is truncated or damaged ({e}); fetch it again, or leave it out'
    ) from e
  except OSError as e:
    raise errors.DataError(
      f'{path} cannot be read ({e}); check that it is there and yours to read'
    ) from e


def _decompressed(path: str, file: IO[bytes]) -> Any:
  """A file of the uncompressed bytes; a read never gives more than asked."""
  if path.endswith('.gz'):
    return gzip.open(file)
  if path.endswith('.zst'):
    # Windows above 128 MiB are refused: they are memory that a file demands.
    return zstd.open(file)
  return file


def _system(path: str) -> tuple[Any, str]:
  """The file system of a path or URL, and its name for the file."""
  try:
    return fsspec.core.url_to_fs(path)
  except (ImportError, ValueError) as e:
    raise errors.DataError(
      f'{path} is out of reach ({e}); install what its protocol needs, or copy '
      'it to a disk'
    ) from e


def _glob(pattern: str) -> list[str]:
  """The files that one pattern names."""
  system, name = _system(pattern)
  remote = '://' in pattern
  if system.isdir(name):
    raise errors.DataError(
      f'input {pattern!r} is a directory; give its files, as in '
      f'{pattern.rstrip("/")}/**/*.jsonl'
    )
  if system.isfile(name):
    found = [name]
  else:
    found = [n for n in system.glob(name) if system.isfile(n)]
    found = [n for n in found if _hidden(n) <= _hidden(name)]
  if not found:
    raise errors.DataError(
      f'input {pattern!r} matches no file; check the path and quote the glob'
    )
  return [system.unstrip_protocol(n) if remote else n for n in found]


def _hidden(path: str) -> int:
  """How many of the names in a path begin with a dot."""
  return sum(part.startswith('.') for part in path.split('/'))
