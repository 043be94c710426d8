"""`prepare` as steps of datatrove: many machines, by Slurm, Ray or by hand.

Three pipelines of one step each, as each needs all of the one before it:
`Tokenize` and `Write` in as many tasks as you like, `Finish` in one. The last
is all that `leviathan prepare` does, so that command can take its place.

WORK knows what is done, and keeps it for any number of tasks; datatrove's own
marks of completion know neither that number nor WORK. Give each executor
`skip_completed=False`, else a rerun with other tasks, or after WORK was
removed, leaves out what is missing; what is there takes a moment all the same.
Give each a `logging_dir` of its own, outside the output and WORK.
"""

from datatrove.pipeline import base

from leviathan.data import job as job_lib
from leviathan.data import prepare
from leviathan.data import shards
from leviathan.data import units as units_lib


class _Step(base.PipelineStep):
  """What all steps know; it is pickled to where the tasks run."""

  type = 'leviathan'

  def __init__(self, job: job_lib.Job, max_bad_records: int = 0):
    super().__init__()
    self.job = job
    self.max_bad_records = max_bad_records


class Tokenize(_Step):
  """A share of the first stage in each task."""

  name = 'tokenize'

  def run(self, data=None, rank: int = 0, world_size: int = 1):
    """Makes the units of share `rank` of `world_size` that are missing."""
    job_lib.start(self.job)
    prepare.run_tokenize(self.job, 1, self.max_bad_records, rank, world_size)
    return data


class Write(_Step):
  """A share of the second stage in each task, of all 256 shards at most."""

  name = 'write'

  def run(self, data=None, rank: int = 0, world_size: int = 1):
    """Writes the shards of share `rank` of `world_size` that are missing."""
    units = units_lib.read(self.job, self.max_bad_records)
    for task in shards.tasks(self.job, units)[rank::world_size]:
      shards.write(self.job, task)
    return data


class Finish(_Step):
  """The last stage, and what is missing of the others; in the first task."""

  name = 'finish'

  def run(self, data=None, rank: int = 0, world_size: int = 1):
    """Makes the output appear under its name."""
    del world_size
    if rank == 0:
      prepare.run(self.job, 1, self.max_bad_records)
    return data
