"""From text to datasets, in stages that can be killed, shared out and rerun.

1. `units.tokenize`: the text is cut into units of token ids.
2. `shards.write`: the rows of each dataset, in a seeded random order, go into
   shards.
3. `finish`: counts, manifests and tokenizers are added, and all of it appears
   under its name.

What is done stands in WORK, see `job`: a rerun does only what is missing there.
Neither the number of workers nor how the work was shared out changes a byte of
the result.
"""

from collections.abc import Callable
from collections.abc import Sequence
import json

from etils import epath
import numpy as np

from leviathan import errors
from leviathan.data import job as job_lib
from leviathan.data import manifest as manifest_lib
from leviathan.data import outputs
from leviathan.data import records
from leviathan.data import shards
from leviathan.data import units as units_lib
from leviathan.data import workers

# Given the output to be, and the names of the datasets in it.
Add = Callable[[epath.Path, Sequence[str]], None]


def _nothing(output: epath.Path, datasets: Sequence[str]) -> None:
  """Adds nothing."""


def run(
  job: job_lib.Job,
  workers_: int = 1,
  max_bad_records: int = 0,
  add: Add = _nothing,
) -> dict[epath.Path, manifest_lib.Manifest]:
  """All stages on this machine; see there."""
  job_lib.start(job)
  with job_lib.alone(job), workers.Workers(workers_) as pool:
    try:
      _tokenize(job, pool, max_bad_records)
      units = units_lib.read(job, max_bad_records)
    except errors.UserError:
      if not units_lib.progress(job):
        # Nothing is lost, and the mended input is another job.
        job_lib.clear(job)
      raise
    pool.run(shards.write, [(job, task) for task in shards.tasks(job, units)])
    return finish(job, units, add)


def run_tokenize(
  job: job_lib.Job,
  workers_: int,
  max_bad_records: int,
  share: int = 0,
  shares: int = 1,
) -> None:
  """One share of the first stage on this machine."""
  with workers.Workers(workers_) as pool:
    _tokenize(job, pool, max_bad_records, share, shares)


def _tokenize(
  job: job_lib.Job,
  pool: workers.Workers,
  max_bad_records: int,
  share: int = 0,
  shares: int = 1,
) -> None:
  todo = units_lib.tasks(job, shares * pool.count)[share::shares]
  pool.run(units_lib.tokenize, [(job, task, max_bad_records) for task in todo])


def finish(
  job: job_lib.Job, units: units_lib.Units, add: Add = _nothing
) -> dict[epath.Path, manifest_lib.Manifest]:
  """Makes the output of the shards, and clears WORK.

  Args:
    job: what to make.
    units: all of them.
    add: puts more into the output, before that appears under its name.

  Returns:
    The manifest of each dataset, by its directory.

  Raises:
    DataError: a dataset would have no tokens.
  """
  wanted = ('train', 'validation') if job.validation_fraction else ('',)
  for side in wanted:
    if not any(name.startswith(side) for name in units.datasets):
      skipped = sum(units.skipped.values())
      job_lib.clear(job)
      raise errors.DataError(
        f'dataset {job.output / side} would have 0 tokens ({skipped} records '
        'skipped); give more text'
        f'{side and " or another --validation_fraction"}'
      )
  tasks = shards.tasks(job, units)
  manifests = {
    job.output / name: _describe(
      job, units, name, [task for task in tasks if task.dataset == name]
    )
    for name in units.datasets
  }
  for path in (job.work / 'output').iterdir():
    if path.is_file() and path.name.startswith(('.', *units_lib.RESERVED)):
      path.unlink()  # Of processes that were killed here.
  if units.bad:
    rows = (json.dumps(row, ensure_ascii=False) for row in units.bad)
    lines = ''.join(row + '\n' for row in rows)
    (job.work / 'output' / units_lib.BAD_RECORDS_FILE).write_text(lines)
  add(job.work / 'output', units.datasets)
  outputs.sync(job.work / 'output')
  outputs.check_free(job.output)
  if job.output.exists():
    job.output.rmdir()
  (job.work / 'output').rename(job.output)
  outputs.sync(job.output.parent, deep=False)
  job_lib.clear(job)
  return manifests


def _describe(
  job: job_lib.Job,
  units: units_lib.Units,
  dataset: str,
  tasks: Sequence[shards.Task],
) -> manifest_lib.Manifest:
  """Writes what stands beside the shards of a dataset."""
  directory = job.work / 'output' / dataset
  for path in directory.glob('.*'):
    path.unlink()  # Of processes that were killed.
  counts_V, entries = shards.read(job, tasks)
  np.save(directory / records.COUNTS_FILE, counts_V)
  hashes = np.sort(units.hashes(dataset))
  np.save(directory / records.HASHES_FILE, hashes)
  tokenizer = _copy_tokenizer(job, directory)
  manifest = manifest_lib.Manifest(
    format_version=manifest_lib.FORMAT_VERSION,
    tokenizer=tokenizer,
    seq_len=job.seq_len,
    shuffle_seed=job.shuffle_seed,
    sequences=sum(shard.sequences for shard in entries),
    tokens=int(counts_V.sum()),
    documents=len(hashes),
    duplicates=int((hashes[1:] == hashes[:-1]).sum()),
    bytes=sum(place.side.bytes for place in units.sides(dataset)),
    records=sum(unit.records for unit in units.units),
    elsewhere=units.documents - len(hashes),
    skipped=units.skipped,
    inputs=job.inputs,
    shards=entries,
    fingerprint=manifest_lib.fingerprint(
      tokenizer, job.seq_len, job.shuffle_seed, entries
    ),
  )
  (directory / manifest_lib.FILE).write_text(manifest.to_json())
  return manifest


def _copy_tokenizer(
  job: job_lib.Job, directory: epath.Path
) -> manifest_lib.Tokenizer:
  """Saves the tokenizer in a dataset; returns the entry of its manifest."""
  tokenizer = job_lib.load_tokenizer(job)
  return manifest_lib.Tokenizer(
    kind=tokenizer.kind,
    sha256=tokenizer.sha256,
    vocab_size=tokenizer.vocab_size,
    eos_id=tokenizer.eos_id,
    file=tokenizer.save(directory).name,
  )
