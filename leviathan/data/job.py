"""What to make of which text, and WORK, where what is done so far stands.

WORK is a hidden sibling of the output. All in it has a name that appears whole,
so a job that was killed goes on there.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import fcntl
import functools
import itertools
import json
from typing import Any

from etils import epath

from leviathan import config as config_lib
from leviathan import errors
from leviathan.data import manifest as manifest_lib
from leviathan.data import outputs
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers


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
def alone(job: Job) -> Iterator[None]:
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


def clear(job: Job) -> None:
  """Removes WORK; what says whose it is goes last."""
  for name in ('output', 'units', 'shards', 'groups'):
    (job.work / name).rmtree(missing_ok=True)
  job.work.rmtree(missing_ok=True)


def load_tokenizer(job: Job) -> tokenizers.Tokenizer:
  """The tokenizer of a job, loaded once in a process.

  Raises:
    DataError: its file is missing, or is not the one that the job began with.
  """
  tokenizer = tokenizers.load_once(job.tokenizer)
  if tokenizer.sha256 != job.tokenizer_sha256:
    raise errors.DataError(
      f'tokenizer={job.tokenizer!r} has changed since the job began; restore '
      f'the file of sha256 {job.tokenizer_sha256[:12]}'
    )
  return tokenizer
