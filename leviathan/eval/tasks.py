"""The six tasks: what each asks of a row of its official file.

Prompts, choices, gold and normalisation are those of lm-evaluation-harness,
version HARNESS, without examples in front (zero shot).
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import re
from typing import Any
from typing import NamedTuple

HARNESS = '0.4.13'

Row = Mapping[str, Any]


class BadRow(Exception):
  """Why a row cannot be used; its place is put in front of the message."""


class Item(NamedTuple):
  """One question.

  Attributes:
    id: the file's own, or the row's number from 0.
    pairs: (context, continuation) of each choice.
    gold: index of the right choice; None where the one continuation is right
      if each of its tokens is the likeliest.
    lengths: characters of each choice; acc_norm divides by them.
  """

  id: str
  pairs: tuple[tuple[str, str], ...]
  gold: int | None
  lengths: tuple[int, ...] = ()


class Hub(NamedTuple):
  """Where the Hugging Face hub has the same rows."""

  path: str
  name: str | None
  split: str


class Labels(NamedTuple):
  """A file beside the rows with a label a line.

  Attributes:
    key: of the rows that it is, or must agree with.
    values: what stands there for each line there can be.
  """

  key: str
  values: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
  """Where the rows of a task are found.

  Attributes:
    files: sha256 of each official file by its name; the rows are in the first,
      labels in the second if there is one.
    hub: see Hub.
    folder: a word in the name of a folder around the files, or '' for any.
    labels: see Labels.
  """

  files: Mapping[str, str]
  hub: Hub
  folder: str = ''
  labels: Labels | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """One benchmark.

  Attributes:
    name: ours.
    harness_name: the harness's, whose `version` of the protocol is followed.
    source: its rows; the hub's name of the split is the task's.
    metrics: names of its figures.
    item: the Item of a row of the official file and its number from 0.
  """

  name: str
  harness_name: str
  source: Source
  metrics: tuple[str, ...]
  item: Callable[[Row, int], Item]
  version: float = 1.0


def _shown(value: Any) -> str:
  """A value for a message, cut where it is long."""
  text = repr(value)
  return text if len(text) <= 60 else text[:60] + '...'


def _value(row: Row, key: str) -> Any:
  """What stands under a key."""
  if not isinstance(row, Mapping):
    raise BadRow(f'has {_shown(row)} for an object with {key!r}')
  if key not in row:
    raise BadRow(f'has no key {key!r}, only {", ".join(row) or "none"}')
  return row[key]


def _text(row: Row, key: str, empty: bool = False) -> str:
  """The string under a key."""
  return _string(_value(row, key), key, empty)


def _string(value: Any, key: str, empty: bool = False) -> str:
  """`value` if it is a string with text that UTF-8 can hold."""
  if not isinstance(value, str) or not (value.strip() or empty):
    raise BadRow(f'has {_shown(value)} under {key!r}; text is wanted')
  try:
    value.encode()
  except UnicodeEncodeError as e:
    raise BadRow(f'has half a surrogate pair under {key!r}; mend it') from e
  return value


def _list(row: Row, key: str) -> list[Any]:
  """The list under a key, of two or more."""
  value = _value(row, key)
  if not isinstance(value, list) or len(value) < 2:
    raise BadRow(f'has {_shown(value)} under {key!r}; two or more are wanted')
  return value


def _index(row: Row, key: str, labels: list[Any]) -> int:
  """Which of the labels stands under a key."""
  value = _value(row, key)
  # True is 1 to Python, and no label.
  if isinstance(value, bool) or value not in labels:
    raise BadRow(
      f'has {_shown(value)} under {key!r}; one of '
      f'{", ".join(map(repr, labels))} is wanted'
    )
  return labels.index(value)


def _choices(
  identity: str, context: str, choices: list[str], gold: int
) -> Item:
  """One context before each of the choices, a space between."""
  return Item(
    id=identity,
    pairs=tuple((context, ' ' + choice) for choice in choices),
    gold=gold,
    lengths=tuple(len(choice) for choice in choices),
  )


def _arc(row: Row, number: int) -> Item:
  """ARC: 3 to 5 choices, labelled A, B, ... or 1, 2, ..."""
  del number
  question = _value(row, 'question')
  choices = _list(question, 'choices')
  labels = [_text(choice, 'label') for choice in choices]
  if len(set(labels)) < len(labels):
    raise BadRow(f'has a label twice: {", ".join(labels)}')
  return _choices(
    _text(row, 'id'),
    f'Question: {_text(question, "stem")}\nAnswer:',
    [_text(choice, 'text') for choice in choices],
    _index(row, 'answerKey', labels),
  )


_MARKER = re.compile(r'\[.*?\]')


def hellaswag_text(text: str) -> str:
  """The text without the markers of its WikiHow part.

  `[title]` ends a sentence, any other `[...]` goes. What then was two spaces
  is one; a space that a marker at the beginning leaves stays.
  """
  text = text.strip().replace(' [title]', '. ')
  return _MARKER.sub('', text).replace('  ', ' ')


def _hellaswag(row: Row, number: int) -> Item:
  """HellaSwag: four ends of a story, whose activity stands before it."""
  begun = _text(row, 'ctx_b', empty=True).capitalize()
  context = f'{_text(row, "activity_label")}: {_text(row, "ctx_a")} {begun}'
  endings = [
    _string(hellaswag_text(_string(ending, 'endings')), 'endings')
    for ending in _list(row, 'endings')
  ]
  return _choices(
    str(number),
    hellaswag_text(context),
    endings,
    _index(row, 'label', list(range(len(endings)))),
  )


def _piqa(row: Row, number: int) -> Item:
  """PIQA: which of two ways leads to the goal."""
  return _choices(
    str(number),
    f'Question: {_text(row, "goal")}\nAnswer:',
    [_text(row, 'sol1'), _text(row, 'sol2')],
    _index(row, 'label', [0, 1]),
  )


def _winogrande(row: Row, number: int) -> Item:
  """WinoGrande: the blank is filled, and what follows it is scored."""
  before, blank, after = _text(row, 'sentence').partition('_')
  if not blank or not after.strip():
    raise BadRow("has no blank `_` with text after it under 'sentence'")
  options = _text(row, 'option1'), _text(row, 'option2')
  return Item(
    # Its own id, qID, is not on the hub.
    id=str(number),
    pairs=tuple((before + o, ' ' + after.strip()) for o in options),
    gold=_index(row, 'answer', ['1', '2']),
  )


def _lambada(row: Row, number: int) -> Item:
  """LAMBADA: the last word of a passage."""
  context, space, word = _text(row, 'text').rpartition(' ')
  if not context or not word:
    raise BadRow("has no last word after a space under 'text'")
  return Item(id=str(number), pairs=((context, space + word),), gold=None)


def _jsonl(
  file: str, sha256: str, path: str, name: str | None, split: str
) -> Source:
  """Rows that are all in one file."""
  return Source(files={file: sha256}, hub=Hub(path, name, split))


TASKS = {
  task.name: task
  for task in (
    Task(
      name='hellaswag',
      harness_name='hellaswag',
      source=_jsonl(
        'hellaswag_val.jsonl',
        '0aa3b88843990f3f10a97b9575c94d7b71fb2205240ba04ae4884d9e9c992588',
        'Rowan/hellaswag',
        None,
        'validation',
      ),
      metrics=('acc', 'acc_norm'),
      item=_hellaswag,
    ),
    Task(
      name='arc_easy',
      harness_name='arc_easy',
      source=_jsonl(
        'ARC-Easy-Test.jsonl',
        'ce32a0774b4beb1977d2c6b16dda5dd2b24fdc9c7f506882c452678676bd09be',
        'allenai/ai2_arc',
        'ARC-Easy',
        'test',
      ),
      metrics=('acc', 'acc_norm'),
      item=_arc,
    ),
    Task(
      name='arc_challenge',
      harness_name='arc_challenge',
      source=_jsonl(
        'ARC-Challenge-Test.jsonl',
        '9fa8ffb3e3a1f88cb302d53dd95aae81e39209ad9bcf974376b319d8fd35717c',
        'allenai/ai2_arc',
        'ARC-Challenge',
        'test',
      ),
      metrics=('acc', 'acc_norm'),
      item=_arc,
    ),
    Task(
      name='piqa',
      harness_name='piqa',
      source=Source(
        files={
          'valid.jsonl': (
            '93503cc97c679e459b065c3d13e848282e44b2a25213985bed3e5d458abef72d'
          ),
          'valid-labels.lst': (
            'b4192dc3a2a0363d9d60ccf79800cbbe2f32ebb17726efdde6970e0b8131bceb'
          ),
        },
        hub=Hub('baber/piqa', None, 'validation'),
        folder='piqa',
        labels=Labels('label', {'0': 0, '1': 1}),
      ),
      metrics=('acc', 'acc_norm'),
      item=_piqa,
    ),
    Task(
      name='winogrande',
      harness_name='winogrande',
      source=Source(
        files={
          'dev.jsonl': (
            '1aeac79cf46a3dcbe59a71ca7e5372a1490cde2b4ae2387dc56f00378104d2e8'
          ),
          'dev-labels.lst': (
            '5ae1e30f52a50b880515685dcfae7d57649cce256d375947cdd02f687de7e6ba'
          ),
        },
        hub=Hub('allenai/winogrande', 'winogrande_xl', 'validation'),
        folder='winogrande',
        labels=Labels('answer', {'1': '1', '2': '2'}),
      ),
      metrics=('acc',),
      item=_winogrande,
    ),
    Task(
      name='lambada',
      harness_name='lambada_openai',
      source=_jsonl(
        'lambada_test.jsonl',
        '4aa8d02cd17c719165fc8a7887fddd641f43fcafa4b1c806ca8abc31fabdb226',
        'EleutherAI/lambada_openai',
        'default',
        'test',
      ),
      metrics=('perplexity', 'acc'),
      item=_lambada,
    ),
  )
}
