"""Flags of the commands that restore a run."""

from absl import flags

from leviathan import restore
from leviathan import rundir

WORKDIR = flags.DEFINE_string(
  'workdir', None, 'The run, its checkpoints/ or one step.', required=True
)
STEP = flags.DEFINE_integer('step', None, 'Checkpoint; the latest by default.')
ALLOW = flags.DEFINE_list(
  'allow', [], 'Fields in which the checkpoint may differ from run.json.'
)


def restored() -> restore.Restored:
  """The parameters that the flags name."""
  return restore.restore(rundir.open_(WORKDIR.value), STEP.value, ALLOW.value)
