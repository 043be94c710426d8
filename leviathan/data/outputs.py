"""Outputs that appear under their name whole, or not at all.

Work goes into a hidden sibling, `.NAME.incomplete`, renamed when it is done. A
killed run leaves only that sibling; the next run of the same name clears it.
"""

from collections.abc import Iterator
import contextlib

from etils import epath

from leviathan import errors


@contextlib.contextmanager
def new_directory(directory: epath.PathLike) -> Iterator[epath.Path]:
  """Yields a temporary directory that becomes `directory` at the end.

  Raises:
    DataError: `directory` exists and is not an empty directory.
  """
  final = epath.Path(directory).expanduser()
  check_free(final)
  temporary = _sibling(final)
  if temporary.exists():
    temporary.rmtree()
  temporary.mkdir(parents=True)
  try:
    yield temporary
    if final.exists():
      final.rmdir()  # Only an empty one: rmdir refuses anything else.
    temporary.rename(final)
  except BaseException:
    temporary.rmtree(missing_ok=True)
    raise


@contextlib.contextmanager
def new_file(path: epath.PathLike) -> Iterator[epath.Path]:
  """Yields a temporary file path that becomes `path` at the end.

  Raises:
    DataError: `path` exists.
  """
  final = epath.Path(path).expanduser()
  check_free(final)
  final.parent.mkdir(parents=True, exist_ok=True)
  temporary = _sibling(final)
  try:
    yield temporary
    temporary.rename(final)
  except BaseException:
    temporary.unlink(missing_ok=True)
    raise


def check_free(path: epath.PathLike) -> None:
  """Raises DataError if something other than an empty directory is there."""
  path = epath.Path(path).expanduser()
  if path.is_dir() and not any(path.iterdir()):
    return
  if path.exists():
    raise errors.DataError(
      f'output {path} exists and is never overwritten; give another name '
      'or remove it'
    )


def _sibling(path: epath.Path) -> epath.Path:
  return path.parent / f'.{path.name}.incomplete'
