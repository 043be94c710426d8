"""From text to datasets, in stages that can be killed, shared out and rerun.

1. `tokenize`: files, or groups of small ones, are cut into blocks; each block
   becomes a unit, a directory of token ids and what was counted.
2. `write`: the rows of each dataset, in a seeded random order, go into shards.
3. `finish`: counts, manifests and tokenizers are added, and all of it appears
   under its name.

What is done stands in WORK, a hidden sibling of the output, under a name that
appears whole: a rerun does only what is missing there. Neither the number of
workers nor how the work was shared out changes a byte of the result.
"""

import array
import collections
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import itertools
import json
from typing import Any
from typing import NamedTuple
import urllib.parse

from etils import epath
import numpy as np

from leviathan import config as config_lib
from leviathan import errors
from leviathan.data import counts
from leviathan.data import manifest as manifest_lib
from leviathan.data import order
from leviathan.data import outputs
from leviathan.data import records
from leviathan.data import stream
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers
from leviathan.data import workers

BAD_RECORDS_FILE = 'bad_records.jsonl'
# A shard has at least so many bytes, so that small datasets have one file; and
# there are at most so many shards, each of which a reader holds open.
_SHARD_BYTES = 64 << 20
_SHARDS = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """What to make of which files, and where; all that determines the result.

  Attributes:
    output: the directory to make.
    inputs: the files, in order.
    tokenizer: SPEC, see tokenizers.load.
    tokenizer_sha256: of the model file.
    format: how records are read.
    seq_len: L, in tokens.
    validation_fraction: share of the documents that goes to a dataset of its
      own, in [0, 1); the side depends on the text alone, so copies of one text
      are never on both.
    shuffle_seed: of the order of the rows; None keeps that of the inputs.
    block_bytes: of uncompressed input in a unit; by default some seconds of
      work, so that little is lost and few files are made.
  """

  output: epath.Path
  inputs: tuple[manifest_lib.Input, ...]
  tokenizer: str
  tokenizer_sha256: str
  format: text.Format
  seq_len: int
  validation_fraction: float = 0.0
  shuffle_seed: int | None = 0
  block_bytes: int = 8 << 20

  def __post_init__(self):
    if self.seq_len < 1:
      raise errors.ConfigError(f'seq_len={self.seq_len}; give 1 or more tokens')
    if not 0 <= self.validation_fraction < 1:
      raise errors.ConfigError(
        f'validation_fraction={self.validation_fraction}; give one in [0, 1)'
      )
    if self.shuffle_seed is not None and not 0 <= self.shuffle_seed < 2**64:
      raise errors.ConfigError(
        f'shuffle_seed={self.shuffle_seed}; give one from 0 to 2**64 - 1'
      )
    if self.format.max_record_bytes < 1:
      raise errors.ConfigError(
        f'max_record_bytes={self.format.max_record_bytes}; give 1 or more'
      )

  @property
  def work(self) -> epath.Path:
    """WORK, where what is done so far stands."""
    return self.output.parent / f'.{self.output.name}.incomplete'

  @functools.cached_property
  def groups(self) -> list[list[manifest_lib.Input]]:
    """The files, small ones together up to the size of a block."""
    groups: list[list[manifest_lib.Input]] = []
    room = 0
    for file in self.inputs:
      if not groups or file.bytes > room:
        groups.append([])
        room = self.block_bytes
      groups[-1].append(file)
      room -= file.bytes
    return groups

  def identity(self) -> dict[str, Any]:
    """Field by field, all that determines the result, as JSON has it."""
    fields = dataclasses.asdict(self)
    del fields['output'], fields['tokenizer']
    return json.loads(json.dumps(fields))


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


def run(
  job: Job, workers_: int = 1, max_bad_records: int = 0
) -> dict[epath.Path, manifest_lib.Manifest]:
  """All stages on this machine; see there."""
  start(job)
  with _alone(job):
    try:
      run_tokenize(job, workers_, max_bad_records)
      units = read_units(job, max_bad_records)
    except errors.UserError:
      if not progress(job):
        clear(job)  # Nothing is lost, and the mended input is another job.
      raise
    todo = [(job, task) for task in shard_tasks(job, units)]
    workers.run(write, todo, workers_)
    return finish(job, units)


def run_tokenize(
  job: Job,
  workers_: int,
  max_bad_records: int,
  share: int = 0,
  shares: int = 1,
) -> None:
  """One share of the first stage on this machine."""
  todo = tasks(job, shares * workers_)[share::shares]
  workers.run(
    tokenize, [(job, task, max_bad_records) for task in todo], workers_
  )


def start(job: Job) -> None:
  """Makes WORK, or finds that of the same job.

  Raises:
    DataError: the output exists, or WORK is another job's.
  """
  if _is_finished(job):
    clear(job)  # Killed when all but this was done.
  outputs.check_free(job.output)
  file = job.work / 'job.json'
  (job.work / 'units').mkdir(parents=True, exist_ok=True)
  (job.work / 'groups').mkdir(exist_ok=True)
  if not file.exists():
    with outputs.durable(file) as temporary:
      temporary.write_text(json.dumps(job.identity()))
  theirs, ours = json.loads(file.read_text()), job.identity()
  changed = config_lib.differences(
    config_lib.flatten(theirs, ''), config_lib.flatten(ours, '')
  )
  for field, (old, new) in changed.items():
    if isinstance(old, list):  # Of files: the first that is not the same.
      old, new = next(
        pair for pair in itertools.zip_longest(old, new) if pair[0] != pair[1]
      )
    raise errors.DataError(
      f'{job.work} holds the unfinished work of another job ({field[1:]}: '
      f'{old} there, {new} here); give the same flags to go on, or remove it'
    )


def _is_finished(job: Job) -> bool:
  """Whether the output has been moved out of WORK to its name."""
  moved = (job.work / 'shards').exists() and not (job.work / 'output').exists()
  return moved and job.output.is_dir() and any(job.output.iterdir())


@contextlib.contextmanager
def _alone(job: Job) -> Iterator[None]:
  """Keeps a second process of this kind out of WORK.

  Raises:
    DataError: one is at work there.
  """
  with open(job.work / 'lock', 'w') as file:
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
      raise errors.DataError(
        f'{job.work}: another process is at work there; wait for its end'
      ) from e
    except OSError:
      pass  # A disk without locks.
    yield


def tasks(job: Job, workers: int) -> list[Task]:
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


def tokenize(job: Job, task: Task, max_bad_records: int) -> None:
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


def progress(job: Job) -> int:
  """About how many bytes of text the units so far hold."""
  try:
    names = [path.name for path in (job.work / 'units').iterdir()]
  except FileNotFoundError:  # Not begun, or over.
    return 0
  return sum(not name.startswith('.') for name in names) * job.block_bytes


def _unit(job: Job, group: int, block: int) -> epath.Path:
  return job.work / 'units' / f'{group:05d}-{block:06d}'


def _make_unit(
  job: Job,
  path: epath.Path,
  documents: Iterator[text.Document | text.BadRecord],
  max_bad_records: int,
) -> None:
  """Writes one unit: `unit.json`, and ids and hashes of each side."""
  tokenizer = load_tokenizer(job)
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


def _dataset(job: Job, subset: str, digest: int) -> str:
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


def load_tokenizer(job: Job) -> tokenizers.Tokenizer:
  """The tokenizer of a job, loaded once in a process."""
  tokenizer = tokenizers.load_once(job.tokenizer)
  if tokenizer.sha256 != job.tokenizer_sha256:
    raise errors.DataError(
      f'tokenizer={job.tokenizer!r} has changed since the job began; restore '
      f'the file of sha256 {job.tokenizer_sha256[:12]}'
    )
  return tokenizer


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


def read_units(job: Job, max_bad_records: int) -> Units:
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
  units = [_read_unit(path) for path in paths]
  bad = [bad for unit in units for bad in unit.bad]
  if len(bad) > max_bad_records:
    raise _too_many(text.BadRecord(**bad[max_bad_records]), max_bad_records)
  return Units(paths, units)


def _read_unit(path: epath.Path) -> Unit:
  values = json.loads((path / 'unit.json').read_text())
  sides = [Side(**side) for side in values.pop('sides')]
  return Unit(sides=sides, **values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardTask:
  """Shard `index` of `count` of a dataset, made from some units."""

  dataset: str
  index: int
  count: int
  parts: tuple[stream.Part, ...]

  @property
  def name(self) -> str:
    """The file's."""
    return f'shard-{self.index:05d}-of-{self.count:05d}.array_record'


def shard_tasks(job: Job, units: Units) -> list[ShardTask]:
  """The work of the second stage."""
  found = []
  for dataset in units.datasets:
    parts = tuple(
      stream.Part(str(place.path / 'ids'), place.tokens, place.side.tokens)
      for place in units.sides(dataset)
    )
    rows = -(-sum(part.tokens for part in parts) // job.seq_len)
    size = rows * (job.seq_len + 1) * records.ID.itemsize
    count = min(rows, _SHARDS, -(-size // _SHARD_BYTES))
    found += [
      ShardTask(dataset=dataset, index=i, count=count, parts=parts)
      for i in range(count)
    ]
  return found


def write(job: Job, task: ShardTask) -> None:
  """Writes a shard, and beside the output its counts, unless it is there."""
  directory = job.work / 'output' / task.dataset
  facts = _facts(job, task)
  if facts.exists() and (directory / task.name).exists():
    return
  directory.mkdir(parents=True, exist_ok=True)
  facts.parent.mkdir(parents=True, exist_ok=True)
  tokenizer = load_tokenizer(job)
  source = stream.Stream(task.parts, tokenizer.eos_id)
  sequences = source.sequences(job.seq_len)
  indices = np.arange(
    task.index * sequences // task.count,
    (task.index + 1) * sequences // task.count,
  )
  if job.shuffle_seed is not None:
    indices = order.permute(indices, sequences, job.shuffle_seed)
  counts_V = np.zeros(tokenizer.vocab_size, np.int64)

  def counted():
    for rows in source.rows(indices, job.seq_len):
      targets = rows[:, 1:].ravel()
      if rows[:, -1].max() == records.PAD:  # Rarely; the mask costs time.
        targets = targets[targets != records.PAD]
      counts_V[:] += counts.unigram_counts(targets, tokenizer.vocab_size)
      yield from rows

  with outputs.durable(directory / task.name) as temporary:
    records.write_shard(temporary, counted())
  with open(directory / task.name, 'rb') as file:
    sha256 = hashlib.file_digest(file, 'sha256').hexdigest()
  with outputs.durable(facts) as temporary, temporary.open('wb') as file:
    np.savez(file, counts=counts_V, sequences=len(indices), sha256=sha256)


def _facts(job: Job, task: ShardTask) -> epath.Path:
  """What is known of a shard; that the file is there says it is whole."""
  return job.work / 'shards' / task.dataset / f'{task.name}.npz'


def finish(job: Job, units: Units) -> dict[epath.Path, manifest_lib.Manifest]:
  """Makes the output of the shards, and clears WORK.

  Returns:
    The manifest of each dataset, by its directory.

  Raises:
    DataError: a dataset would have no tokens.
  """
  wanted = ('train', 'validation') if job.validation_fraction else ('',)
  for side in wanted:
    if not any(name.startswith(side) for name in units.datasets):
      skipped = sum(units.skipped.values())
      clear(job)
      raise errors.DataError(
        f'dataset {job.output / side} would have 0 tokens ({skipped} records '
        'skipped); give more text'
        f'{side and " or another --validation_fraction"}'
      )
  tasks_ = shard_tasks(job, units)
  manifests = {
    job.output / name: _describe(
      job, units, name, [task for task in tasks_ if task.dataset == name]
    )
    for name in units.datasets
  }
  bad = [bad for unit in units.units for bad in unit.bad]
  if bad:
    lines = ''.join(json.dumps(row, ensure_ascii=False) + '\n' for row in bad)
    (job.work / 'output' / BAD_RECORDS_FILE).write_text(lines)
  outputs.sync(job.work / 'output')
  outputs.check_free(job.output)
  if job.output.exists():
    job.output.rmdir()
  (job.work / 'output').rename(job.output)
  outputs.sync(job.output.parent, deep=False)
  clear(job)
  return manifests


def clear(job: Job) -> None:
  """Removes WORK; what says whose it is goes last."""
  for name in ('output', 'units', 'shards', 'groups'):
    (job.work / name).rmtree(missing_ok=True)
  job.work.rmtree(missing_ok=True)


def _copy_tokenizer(job: Job, directory: epath.Path) -> manifest_lib.Tokenizer:
  """Saves the tokenizer in a dataset; returns the entry of its manifest."""
  tokenizer = load_tokenizer(job)
  return manifest_lib.Tokenizer(
    kind=tokenizer.kind,
    sha256=tokenizer.sha256,
    vocab_size=tokenizer.vocab_size,
    eos_id=tokenizer.eos_id,
    file=tokenizer.save(directory).name,
  )


def _hashes(place: Place) -> np.ndarray:
  """The hashes of a side's documents."""
  kind = np.dtype('<u8')
  return np.fromfile(
    place.path / 'hashes',
    kind,
    count=place.side.documents,
    offset=place.documents * kind.itemsize,
  )


def _describe(
  job: Job, units: Units, dataset: str, shards: Sequence[ShardTask]
) -> manifest_lib.Manifest:
  """Writes what stands beside the shards of a dataset."""
  directory = job.work / 'output' / dataset
  for path in directory.glob('.*'):
    path.unlink()  # Of processes that were killed.
  places = units.sides(dataset)
  facts = [np.load(_facts(job, task)) for task in shards]
  counts_V = np.sum([fact['counts'] for fact in facts], axis=0)
  np.save(directory / records.COUNTS_FILE, counts_V)
  hashes = np.sort(np.concatenate(list(map(_hashes, places))))
  np.save(directory / records.HASHES_FILE, hashes)
  tokenizer = _copy_tokenizer(job, directory)
  shards_ = tuple(
    manifest_lib.Shard(
      name=task.name,
      sequences=int(fact['sequences']),
      sha256=str(fact['sha256']),
    )
    for task, fact in zip(shards, facts, strict=True)
  )
  documents = sum(place.side.documents for place in places)
  everywhere = sum(s.documents for unit in units.units for s in unit.sides)
  manifest = manifest_lib.Manifest(
    format_version=manifest_lib.FORMAT_VERSION,
    tokenizer=tokenizer,
    seq_len=job.seq_len,
    shuffle_seed=job.shuffle_seed,
    sequences=sum(shard.sequences for shard in shards_),
    tokens=int(counts_V.sum()),
    documents=documents,
    duplicates=int((hashes[1:] == hashes[:-1]).sum()),
    bytes=sum(place.side.bytes for place in places),
    records=sum(unit.records for unit in units.units),
    elsewhere=everywhere - documents,
    skipped=units.skipped,
    inputs=job.inputs,
    shards=shards_,
    fingerprint=manifest_lib.fingerprint(
      tokenizer, job.seq_len, job.shuffle_seed, shards_
    ),
  )
  (directory / manifest_lib.FILE).write_text(manifest.to_json())
  return manifest
