"""Outputs that appear under their name whole, or not at all.

Work goes into a hidden sibling that is renamed when it is done and on disk. A
killed run leaves only such siblings.
"""

from collections.abc import Iterator
import contextlib
import os
import socket

from etils import epath

from leviathan import errors
from leviathan import storage


@contextlib.contextmanager
def new_file(path: epath.PathLike) -> Iterator[epath.Path]:
  """Yields a temporary file path that becomes `path` at the end.

  Raises:
    DataError: `path` exists.
  """
  final = epath.Path(path).expanduser()
  check_free(final)
  final.parent.mkdir(parents=True, exist_ok=True)
  with durable(final) as temporary:
    yield temporary


@contextlib.contextmanager
def durable(path: epath.Path) -> Iterator[epath.Path]:
  """Yields a path for a file or directory that becomes `path` at the end.

  Processes may write the same `path` at once, if it is the same thing: each
  does so apart, and one of them wins.
  """
  # Named after its process, whose remains are told from work in progress.
  writer = f'{socket.gethostname()}-{os.getpid()}'
  temporary = path.parent / f'.{path.name}.{writer}'
  _remove(temporary)
  try:
    yield temporary
    sync(temporary)
    try:
      os.replace(temporary, path)
    except OSError:
      if not path.is_dir():  # Else another process was faster.
        raise
    sync(path.parent, deep=False)
  finally:
    _remove(temporary)


def check_free(path: epath.PathLike) -> None:
  """Raises DataError if something other than an empty directory is there."""
  path = epath.Path(path).expanduser()
  if storage.in_bucket(path):
    raise errors.DataError(
      f'output {path} is in a bucket; give a path on a disk, and copy it from '
      'there'
    )
  if path.is_dir() and not any(path.iterdir()):
    return
  if path.exists():
    raise errors.DataError(
      f'output {path} exists and is never overwritten; give another name '
      'or remove it'
    )


def _remove(path: epath.Path) -> None:
  if path.is_dir():
    path.rmtree()
  else:
    path.unlink(missing_ok=True)


def sync(path: epath.Path, deep: bool = True) -> None:
  """Waits until a file or directory is on the disk, with all below if deep."""
  if deep and path.is_dir():
    for child in path.iterdir():
      sync(child)
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
