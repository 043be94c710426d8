"""Flags of the commands that restore a run."""

from absl import flags

WORKDIR = flags.DEFINE_string(
  'workdir', None, 'The run, its checkpoints/ or one step.', required=True
)
STEP = flags.DEFINE_integer('step', None, 'Checkpoint; the latest by default.')
