"""The folder of one checkpoint: whose it is, and whether it is whole.

Orbax's metadata say where it comes from. When a save has ended, `files.json`
lists its files with their sizes, so that a folder copied in part is told from a
whole one. A folder without a listing is from an older version, or the save was
killed in its last moment: on a disk Orbax renames a folder into place once it
is complete, so it is taken as whole. In a bucket it writes a last object
instead, `commit_success.txt`.
"""

from collections.abc import Collection
from collections.abc import Sequence
import dataclasses
import json
import re
from typing import Any

from etils import epath

from leviathan import storage

LISTING = 'files.json'
METADATA = '_CHECKPOINT_METADATA'  # Orbax's, with the manifest in it.
COMMITTED = 'commit_success.txt'  # Orbax's.
ORIGIN = 'checkpoint'  # Field of Origin, beside those of the manifest.
STEP = re.compile(r'0|[1-9][0-9]*')
# What a killed save or a killed deletion leaves behind: on a disk a folder of
# that name, in a bucket an object that marks the folder.
SAVING, DELETED = '.saving', '.deleted'
LEFTOVER = re.compile(r'[0-9]+\.(orbax-checkpoint-tmp.*|saving|deleted)')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
  """Where a checkpoint comes from; lies beside the manifest's fields."""

  step: int
  run: str  # Only a run's own checkpoints are ever deleted by it.
  nats_per_token: float | None  # None: not known, or not finite.


def steps(directory: epath.Path) -> list[int]:
  """All steps of which there is a folder, or a file, in order."""
  names = (path.name for path in children(directory))
  return sorted(int(name) for name in names if STEP.fullmatch(name))


def leftovers(directory: epath.Path) -> list[epath.Path]:
  """What killed saves and deletions have left in a directory of steps."""
  found = [p for p in children(directory) if LEFTOVER.fullmatch(p.name)]
  if not storage.in_bucket(directory):
    return found
  folders = {path.with_suffix('') for path in found if _is_cut_short(path)}
  return [*folders, *found]  # What marks a folder goes after it.


def begin(folder: epath.Path) -> None:
  """Says that a save of a step begins, where its folder's name does not."""
  if storage.in_bucket(folder):
    folder.with_name(f'{folder.name}{SAVING}').write_text('being saved')


def end(folder: epath.Path) -> None:
  """Says that it has ended, and lists its files, whole or not at all."""
  # Beside the folder, so that a kill leaves nothing in it.
  scratch = folder.with_name(f'{folder.name}.orbax-checkpoint-tmp-{LISTING}')
  listing = json.dumps(storage.files(folder), indent=2) + '\n'
  storage.write(folder / LISTING, listing, scratch)
  if storage.in_bucket(folder):
    # A request that is tried again may find it gone.
    folder.with_name(f'{folder.name}{SAVING}').unlink(missing_ok=True)


def delete(folder: epath.Path) -> None:
  """Deletes a step; a kill leaves no half of it, or one of `leftovers`."""
  doomed = folder.with_name(f'{folder.name}{DELETED}')
  if storage.in_bucket(folder):
    doomed.write_text('being deleted')
    for name in (LISTING, COMMITTED):  # From here on it is not whole.
      (folder / name).unlink(missing_ok=True)
    folder.rmtree(missing_ok=True)
  else:
    folder.rename(doomed)
  doomed.rmtree(missing_ok=True)


def children(directory: epath.Path) -> list[epath.Path]:
  """What lies in a directory, which need not exist.

  Raises:
    OSError: a disk refuses to list it: no directory must seem to be empty.
    CheckpointError: a bucket does.
  """
  try:
    with storage.explained(directory):
      return [*directory.iterdir()]
  except (FileNotFoundError, NotADirectoryError):
    return []


def fault(folder: epath.Path, items: Sequence[str]) -> str | None:
  """Why these items of a step cannot be restored, or None if all is there.

  Args:
    folder: named by its step.
    items: as 'params'; what else lies there may be damaged.

  Raises:
    CheckpointError: a bucket refuses to say it, as it may refuse all steps.
  """
  try:
    return _fault(folder, items)
  except OSError as e:
    return f'it cannot be read: {storage.said(e)}'


def _fault(folder: epath.Path, items: Sequence[str]) -> str | None:
  """The same, but for what a disk refuses."""
  there = storage.files(folder)
  needed = (METADATA, *(f'{item}/_METADATA' for item in items))
  for name in needed:
    if name not in there:
      return f'{name} is missing'
  if not _has_ended(folder, there):
    return 'its save did not end'
  try:
    said = origin(folder)
    sizes = _listing(folder) if LISTING in there else {}
  except (ValueError, LookupError, TypeError, AttributeError) as e:
    return f'its metadata are damaged: {type(e).__name__}: {e}'
  if said is not None and said.step != int(folder.name):
    return f'it is a copy of step {said.step}'
  for name, size in sizes.items():
    item, _, inside = name.partition('/')
    if inside and item not in items:
      continue
    if name not in there:
      return f'{name} is missing'
    if there[name] != size:
      return f'{name} has {there[name]} bytes and should have {size}'
  return None


def _has_ended(folder: epath.Path, there: Collection[str]) -> bool:
  """Whether the save did that wrote these files."""
  return not storage.in_bucket(folder) or LISTING in there or COMMITTED in there


def _is_cut_short(mark: epath.Path) -> bool:
  """Whether the folder that something marks is a part of a step."""
  folder = mark.with_suffix('')
  there = storage.files(folder)
  ended = mark.suffix == SAVING and _has_ended(folder, there)
  return mark.suffix in (SAVING, DELETED) and bool(there) and not ended


def manifest(folder: epath.Path) -> dict[str, Any]:
  """What was given with the save; ValueError if it is damaged."""
  found = _metadata(folder)
  return {name: value for name, value in found.items() if name != ORIGIN}


def origin(folder: epath.Path) -> Origin | None:
  """None if the checkpoint says nothing of it, as old ones do."""
  found = _metadata(folder).get(ORIGIN)
  return None if found is None else Origin(**found)


def _metadata(folder: epath.Path) -> dict[str, Any]:
  """The manifest and the origin."""
  return json.loads(storage.read(folder / METADATA))['custom_metadata'] or {}


def _listing(folder: epath.Path) -> dict[str, int]:
  """{file: bytes}, as it was when the save had ended."""
  return dict(json.loads(storage.read(folder / LISTING)))
