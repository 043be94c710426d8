"""What a bucket (`gs://`) does otherwise than a disk.

An object appears whole or not at all, and that is all that is certain: nothing
is appended to, a directory is only the beginning of names, and renaming one
moves object after object. So what must be whole is one object, and what lasts
is told from what was cut short by its contents, never by its name.
"""

from collections.abc import Iterator
import contextlib
import functools
import importlib.util
import logging
import os
import tempfile

from etils import epath
import fsspec
from fsspec import config as fsspec_config

from leviathan import errors

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


def write(
  path: epath.Path, data: str | bytes, scratch: epath.Path | None = None
) -> None:
  """Writes a file whole or not at all; its directory is made when missing.

  Args:
    path: of the file; what is there is replaced.
    data: all of it.
    scratch: where a disk holds it until then, if not beside it.
  """
  scratch = scratch or path.with_name(path.name + '.tmp')
  target = path if in_bucket(path) else scratch
  target.parent.mkdir(parents=True, exist_ok=True)
  if isinstance(data, bytes):
    target.write_bytes(data)
  else:
    target.write_text(data)
  if target is scratch:
    scratch.replace(path)


def files(directory: epath.Path) -> dict[str, int]:
  """{'params/d/...': bytes} of all files below a directory, if there is one."""
  system, root = fsspec.core.url_to_fs(os.fspath(directory))
  found = system.find(root, detail=True)
  sizes = {name[len(root) + 1 :]: info['size'] for name, info in found.items()}
  # Some tools put an object where a directory would be.
  return {name: sizes[name] for name in sorted(sizes) if name[-1:] not in '/'}


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
      (directory / name).write_bytes((here / name).read_bytes())
