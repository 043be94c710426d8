"""Flags of the commands that restore a run."""

from absl import flags

from leviathan import errors
from leviathan import restore
from leviathan import rundir

WORKDIR = flags.DEFINE_string(
  'workdir', None, 'The run, its checkpoints/ or one step.', required=True
)
STEP = flags.DEFINE_string(
  'step', None, "Checkpoint: its step, 'latest' (the default) or 'best'."
)
ALLOW = flags.DEFINE_list(
  'allow', [], 'Fields in which the checkpoint may differ from run.json.'
)


def restored() -> restore.Restored:
  """The parameters that the flags name."""
  run = rundir.open_(WORKDIR.value)
  step = STEP.value
  if step is not None and step not in restore.NAMED_STEPS:
    if not step.isdecimal():
      raise errors.ConfigError(
        f'--step={step} is no step; give a number, '
        f'{" or ".join(restore.NAMED_STEPS)}'
      )
    step = int(step)
  return restore.restore(run, step, ALLOW.value)
