"""The folder of one checkpoint: whose it is, and whether it is whole.

Orbax's metadata say where it comes from. When a save has ended, `files.json`
lists its files with their sizes, so that a folder copied in part is told from a
whole one. A folder without a listing is from an older version, or the save was
killed in its last moment: Orbax renames a folder into place once it is
complete, so it is taken as whole.
"""

from collections.abc import Sequence
import dataclasses
import json
import re
from typing import Any

from etils import epath

LISTING = 'files.json'
METADATA = '_CHECKPOINT_METADATA'  # Orbax's, with the manifest in it.
ORIGIN = 'checkpoint'  # Field of Origin, beside those of the manifest.
STEP = re.compile(r'0|[1-9][0-9]*')
# What a killed save or a killed deletion leaves behind.
LEFTOVER = re.compile(r'[0-9]+\.(orbax-checkpoint-tmp.*|deleted)')


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
  return [p for p in children(directory) if LEFTOVER.fullmatch(p.name)]


def children(directory: epath.Path) -> list[epath.Path]:
  """What lies in a directory, which need not exist."""
  return [*directory.iterdir()] if directory.is_dir() else []


def fault(folder: epath.Path, items: Sequence[str]) -> str | None:
  """Why these items of a step cannot be restored, or None if all is there.

  Args:
    folder: named by its step.
    items: as 'params'; what else lies there may be damaged.
  """
  needed = (METADATA, *(f'{item}/_METADATA' for item in items))
  for name in needed:
    if _size(folder / name) is None:
      return f'{name} is missing'
  try:
    said = origin(folder)
    sizes = _listing(folder)
  except (OSError, ValueError, LookupError, TypeError, AttributeError) as e:
    return f'its metadata are damaged: {type(e).__name__}: {e}'
  if said is not None and said.step != int(folder.name):
    return f'it is a copy of step {said.step}'
  for name, size in sizes.items():
    item, _, inside = name.partition('/')
    if inside and item not in items:
      continue
    found = _size(folder / name)
    if found is None:
      return f'{name} is missing'
    if found != size:
      return f'{name} has {found} bytes and should have {size}'
  return None


def manifest(folder: epath.Path) -> dict[str, Any]:
  """What was given with the save; ValueError if it is damaged."""
  found = _metadata(folder)
  return {name: value for name, value in found.items() if name != ORIGIN}


def origin(folder: epath.Path) -> Origin | None:
  """None if the checkpoint says nothing of it, as old ones do."""
  found = _metadata(folder).get(ORIGIN)
  return None if found is None else Origin(**found)


def write_listing(folder: epath.Path) -> None:
  """Lists the files of a finished save, whole or not at all."""
  # Beside the folder, so that a kill leaves nothing in it.
  scratch = folder.with_name(f'{folder.name}.orbax-checkpoint-tmp-{LISTING}')
  scratch.write_text(json.dumps(_sizes(folder), indent=2) + '\n')
  scratch.replace(folder / LISTING)


def _metadata(folder: epath.Path) -> dict[str, Any]:
  """The manifest and the origin."""
  return json.loads((folder / METADATA).read_text())['custom_metadata'] or {}


def _listing(folder: epath.Path) -> dict[str, int]:
  """{file: bytes}; empty if there is no listing."""
  path = folder / LISTING
  return dict(json.loads(path.read_text())) if path.exists() else {}


def _size(path: epath.Path) -> int | None:
  """Bytes of a file, or None if there is none."""
  try:
    return path.stat().length
  except (FileNotFoundError, NotADirectoryError):
    return None


def _sizes(folder: epath.Path, prefix: str = '') -> dict[str, int]:
  """{'params/d/...': bytes, ...} of all files in a folder."""
  sizes = {}
  for path in sorted(folder.iterdir()):
    if path.is_dir():
      sizes |= _sizes(path, f'{prefix}{path.name}/')
    else:
      sizes[prefix + path.name] = path.stat().length
  return sizes
