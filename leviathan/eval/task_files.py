"""The rows of the tasks: official files below a folder, or the hub's.

The hub's rows have other keys than the official files'. They are turned into
official rows as they are read, and by `hub_rows` the other way.
"""

from collections.abc import Iterable
from collections.abc import Iterator
import hashlib
import json
import logging
from typing import Any
from typing import NamedTuple

from etils import epath

from leviathan import errors
from leviathan.eval import tasks


class Data(NamedTuple):
  """What was read of a task.

  Attributes:
    rows: as in the official file, labels among them.
    items: one a row, in order.
    source: the official file's name, or the address on the hub.
    sha256: of each file that was read, by name; for the hub, of its rows.
  """

  rows: list[dict[str, Any]]
  items: list[tasks.Item]
  source: str
  sha256: dict[str, str]


def read(task: tasks.Task, directory: epath.PathLike | None) -> Data:
  """The items of a task.

  Args:
    task: one of tasks.TASKS.
    directory: the official files are below it, at any depth; None takes the
      rows from the Hugging Face hub.

  Raises:
    DataError: a file is missing, there twice, or damaged; the hub is out of
      reach.
    ConfigError: the hub's library is not installed.
  """
  if directory is None:
    source = address(task.source.hub)
    try:
      rows = [_official(row) for row in from_hub(task.source.hub)]
    except (KeyError, TypeError, ValueError) as e:
      raise errors.DataError(
        f'{source} has rows of another form than they had ({e!r}); give '
        '--task_data=DIR with the official files'
      ) from e
    sha256 = {source: digest(jsonl(rows).encode())}
    wheres = [f'{source}, row {i}' for i in range(len(rows))]
  else:
    path = find(task.source, directory)
    data = read_file(path)
    source, sha256 = path.name, {path.name: digest(data)}
    rows = [_parsed(line, where) for where, line in _lines(path, data)]
    wheres = [f'{path}:{i}' for i in range(1, len(rows) + 1)]
    if task.source.labels:
      sha256 |= _add_labels(task.source, path, rows)
  if not rows:
    raise errors.DataError(f'{source} has no rows; fetch it again')
  items = [
    _item(task, row, i, where)
    for i, (row, where) in enumerate(zip(rows, wheres, strict=True))
  ]
  return Data(rows, items, source, sha256)


def _item(task: tasks.Task, row: Any, number: int, where: str) -> tasks.Item:
  """The item of a row that stands at `where`."""
  try:
    return task.item(row, number)
  except tasks.BadRow as e:
    raise errors.DataError(f'{where} {e}') from e


def find(source: tasks.Source, directory: epath.PathLike) -> epath.Path:
  """The official file with the rows.

  Raises:
    DataError: there is none below `directory`, or more than one.
  """
  top = epath.Path(directory).expanduser()
  if not top.is_absolute():  # A bucket is; this would mangle its name.
    top = top.absolute()
  file = next(iter(source.files))
  if not top.is_dir():
    raise errors.DataError(f'--task_data={top} is not a folder; check the path')
  where = f'below {top}' + (
    f' in a folder with {source.folder!r} in its name' if source.folder else ''
  )
  found = [
    path
    for path in _below(top)
    if path.name == file
    and source.folder in f'{top.name}/{path.parent.relative_to(top)}'.lower()
  ]
  if not found:
    raise errors.DataError(
      f'--task_data: no {file} {where}; put the official file there, or leave '
      "--task_data out to take the Hugging Face hub's rows"
    )
  if len(found) > 1:
    raise errors.DataError(
      f'--task_data: {len(found)} files {file} {where} ({found[0]}, '
      f'{found[1]}); leave one of them there, or give a folder with one'
    )
  return found[0]


def _below(directory: epath.Path) -> Iterator[epath.Path]:
  """The files at any depth, without those that are hidden."""
  try:
    inside = sorted(directory.iterdir())
    for path in inside:
      if not path.name.startswith('.'):
        yield from _below(path) if path.is_dir() else [path]
  except OSError as e:
    raise errors.DataError(
      f'{directory} cannot be searched ({e.strerror}); give another --task_data'
    ) from e


def read_file(path: epath.Path) -> bytes:
  """The bytes of a file that holds some.

  Raises:
    DataError: it cannot be read, or is empty.
  """
  try:
    data = path.read_bytes()
  except OSError as e:
    raise errors.DataError(
      f'{path} cannot be read ({e.strerror}); check that it is yours to read'
    ) from e
  if not data.strip():
    raise errors.DataError(f'{path} holds nothing; fetch it again')
  return data


def _lines(path: epath.Path, data: bytes) -> Iterator[tuple[str, str]]:
  """(FILE:LINE, line) of each; the last may lack its line feed."""
  for i, line in enumerate(data.removesuffix(b'\n').split(b'\n'), start=1):
    where = f'{path}:{i}'
    try:
      text = line.decode()
    except UnicodeDecodeError as e:
      raise errors.DataError(
        f'{where} is not UTF-8 ({e.reason}); fetch the file again'
      ) from e
    if not text.strip():
      raise errors.DataError(f'{where} is empty; fetch the file again')
    yield where, text


def _parsed(line: str, where: str) -> dict[str, Any]:
  """The object that a line is."""
  try:
    row = json.loads(line)
  except (ValueError, RecursionError) as e:
    raise errors.DataError(
      f'{where} is not valid JSON ({e}); fetch the file again'
    ) from e
  if not isinstance(row, dict):
    raise errors.DataError(f'{where} is no JSON object; fetch the file again')
  return row


def _add_labels(
  source: tasks.Source, path: epath.Path, rows: list[dict[str, Any]]
) -> dict[str, str]:
  """Puts the labels into the rows, or compares them; {file: sha256}."""
  assert source.labels
  key, values = source.labels
  file = path.with_name(list(source.files)[1])
  if not file.exists():
    if all(key in row for row in rows):
      return {}
    raise errors.DataError(
      f'{path} has rows without {key!r}, and there is no {file.name} beside '
      'it; put the official file there'
    )
  data = read_file(file)
  lines = list(_lines(file, data))
  if len(lines) != len(rows):
    raise errors.DataError(
      f'{file} has {len(lines)} labels for the {len(rows)} rows of '
      f'{path.name}; fetch both again'
    )
  for row, (where, line) in zip(rows, lines, strict=True):
    label = values.get(line.strip())
    if label is None:
      raise errors.DataError(
        f'{where} is {line.strip()!r}; one of {", ".join(values)} is wanted'
      )
    if row.setdefault(key, label) != label:
      raise errors.DataError(
        f'{where} is {label!r}, and {path.name} has {row[key]!r} under '
        f'{key!r} there; fetch both again'
      )
  return {file.name: digest(data)}


def address(hub: tasks.Hub) -> str:
  """One line for people."""
  return f'{"/".join(filter(None, (hub.path, hub.name)))}, {hub.split}'


def from_hub(hub: tasks.Hub) -> list[dict[str, Any]]:
  """Rows from the Hugging Face hub, as they are there.

  Raises:
    ConfigError: its library is not installed.
    DataError: they cannot be had.
  """
  try:
    import datasets
  except ImportError as e:
    raise errors.ConfigError(
      'the rows of tasks come through the package `datasets`; '
      "pip install 'leviathan[eval]', or give --task_data=DIR with the "
      'official files'
    ) from e
  # It tells every attempt; the last one's error says enough.
  for name in ('datasets', 'huggingface_hub'):
    logging.getLogger(name).setLevel(logging.ERROR)
  try:
    rows: Any = datasets.load_dataset(hub.path, hub.name, split=hub.split)
    return list(rows)
  except Exception as e:  # Of several libraries: network, cache, file formats.
    raise errors.DataError(
      f'{address(hub)} cannot be had from the Hugging Face hub '
      f'({type(e).__name__}: {errors.first_line(e)}); give --task_data=DIR '
      'with the official files'
    ) from e


def _official(row: dict[str, Any]) -> dict[str, Any]:
  """A row of the hub as it is in the official file."""
  if isinstance(choices := row.get('choices'), dict):  # ARC.
    pairs = zip(choices['text'], choices['label'], strict=True)
    question = {
      'stem': row['question'],
      'choices': [{'text': text, 'label': label} for text, label in pairs],
    }
    return {
      'id': row['id'],
      'question': question,
      'answerKey': row['answerKey'],
    }
  if str(row.get('label')).isdigit():  # HellaSwag has it as a string.
    return row | {'label': int(row['label'])}
  return row


def hub_rows(task: tasks.Task, rows: Iterable[dict[str, Any]]) -> str:
  """Official rows as JSON lines with the keys that they have on the hub."""
  return jsonl(_of_hub(task, row) for row in rows)


def _of_hub(task: tasks.Task, row: dict[str, Any]) -> dict[str, Any]:
  """The reverse of `_official`."""
  if isinstance(question := row.get('question'), dict):
    choices = question['choices']
    return row | {
      'question': question['stem'],
      'choices': {k: [c[k] for c in choices] for k in ('text', 'label')},
    }
  if task.name == 'hellaswag':
    return row | {'label': str(row['label'])}
  return row


def jsonl(rows: Iterable[dict[str, Any]]) -> str:
  """A line a row."""
  return ''.join(json.dumps(row) + '\n' for row in rows)


def digest(data: bytes) -> str:
  """sha256 in hex."""
  return hashlib.sha256(data).hexdigest()
