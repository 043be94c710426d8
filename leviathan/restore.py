"""A checkpoint's parameters, by the run's own config and without optimizer."""

import dataclasses
from typing import Any

from leviathan import experiment
from leviathan import rundir
from leviathan import sharding


@dataclasses.dataclass(frozen=True)
class Restored:
  """Parameters of one step, on a mesh over all devices here."""

  run: rundir.RunDir
  parts: experiment.Experiment
  params: Any
  step: int


def params(run: rundir.RunDir, step: int | None) -> Restored:
  """Restores a step: the one asked for, the workdir's, or the latest.

  Raises:
    CheckpointError: no run or no such checkpoint is there.
  """
  config = experiment.read_config(run.config())
  checkpoints = run.checkpoints()
  if step is None:
    step = run.step
  if step is None:
    step = checkpoints.latest()
    assert step is not None  # `checkpoints()` refuses an empty directory.
  # The mesh of training may not exist here: shard over what there is.
  mesh = sharding.MeshConfig(data=1, fsdp=-1, tensor=1)
  parts = experiment.make(dataclasses.replace(config, mesh=mesh))
  abstract = parts.abstract_state.params
  return Restored(run, parts, checkpoints.restore_params(step, abstract), step)
