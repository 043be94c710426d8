"""Writes the text of the running Python's standard library as a corpus.

Real English and code, about 12 MB, on every machine that can run this:

  python -m leviathan.data.stdlib --output=corpus.jsonl

One JSON object a line, `text` and `path`, sorted by path. Tests are left out:
their tables of numbers and odd bytes teach little. Prose of yours goes in with
--also=DIR, in parts of a chapter's length, so that some of every book can be
held out.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import itertools
import json
import pathlib
import re
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
_ALSO = flags.DEFINE_list(
  'also', [], 'Directories of further text: .txt, .rst, .md.'
)
SUFFIXES = ('.py', '.txt')
ALSO_SUFFIXES = ('.txt', '.rst', '.md')
PART = 16_384  # Characters of a part of a text, at least, but for its last.
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


def write(
  output: epath.PathLike, root: epath.PathLike, also: Sequence[str] = ()
) -> tuple[int, int, int]:
  """Writes the text files under `root`, but for EXCLUDED directories.

  Args:
    output: the file to write, which must not exist.
    root: the directory of the library.
    also: directories whose texts follow, cut into parts.

  Returns:
    Numbers of documents, of their bytes, and of files skipped as not UTF-8.

  Raises:
    DataError: `output` exists, or a directory of `also` holds no text.
  """
  sources = [(path, path.relative_to(root).as_posix()) for path in _files(root)]
  library = len(sources)
  for directory in also:
    found = _texts(directory)
    sources += [(path, path.as_posix()) for path in found]
  documents = size = skipped = 0
  with outputs.new_file(output) as temporary, temporary.open('wb') as file:
    for i, (path, name) in enumerate(sources):
      try:
        text = path.read_bytes().decode()
      except UnicodeDecodeError:
        skipped += 1
        continue
      for part in parts(text) if i >= library else [text]:
        row = {'text': part, 'path': name}
        file.write(json.dumps(row, ensure_ascii=False).encode() + b'\n')
        documents += 1
        size += len(part.encode())
  return documents, size, skipped


def parts(text: str) -> Iterator[str]:
  """Cuts a text behind empty lines into parts of PART characters or more."""
  start = 0
  ends = (match.end() for match in re.finditer(r'\n\s*\n', text))
  for end in itertools.chain(ends, [len(text)]):
    if end - start >= PART or (end == len(text) and end > start):
      yield text[start:end]
      start = end


def _files(root: epath.PathLike) -> list[pathlib.Path]:
  """The text files of the library under `root`, sorted."""
  return sorted(
    path
    for path in pathlib.Path(root).rglob('*')
    if path.suffix in SUFFIXES
    and not EXCLUDED & set(path.relative_to(root).parts)
    and path.is_file()
  )


def _texts(directory: str) -> list[pathlib.Path]:
  """The text files under a directory of the user's, sorted."""
  found = sorted(
    path
    for path in pathlib.Path(directory).expanduser().rglob('*')
    if path.suffix in ALSO_SUFFIXES and path.is_file()
  )
  if not found:
    raise errors.DataError(
      f'--also={directory} holds no file that ends in '
      f'{", ".join(ALSO_SUFFIXES)}; give a directory of texts'
    )
  return found


def main(argv: Sequence[str]) -> None:
  """Writes the corpus and says what is in it."""
  del argv
  try:
    documents, size, skipped = write(
      _OUTPUT.value, sysconfig.get_path('stdlib'), _ALSO.value
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
