"""The second stage: the rows of each dataset, shuffled, go into shards."""

from collections.abc import Sequence
import dataclasses
import hashlib

from etils import epath
import numpy as np

from leviathan.data import counts
from leviathan.data import job as job_lib
from leviathan.data import manifest as manifest_lib
from leviathan.data import order
from leviathan.data import outputs
from leviathan.data import records
from leviathan.data import stream
from leviathan.data import units as units_lib

# A shard has at least so many bytes, so that small datasets have one file; and
# there are at most so many shards, each of which a reader holds open.
_SHARD_BYTES = 64 << 20
_SHARDS = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
  """Shard `index` of `count` of a dataset, made from some units.

  All that writing needs of the tokenizer is here: large ones take long to load.
  """

  dataset: str
  index: int
  count: int
  parts: tuple[stream.Part, ...]
  eos_id: int
  vocab_size: int

  @property
  def name(self) -> str:
    """The file's."""
    return f'shard-{self.index:05d}-of-{self.count:05d}.array_record'


def tasks(job: job_lib.Job, units: units_lib.Units) -> list[Task]:
  """The work of the second stage."""
  tokenizer = job_lib.load_tokenizer(job)
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
      Task(
        dataset=dataset,
        index=i,
        count=count,
        parts=parts,
        eos_id=tokenizer.eos_id,
        vocab_size=tokenizer.vocab_size,
      )
      for i in range(count)
    ]
  return found


def write(job: job_lib.Job, task: Task) -> None:
  """Writes a shard, and beside the output its counts, unless it is there."""
  directory = job.work / 'output' / task.dataset
  facts = _facts(job, task)
  if facts.exists() and (directory / task.name).exists():
    return
  directory.mkdir(parents=True, exist_ok=True)
  facts.parent.mkdir(parents=True, exist_ok=True)
  source = stream.Stream(task.parts, task.eos_id)
  sequences = source.sequences(job.seq_len)
  indices = np.arange(
    task.index * sequences // task.count,
    (task.index + 1) * sequences // task.count,
  )
  if job.shuffle_seed is not None:
    indices = order.permute(indices, sequences, job.shuffle_seed)
  counts_V = np.zeros(task.vocab_size, np.int64)

  def counted():
    for rows in source.rows(indices, job.seq_len):
      # In the type that they are counted in, at once.
      targets = rows[:, 1:].astype(np.int64).ravel()
      if rows[:, -1].max() == records.PAD:  # Rarely; the mask costs time.
        targets = targets[targets != records.PAD]
      counts_V[:] += counts.unigram_counts(targets, task.vocab_size)
      yield from rows

  with outputs.durable(directory / task.name) as temporary:
    records.write_shard(temporary, counted())
  with open(directory / task.name, 'rb') as file:
    sha256 = hashlib.file_digest(file, 'sha256').hexdigest()
  with outputs.durable(facts) as temporary, temporary.open('wb') as file:
    np.savez(file, counts=counts_V, sequences=len(indices), sha256=sha256)


def _facts(job: job_lib.Job, task: Task) -> epath.Path:
  """What is known of a shard; that the file is there says it is whole."""
  return job.work / 'shards' / task.dataset / f'{task.name}.npz'


def read(
  job: job_lib.Job, tasks_: Sequence[Task]
) -> tuple[np.ndarray, tuple[manifest_lib.Shard, ...]]:
  """Of shards that are written, counts_V of all and the manifest's entries."""
  facts = [np.load(_facts(job, task)) for task in tasks_]
  counts_V = np.sum([fact['counts'] for fact in facts], axis=0)
  entries = tuple(
    manifest_lib.Shard(
      name=task.name,
      sequences=int(fact['sequences']),
      sha256=str(fact['sha256']),
    )
    for task, fact in zip(tasks_, facts, strict=True)
  )
  return counts_V, entries
