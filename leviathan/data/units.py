"""The first stage: text into units, of token ids and what was counted.

Files, or groups of small ones, are cut into blocks; each block becomes a unit,
a directory in WORK, in whatever order and by whatever worker.
"""

import array
import collections
from collections.abc import Callable
from collections.abc import Iterator
from concurrent import futures
import dataclasses
import functools
import hashlib
import json
from typing import Any
from typing import NamedTuple
import urllib.parse

from etils import epath
import numpy as np

from leviathan import errors
from leviathan.data import job as job_lib
from leviathan.data import outputs
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers

BAD_RECORDS_FILE = 'bad_records.jsonl'  # In the output, so no dataset's name.
# Names of files beside the datasets.
RESERVED = (BAD_RECORDS_FILE, 'token_order.npy', 'token_order.json')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """Every `parts`-th block of a group of files, from block `part` on."""

  group: int
  part: int
  parts: int


@dataclasses.dataclass(kw_only=True)
class Side:
  """What a unit has of one dataset."""

  dataset: str
  documents: int = 0
  bytes: int = 0
  tokens: int = 0


@dataclasses.dataclass(kw_only=True)
class Unit:
  """What was found in a block; `bad` is where, in full."""

  records: int = 0
  skipped: dict[str, int] = dataclasses.field(default_factory=dict)
  bad: list[dict[str, Any]] = dataclasses.field(default_factory=list)
  sides: list[Side] = dataclasses.field(default_factory=list)

  def skip(self, reason: str) -> None:
    """Counts a record that is no document."""
    self.skipped[reason] = self.skipped.get(reason, 0) + 1


def tasks(job: job_lib.Job, workers: int) -> list[Task]:
  """The work of the first stage, in pieces for so many workers.

  A file larger than a worker's share is cut into several tasks, each of which
  reads all of it: decompression is cheap beside tokenization.
  """
  sizes = [sum(file.bytes for file in group) for group in job.groups]
  share = max(1, sum(sizes) / workers)
  parts = [-(-size // share) for size in sizes]
  return [
    Task(group=group, part=part, parts=int(n))
    for group, n in enumerate(parts)
    for part in range(int(n))
  ]


def tokenize(job: job_lib.Job, task: Task, max_bad_records: int) -> None:
  """Makes the units of a task that are missing.

  Raises:
    DataError: a file cannot be read, or has more bad records than that.
  """
  whole = job.work / 'groups' / f'{task.group:05d}.json'

  def missing(block):
    mine = block % task.parts == task.part
    return mine and not _unit(job, task.group, block).exists()

  if whole.exists() and not any(map(missing, json.loads(whole.read_text()))):
    return
  paths = [file.name for file in job.groups[task.group]]
  found = []
  # A unit gets to the disk while the next is made.
  with futures.ThreadPoolExecutor(1) as writer:
    written = futures.Future()
    written.set_result(None)
    for block, documents in text.blocks(
      paths, job.format, job.block_bytes, missing
    ):
      found.append(block)
      if missing(block):
        path = _unit(job, task.group, block)
        save = _make_unit(job, path, documents, max_bad_records)
        written.result()
        written = writer.submit(save)
    written.result()
  with outputs.durable(whole) as temporary:
    temporary.write_text(json.dumps(found))


def progress(job: job_lib.Job) -> int:
  """About how many bytes of text the units so far hold."""
  try:
    names = [path.name for path in (job.work / 'units').iterdir()]
  except FileNotFoundError:  # Not begun, or over.
    return 0
  return sum(not name.startswith('.') for name in names) * job.block_bytes


def _unit(job: job_lib.Job, group: int, block: int) -> epath.Path:
  return job.work / 'units' / f'{group:05d}-{block:06d}'


class _Content:
  """The documents of one side, until they are written."""

  def __init__(self):
    self.hashes = array.array('Q')
    self._bytes = 0
    self._ids: list[array.array] = []
    self._places: list[tuple[str, int]] = []

  def add(
    self, document: text.Document, size: int, ids: array.array, digest: int
  ) -> None:
    """One document of so many bytes."""
    self._bytes += size
    self._ids.append(ids)
    self._places.append((document.path, document.line))
    self.hashes.append(digest)

  def side(self, name: str) -> Side:
    """What unit.json says of it."""
    return Side(
      dataset=name,
      documents=len(self._ids),
      bytes=self._bytes,
      tokens=sum(map(len, self._ids)),
    )

  def checked_ids(self, tokenizer: tokenizers.Tokenizer) -> np.ndarray:
    """The ids of all documents, one after another, each with its EOS.

    Checked together, which costs far less than one by one.

    Raises:
      DataError: the tokenizer made EOS or what is no id; names the document.
    """
    found = np.frombuffer(b''.join(self._ids), np.uint32)
    ends = np.count_nonzero(found == tokenizer.eos_id)
    if ends != len(self._ids) or found.max() >= tokenizer.vocab_size:
      for (path, line), ids in zip(self._places, self._ids, strict=True):
        _check(tokenizer, f'{path}:{line}', np.frombuffer(ids, np.uint32)[:-1])
    return found


def _make_unit(
  job: job_lib.Job,
  path: epath.Path,
  documents: Iterator[text.Document | text.BadRecord],
  max_bad_records: int,
) -> Callable[[], None]:
  """Makes one unit: `unit.json`, and ids and hashes of each side.

  Returns:
    What writes it.
  """
  tokenizer = job_lib.load_tokenizer(job)
  unit = Unit()
  contents: dict[str, _Content] = collections.defaultdict(_Content)
  for record in documents:
    unit.records += 1
    if isinstance(record, text.Document):
      if not record.text:
        unit.skip('empty_text')
        continue
      ids = _encode(tokenizer, record)
      if isinstance(ids, array.array):
        data = record.text.encode()
        digest = int.from_bytes(hashlib.sha256(data).digest()[:8], 'big')
        content = contents[_dataset(job, record.subset, digest)]
        content.add(record, len(data), ids, digest)
        continue
      record = ids
    unit.skip(record.reason)
    unit.bad.append(dataclasses.asdict(record))
    if len(unit.bad) > max_bad_records:
      raise _too_many(record, max_bad_records)
  sides = dict(sorted(contents.items()))
  return functools.partial(_save, path, unit, sides, tokenizer)


def _save(
  path: epath.Path,
  unit: Unit,
  contents: dict[str, _Content],
  tokenizer: tokenizers.Tokenizer,
) -> None:
  """Writes a unit; one file has all sides, since there may be many."""
  unit.sides = [content.side(name) for name, content in contents.items()]
  with outputs.durable(path) as temporary:
    temporary.mkdir()
    with open(temporary / 'ids', 'wb') as file:
      for content in contents.values():
        file.write(_little(content.checked_ids(tokenizer)).data)
    with open(temporary / 'hashes', 'wb') as file:
      for content in contents.values():
        file.write(_little(np.frombuffer(content.hashes, 'Q')).data)
    (temporary / 'unit.json').write_text(json.dumps(dataclasses.asdict(unit)))


def _too_many(bad: text.BadRecord, most: int) -> errors.DataError:
  """The refusal of the first bad record above what is allowed."""
  error = str(bad.error())
  if most:
    error += f' (more than --max_bad_records={most} records are bad)'
  return errors.DataError(error)


def _dataset(job: job_lib.Job, subset: str, digest: int) -> str:
  """The directory of a document's dataset, below the output."""
  parts = []
  if job.validation_fraction:
    held_out = digest < job.validation_fraction * 2**64
    parts.append('validation' if held_out else 'train')
  if job.format.split_by:
    # As people know it, but for what a directory's name cannot hold.
    # Commas separate the datasets of a config.
    name = urllib.parse.quote(subset, safe=' ()&')
    if name.startswith('.') or name in RESERVED:
      name = name.replace('.', '%2E', 1)
    parts.append(name)
  return '/'.join(parts)


def _encode(
  tokenizer: tokenizers.Tokenizer, document: text.Document
) -> array.array | text.BadRecord:
  """The ids of a document and an EOS, or why there are none."""
  try:
    ids = tokenizer.encode(document.text)
  except errors.DataError as e:
    return text.BadRecord(
      reason='not_tokenizable',
      message=f'cannot be tokenized: {e}',
      path=document.path,
      line=document.line,
    )
  ids.append(tokenizer.eos_id)
  return ids


def _check(
  tokenizer: tokenizers.Tokenizer, where: str, ids: np.ndarray
) -> None:
  """Raises DataError unless the ids of a document may stand in a dataset."""
  if (ids == tokenizer.eos_id).any():
    raise errors.DataError(
      f'{where}: the tokenizer makes end-of-sequence, id '
      f'{tokenizer.eos_id}, out of its text; use another tokenizer'
    )
  if ids.size and ids.max() >= tokenizer.vocab_size:
    raise errors.DataError(
      f'{where}: the tokenizer makes id {ids.max()}, outside [0, '
      f'{tokenizer.vocab_size}); use another tokenizer'
    )


def _little(values: np.ndarray) -> np.ndarray:
  """The values, little-endian."""
  return values.astype(values.dtype.newbyteorder('<'), copy=False)


class Place(NamedTuple):
  """A side, and how many tokens and documents of its unit come before it."""

  path: epath.Path
  tokens: int
  documents: int
  side: Side


@dataclasses.dataclass(frozen=True)
class Units:
  """All units of a finished first stage, in the order of the inputs."""

  paths: list[epath.Path]
  units: list[Unit]

  @functools.cached_property
  def datasets(self) -> list[str]:
    """The datasets there will be."""
    return sorted({side.dataset for u in self.units for side in u.sides})

  @functools.cached_property
  def skipped(self) -> dict[str, int]:
    """Records that are no document, counted by reason."""
    total = collections.Counter()
    for unit in self.units:
      total.update(unit.skipped)
    return dict(sorted(total.items()))

  @property
  def bad(self) -> list[dict[str, Any]]:
    """All bad records."""
    return [bad for unit in self.units for bad in unit.bad]

  @property
  def documents(self) -> int:
    """Documents of all datasets."""
    return sum(side.documents for u in self.units for side in u.sides)

  def sides(self, dataset: str) -> list[Place]:
    """Of each unit that has any of a dataset, what it has, and where."""
    found = []
    for path, unit in zip(self.paths, self.units, strict=True):
      tokens = documents = 0
      for side in unit.sides:
        if side.dataset == dataset:
          found.append(Place(path, tokens, documents, side))
        tokens += side.tokens
        documents += side.documents
    return found

  def hashes(self, dataset: str) -> np.ndarray:
    """The hash of each document of a dataset."""
    kind = np.dtype('<u8')
    return np.concatenate(
      [
        np.fromfile(
          place.path / 'hashes',
          kind,
          count=place.side.documents,
          offset=place.documents * kind.itemsize,
        )
        for place in self.sides(dataset)
      ]
    )


def read(job: job_lib.Job, max_bad_records: int) -> Units:
  """What the first stage has made.

  Raises:
    DataError: it is not finished, or there are more bad records than that.
  """
  paths = []
  for group in range(len(job.groups)):
    whole = job.work / 'groups' / f'{group:05d}.json'
    blocks = json.loads(whole.read_text()) if whole.exists() else [0]
    paths += [_unit(job, group, block) for block in blocks]
  for path in paths:
    if not path.exists():
      raise errors.DataError(
        f'{path} is missing: not all shards have run; run them again, or '
        'without --shard'
      )
  units = Units(paths, [_read_unit(path) for path in paths])
  if len(units.bad) > max_bad_records:
    first = text.BadRecord(**units.bad[max_bad_records])
    raise _too_many(first, max_bad_records)
  return units


def _read_unit(path: epath.Path) -> Unit:
  values = json.loads((path / 'unit.json').read_text())
  sides = [Side(**side) for side in values.pop('sides')]
  return Unit(sides=sides, **values)
