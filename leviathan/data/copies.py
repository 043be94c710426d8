"""Datasets in a bucket, copied once to a disk of each host.

Rows are read in a random order, some hundred bytes at a time, from disks only.
"""

import fcntl
import hashlib
import os
import shutil

from etils import epath

from leviathan import errors
from leviathan import storage
from leviathan.data import manifest as manifest_lib
from leviathan.data import outputs


def check(directory: epath.Path) -> None:
  """Raises DataError if a dataset is in a bucket that cannot be read."""
  try:
    storage.check(directory)
  except errors.CheckpointError as e:
    raise errors.DataError(str(e)) from e


def local(directory: epath.Path) -> epath.Path:
  """A dataset's directory on a disk: itself, or a copy of one in a bucket.

  Copies lie in $XDG_CACHE_HOME/leviathan (~/.cache/leviathan), one for each
  manifest. Processes may ask for the same one at once: one copies, and the
  others wait.

  Raises:
    DataError: a shard is not what the manifest says, the disk has too little
      space, or the bucket cannot be read.
  """
  if not storage.in_bucket(directory):
    return directory
  check(directory)
  source = directory / manifest_lib.FILE
  if not source.exists():
    return directory  # Whoever opens it says so.
  # An empty one counts as unset.
  cache = epath.Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache')
  copy = cache.expanduser() / 'leviathan'
  try:
    text = source.read_text()
    copy /= hashlib.sha256(text.encode()).hexdigest()[:16]
    if not (copy / manifest_lib.FILE).exists():
      manifest = manifest_lib.Manifest.from_json(text, str(source))
      copy.parent.mkdir(parents=True, exist_ok=True)
      with open(copy.with_name(f'{copy.name}.lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (copy / manifest_lib.FILE).exists():  # By another process.
          _copy(directory, manifest, copy)
  except Exception as e:
    if not storage.is_refusal(e):
      raise
    raise errors.DataError(
      f'{directory} cannot be copied to {copy} ({storage.said(e)}); mend that, '
      'or copy it yourself'
    ) from e
  return copy


def _copy(
  directory: epath.Path, manifest: manifest_lib.Manifest, copy: epath.Path
) -> None:
  """Copies what is missing, the manifest last: it says that all is there."""
  sizes = storage.files(directory)
  copy.mkdir(parents=True, exist_ok=True)
  missing = [n for n in sizes if not (copy / n).exists()]
  needed, free = sum(sizes[n] for n in missing), shutil.disk_usage(copy).free
  if needed > free:
    raise errors.DataError(
      f'{directory} needs {needed:,} bytes in {copy}, where {free:,} are free; '
      'free space, or set XDG_CACHE_HOME to a directory of a larger disk'
    )
  sha256s = {shard.name: shard.sha256 for shard in manifest.shards}
  for name in sorted(missing, key=lambda name: name == manifest_lib.FILE):
    (copy / name).parent.mkdir(parents=True, exist_ok=True)
    with outputs.durable(copy / name) as temporary:
      storage.download(directory / name, temporary)
      with open(temporary, 'rb') as file:
        found = hashlib.file_digest(file, 'sha256').hexdigest()
      if found != sha256s.get(name, found):
        raise errors.DataError(
          f'shard {directory / name} has sha256 {found}, but the manifest says '
          f'{sha256s[name]}; restore it or prepare the dataset again'
        )
