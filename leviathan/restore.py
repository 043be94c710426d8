"""A checkpoint's parameters, by the run's own config and without optimizer."""

import dataclasses
from typing import Any

import jax
import numpy as np

from leviathan import errors
from leviathan import experiment
from leviathan import rundir
from leviathan import sharding

EMBEDDING_BLOCK = 8192  # tokens


@dataclasses.dataclass(frozen=True)
class Restored:
  """Parameters of one step, on a mesh over all devices here."""

  run: rundir.RunDir
  parts: experiment.Experiment
  params: Any
  step: int


def restore(run: rundir.RunDir, step: int | None) -> Restored:
  """Restores a step: the one asked for, the workdir's, or the latest.

  Raises:
    CheckpointError: no run or no such checkpoint is there.
    ConfigError: `step` contradicts the step that the workdir names.
  """
  config = experiment.read_config(run.config())
  checkpoints = run.checkpoints()
  if None not in (step, run.step) and step != run.step:
    raise errors.ConfigError(
      f'--step={step} is not the step that --workdir names, {run.step}; give '
      'one of the two'
    )
  step = run.step if step is None else step
  if step is None:
    step = checkpoints.latest()
    assert step is not None  # `checkpoints()` refuses an empty directory.
  # The mesh of training may not exist here. Copies of the parameters fit any
  # number of devices; a batch is filled up with rows that do not count.
  ways = jax.device_count()
  batch_size = -(-config.evaluate.batch_size // ways) * ways
  parts = experiment.make(
    dataclasses.replace(
      config,
      mesh=sharding.MeshConfig(data=-1, fsdp=1, tensor=1),
      evaluate=dataclasses.replace(config.evaluate, batch_size=batch_size),
    )
  )
  rundir.check_step(run, checkpoints, step)
  abstract = parts.abstract_state.params
  params = checkpoints.restore_params(step, abstract)
  checkpoints.close()
  return Restored(run, parts, params, step)


def embeddings(loaded: Restored) -> np.ndarray:
  """x_VD, the input embedding of every token, made in blocks on the device."""
  vocab_size = loaded.parts.config.model.vocab_size
  block = min(vocab_size, EMBEDDING_BLOCK)

  @jax.jit
  def embed(params, ids_T):
    return loaded.parts.model.apply(
      {'params': params}, ids_T[None], method=lambda m, ids: m.embedder(ids)
    )[0]

  rows = []
  with jax.set_mesh(loaded.parts.mesh):
    for start in range(0, vocab_size, block):
      # The last block begins earlier, so that all have one shape.
      first = min(start, vocab_size - block)
      x_TD = embed(loaded.params, np.arange(first, first + block))
      rows.append(np.asarray(x_TD)[start - first :])
  return np.concatenate(rows)
