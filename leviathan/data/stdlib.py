"""Writes the text of the running Python's standard library as a corpus.

Real English and code, about 12 MB, on every machine that can run this:

  python -m leviathan.data.stdlib --output=corpus.jsonl

One JSON object a line, `text` and `path`, sorted by path. Tests are left out:
their tables of numbers and odd bytes teach little.
"""

from collections.abc import Sequence
import json
import pathlib
import sys
import sysconfig

from absl import app
from absl import flags
from etils import epath

from leviathan import errors
from leviathan.data import outputs

_OUTPUT = flags.DEFINE_string(
  'output',
  None,
  'The .jsonl file to write.',
  required=True,
  allow_override=True,
)
SUFFIXES = ('.py', '.txt')
EXCLUDED = frozenset(
  {
    '__pycache__',
    'dist-packages',
    'idle_test',
    'site-packages',
    'test',
    'tests',
  }
)


def write(output: epath.PathLike, root: epath.PathLike) -> tuple[int, int, int]:
  """Writes the text files under `root`, but for EXCLUDED directories.

  Args:
    output: the file to write, which must not exist.
    root: the directory of the library.

  Returns:
    Numbers of documents, of their bytes, and of files skipped as not UTF-8.

  Raises:
    DataError: `output` exists.
  """
  documents = size = skipped = 0
  with outputs.new_file(output) as temporary, temporary.open('wb') as file:
    for path in _files(pathlib.Path(root)):
      data = path.read_bytes()
      name = path.relative_to(root).as_posix()
      try:
        row = {'text': data.decode(), 'path': name}
      except UnicodeDecodeError:
        skipped += 1
        continue
      file.write(json.dumps(row, ensure_ascii=False).encode() + b'\n')
      documents += 1
      size += len(data)
  return documents, size, skipped


def _files(root: pathlib.Path) -> list[pathlib.Path]:
  """The text files under `root`, sorted."""
  return sorted(
    path
    for path in root.rglob('*')
    if path.suffix in SUFFIXES
    and not EXCLUDED & set(path.relative_to(root).parts)
    and path.is_file()
  )


def main(argv: Sequence[str]) -> None:
  """Writes the corpus and says what is in it."""
  del argv
  try:
    documents, size, skipped = write(
      _OUTPUT.value, sysconfig.get_path('stdlib')
    )
  except errors.UserError as e:
    print(f'error: {e}', file=sys.stderr)
    sys.exit(e.exit_code)
  print(
    f'{documents:,} documents, {size / 1e6:.1f} MB, {skipped} files skipped '
    f'(not UTF-8): {_OUTPUT.value}'
  )


if __name__ == '__main__':
  app.run(main)
