"""Trains a run, or goes on with it from its latest checkpoint.

leviathan train --config=configs/lev.py:smoke --workdir=runs/lev
"""

import os
import signal

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


class _Interrupt:
  """Ctrl-C, noticed between steps: in the middle of a save it would break it.

  A second one ends the process at once, which a run survives as it does a kill.
  """

  def __init__(self):
    self._seen = False
    signal.signal(signal.SIGINT, self._notice)

  def _notice(self, signum, frame):
    del signum, frame
    if self._seen:
      os._exit(130)
    self._seen = True
    print('stopping after this step; again to stop at once', flush=True)

  def __call__(self) -> bool:
    return self._seen


def main(argv) -> None:
  """Runs the command."""
  del argv
  interrupted = _Interrupt()
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
  train.train(parts, run, lambda line: print(line, flush=True), interrupted)
  print(f'done: {run.path}')
