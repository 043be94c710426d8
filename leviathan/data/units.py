"""The first stage: text into units, of token ids and what was counted.

Files, or groups of small ones, are cut into blocks; each block becomes a unit,
a directory in WORK, in whatever order and by whatever worker.
"""

import array
import collections
from collections.abc import Iterator
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
  for block, documents in text.blocks(
    paths, job.format, job.block_bytes, missing
  ):
    found.append(block)
    if missing(block):
      _make_unit(job, _unit(job, task.group, block), documents, max_bad_records)
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


def _make_unit(
  job: job_lib.Job,
  path: epath.Path,
  documents: Iterator[text.Document | text.BadRecord],
  max_bad_records: int,
) -> None:
  """Writes one unit: `unit.json`, and ids and hashes of each side."""
  tokenizer = job_lib.load_tokenizer(job)
  unit = Unit()
  sides: dict[str, Side] = {}
  ids: dict[str, array.array] = {}
  hashes: dict[str, array.array] = {}
  for record in documents:
    unit.records += 1
    if isinstance(record, text.Document):
      if not record.text:
        unit.skip('empty_text')
        continue
      new = _encode(tokenizer, record)
      if isinstance(new, array.array):
        content = record.text.encode()
        digest = int.from_bytes(hashlib.sha256(content).digest()[:8], 'big')
        name = _dataset(job, record.subset, digest)
        if name not in sides:
          sides[name] = Side(dataset=name)
          ids[name], hashes[name] = array.array('I'), array.array('Q')
        ids[name].extend(new)
        hashes[name].append(digest)
        sides[name].documents += 1
        sides[name].bytes += len(content)
        sides[name].tokens += len(new)
        continue
      record = new
    unit.skip(record.reason)
    unit.bad.append(dataclasses.asdict(record))
    if len(unit.bad) > max_bad_records:
      raise _too_many(record, max_bad_records)
  unit.sides = [sides[name] for name in sorted(sides)]
  with outputs.durable(path) as temporary:
    temporary.mkdir()
    # One file of all sides, one after another: there may be many.
    for name, values in (('ids', ids), ('hashes', hashes)):
      with open(temporary / name, 'wb') as file:
        for side in unit.sides:
          file.write(_little(values[side.dataset]).data)
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
    if name.startswith('.') or name == BAD_RECORDS_FILE:
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
  found = np.frombuffer(ids, np.uint32)
  if (found == tokenizer.eos_id).any():
    raise errors.DataError(
      f'{document.where}: the tokenizer makes end-of-sequence, id '
      f'{tokenizer.eos_id}, out of its text; use another tokenizer'
    )
  if found.size and found.max() >= tokenizer.vocab_size:
    raise errors.DataError(
      f'{document.where}: the tokenizer makes id {found.max()}, outside [0, '
      f'{tokenizer.vocab_size}); use another tokenizer'
    )
  del found  # An array that is looked into cannot grow.
  ids.append(tokenizer.eos_id)
  return ids


def _little(values: array.array) -> np.ndarray:
  """The values, little-endian."""
  native = np.frombuffer(values, values.typecode)
  return native.astype(native.dtype.newbyteorder('<'), copy=False)


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
