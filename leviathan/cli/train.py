"""Trains a run, or goes on with it from its latest checkpoint.

leviathan train --config=configs/lev.py:smoke --workdir=runs/lev
"""

from absl import flags

from leviathan import errors
from leviathan import experiment
from leviathan import parameters
from leviathan import rundir
from leviathan import train
from leviathan.cli import config_flag

CONFIG = config_flag.define()
WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Directory of the run, made when missing.', required=True
)


def main(argv) -> None:
  """Runs the command."""
  del argv
  config = experiment.read_config(config_flag.read(CONFIG))
  parts = experiment.make(config)
  counts = parameters.count(
    parameters.shapes(parts.abstract_state.params), config.model.vocab_size
  )
  device = parts.mesh.devices.flat[0]
  print(
    f'{config.arm}: {counts["total"]:,} parameters (input '
    f'{counts["input"]:,}, backbone {counts["backbone"]:,}, head '
    f'{counts["head"]:,}) on {parts.mesh.size} x {device.platform} '
    f'({device.device_kind}), mesh {dict(parts.mesh.shape)}',
    flush=True,
  )
  run = rundir.open_(WORKDIR.value)
  if run.step is not None:
    raise errors.ConfigError(
      f'--workdir={WORKDIR.value} is one step; a run goes on from its latest, '
      f'give {run.path}'
    )
  train.train(parts, run, say=lambda line: print(line, flush=True))
  print(f'done: {run.path}')
