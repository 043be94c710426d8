"""What a bucket (`gs://`) does otherwise than a disk.

An object appears whole or not at all, and that is all that is certain: nothing
is appended to, a directory is only the beginning of names, and renaming one
moves object after object. So what must be whole is one object, and what lasts
is told from what was cut short by its contents, never by its name.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import functools
import importlib.util
import logging
import os
import tempfile
import time

from etils import epath
import fsspec
from fsspec import config as fsspec_config

from leviathan import errors

UPLOAD_SECONDS = 60.0

# Other processes write to a bucket as well: what is in it is asked each time.
fsspec_config.conf.setdefault('gcs', {})['use_listings_cache'] = False
# They tell of what they try; what fails in the end is raised.
for _name in ('gcsfs', 'google.auth'):
  logging.getLogger(_name).setLevel(logging.ERROR)


def in_bucket(path: epath.PathLike) -> bool:
  """Whether a path is of a bucket rather than a disk."""
  return '://' in os.fspath(path)


def check(path: epath.PathLike) -> None:
  """Finds out once whether the bucket of a path is there; passes all disks.

  Raises:
    CheckpointError: there is no such bucket, or no leave to list it.
    ConfigError: it is no `gs://`, or the package that reads them is missing.
  """
  if in_bucket(path):
    scheme, _, rest = os.fspath(path).partition('://')
    _check_bucket(scheme, rest.partition('/')[0])


@functools.cache
def _check_bucket(scheme: str, bucket: str) -> None:
  url = f'{scheme}://{bucket}'
  if scheme != 'gs' or not bucket:
    raise errors.ConfigError(
      f'{url} is neither a disk nor a bucket that is known; give a path or '
      'gs://BUCKET/PATH'
    )
  if importlib.util.find_spec('gcsfs') is None:
    raise errors.ConfigError(
      f"{url} needs the package gcsfs; pip install 'leviathan[gcs]', or give a "
      'path on a disk'
    )
  try:
    fsspec.filesystem('gcs').ls(bucket, max_results=1)
  except Exception as e:
    if not is_refusal(e):
      raise
    raise errors.CheckpointError(
      f'{url} cannot be listed ({said(e)}); check its name and your access to '
      'it (gcloud auth application-default login)'
    ) from e


def is_refusal(error: BaseException) -> bool:
  """Whether it is the disk, the bucket or the way to it that has failed."""
  package = type(error).__module__.partition('.')[0]
  return isinstance(error, OSError) or (
    isinstance(error, Exception) and package in ('gcsfs', 'google', 'aiohttp')
  )


def said(error: BaseException) -> str:
  """What a refusal says, on one line."""
  text = ' '.join(str(error).split())[:300]
  if isinstance(error, OSError) and error.strerror:
    text = error.strerror
  elif isinstance(error, FileNotFoundError):
    text = f'not found: {text}'
  return text or type(error).__name__


@contextlib.contextmanager
def explained(path: epath.Path, doing: str = 'read') -> Iterator[None]:
  """Says in one line what a bucket refuses; what a disk does is left as it is.

  That nothing is there to be read is no refusal.

  Args:
    path: in the bucket.
    doing: 'read', 'written' or 'deleted'.

  Raises:
    CheckpointError: the bucket, or the way to it, refuses.
  """
  try:
    yield
  except Exception as e:
    absent = doing == 'read' and isinstance(e, FileNotFoundError)
    if absent or not in_bucket(path) or not is_refusal(e):
      raise
    raise errors.CheckpointError(
      f'{path} cannot be {doing} ({said(e)}); mend that, and run the same '
      'command again'
    ) from e


def read(path: epath.Path) -> str:
  """The text in a file.

  Raises:
    FileNotFoundError: there is none.
    CheckpointError: a bucket refuses it.
  """
  with explained(path):
    return path.read_text()


def write(
  path: epath.Path, data: str | bytes, scratch: epath.Path | None = None
) -> None:
  """Writes a file whole or not at all; its directory is made when missing.

  Args:
    path: of the file; what is there is replaced.
    data: all of it.
    scratch: where a disk holds it until then, if not beside it.

  Raises:
    CheckpointError: a bucket refuses it.
  """
  scratch = scratch or path.with_name(path.name + '.tmp')
  target = path if in_bucket(path) else scratch
  with explained(path, 'written'):
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, bytes):
      target.write_bytes(data)
    else:
      target.write_text(data)
  if target is scratch:
    scratch.replace(path)


class Upload:
  """An object that grows: nothing is appended, so it is written anew at times.

  What a kill may lose is what came since.
  """

  def __init__(self, path: epath.Path, contents: Callable[[], str | bytes]):
    """Of an object, and what gives all that belongs into it."""
    self._path, self._contents = path, contents
    self._synced, self._took = time.monotonic(), 0.0
    self._owed = False

  def changed(self, at_once: bool = False) -> None:
    """There is more; it is written at once, or if it has been a while."""
    self._owed = True
    # However long it gets, a run must not wait for it much.
    wait = max(UPLOAD_SECONDS, 50 * self._took)
    if at_once or time.monotonic() > self._synced + wait:
      # `sync` will say so if it goes on failing.
      with contextlib.suppress(errors.CheckpointError):
        self.sync()

  def sync(self) -> None:
    """Writes what is not written yet.

    Raises:
      CheckpointError: the bucket refuses it.
    """
    if not self._owed:
      return
    began = time.monotonic()
    try:
      write(self._path, self._contents())
      self._owed = False
    finally:
      self._synced = time.monotonic()
      self._took = self._synced - began


def files(directory: epath.Path) -> dict[str, int]:
  """{'params/d/...': bytes} of all files below a directory, if there is one.

  Raises:
    OSError: a disk refuses to list a part of it.
    CheckpointError: a bucket does.
  """
  if not in_bucket(directory):
    return _on_disk(os.fspath(directory))
  system, root = fsspec.core.url_to_fs(os.fspath(directory))
  with explained(directory):
    found = system.find(root, detail=True)
  sizes = {name[len(root) + 1 :]: info['size'] for name, info in found.items()}
  # Some tools put an object where a directory would be.
  return {name: sizes[name] for name in sorted(sizes) if name[-1:] not in '/'}


def _on_disk(root: str) -> dict[str, int]:
  """What `files` gives; fsspec leaves out what it may not list."""

  def refuse(error: OSError):
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
      raise error

  paths = [
    os.path.join(directory, name)
    for directory, _, names in os.walk(root, onerror=refuse, followlinks=True)
    for name in names
  ]
  return {os.path.relpath(p, root): os.path.getsize(p) for p in sorted(paths)}


def download(path: epath.Path, target: epath.Path) -> None:
  """Copies a file of any size to a disk."""
  system, name = fsspec.core.url_to_fs(os.fspath(path))
  system.get_file(name, os.fspath(target))


@contextlib.contextmanager
def local(directory: epath.Path) -> Iterator[epath.Path]:
  """A directory for what writes to disks only.

  It is `directory`, which need not exist, or one whose files are put there at
  the end. Those of the same name are replaced.
  """
  if not in_bucket(directory):
    yield directory
    return
  with tempfile.TemporaryDirectory() as scratch:
    here = epath.Path(scratch)
    yield here
    for name in files(here):
      write(directory / name, (here / name).read_bytes())
