"""A checkpoint's parameters, by the run's own config and without optimizer."""

from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import json
import math
from typing import Any

import jax
import numpy as np

from leviathan import checkpoint
from leviathan import embed
from leviathan import errors
from leviathan import experiment
from leviathan import head
from leviathan import metrics
from leviathan import rundir
from leviathan import sharding
from leviathan.token_order import files as token_orders

EMBEDDING_BLOCK = 8192  # tokens
LATEST, BEST = NAMED_STEPS = ('latest', 'best')


@dataclasses.dataclass(frozen=True)
class Restored:
  """Parameters of one step, on a mesh over all devices here."""

  run: rundir.RunDir
  parts: experiment.Experiment
  params: Any
  step: int

  @property
  def manifest_sha256(self) -> str:
    """Of the manifest that was saved with the step."""
    manifest = self.run.checkpoints().manifest(self.step)
    text = json.dumps(manifest, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def restore(
  run: rundir.RunDir, step: int | str | None, allow: Sequence[str] = ()
) -> Restored:
  """Restores a step: the one asked for, the workdir's, or the latest.

  Args:
    run: the run.
    step: which one, LATEST, or BEST: of the lowest loss.
    allow: fields in which the checkpoint may differ from the run's manifest.

  Raises:
    CheckpointError: no run or no such checkpoint is there.
    ConfigError: `step` contradicts the step that the workdir names.
  """
  config = _with_own_order(experiment.read_config(run.config()), run)
  checkpoints = run.checkpoints()
  if None not in (step, run.step) and step != run.step:
    raise errors.ConfigError(
      f'--step={step} is not the step that --workdir names, {run.step}; give '
      'one of the two'
    )
  step = run.step if step is None else step
  if step in (None, LATEST):
    step = checkpoints.latest()
  elif step == BEST:
    step = _best(run, checkpoints)
  assert isinstance(step, int)  # `checkpoints()` refuses an empty directory.
  # The mesh of training may not exist here. Copies of the parameters fit any
  # number of devices; a batch is filled up with rows that do not count.
  ways = jax.device_count()
  batch_size = -(-config.evaluate.batch_size // ways) * ways
  # Nor may the devices that its kernels are for.
  attention = config.model.attention
  if attention != 'xla':
    attention = 'auto'
  parts = experiment.make(
    dataclasses.replace(
      config,
      model=dataclasses.replace(config.model, attention=attention),
      mesh=sharding.MeshConfig(data=-1, fsdp=1, tensor=1),
      evaluate=dataclasses.replace(config.evaluate, batch_size=batch_size),
    )
  )
  rundir.check_step(run, checkpoints, step, allow)
  abstract = parts.abstract_state.params
  params = checkpoints.restore_params(step, abstract)
  checkpoints.close()
  return Restored(run, parts, params, step)


def _best(run: rundir.RunDir, checkpoints: checkpoint.Checkpoints) -> int:
  """Of the steps that are there, that of the lowest loss; the later of equals.

  The loss is that on the first evaluation set.

  Raises:
    CheckpointError: none of them was evaluated in training.
  """
  losses = {}
  rows = [r for r in metrics.read(run.metrics_file) if 'perplexity' in r]
  validation = [r for r in rows if r['split'].startswith('validation/')]
  steps = checkpoints.steps()
  for row in validation:
    known = row['split'] == validation[0]['split'] and row['step'] in steps
    if known and math.isfinite(row['nats_per_token']):
      losses[row['step']] = row['nats_per_token']
  if not losses:
    raise errors.CheckpointError(
      f'{run.metrics_file} has no loss of a step that is there, {steps}; name '
      'one of them, or train with a config.checkpoint.interval that is a '
      'multiple of config.evaluate.interval'
    )
  return min(losses, key=lambda step: (losses[step], -step))


def _with_own_order(
  config: experiment.Config, run: rundir.RunDir
) -> experiment.Config:
  """The config with the token order that lies in the run, checked."""
  if not config.model.token_order:
    return config
  path = run.token_order_file
  trained_with = run.manifest()['token_order']
  try:
    found = token_orders.load(path).sha256
  except errors.DataError:
    found = None
  if found != trained_with:
    raise errors.CheckpointError(
      f'{path} is not the token order that the run was trained with (sha256 '
      f'{trained_with[:12]}); restore the file'
    )
  model = dataclasses.replace(config.model, token_order=str(path))
  return dataclasses.replace(config, model=model)


def embeddings(loaded: Restored) -> np.ndarray:
  """The input embedding of every token, made in blocks on the mesh.

  Returns:
    x_VD in float32 on the host, V rows without padding.
  """
  mesh, vocab_size = loaded.parts.mesh, loaded.parts.config.model.vocab_size
  block = -(-EMBEDDING_BLOCK // mesh.size) * mesh.size

  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

  @functools.partial(jax.jit, out_shardings=whole)
  def embed_rows(params, ids_BL):
    return loaded.parts.model.apply(
      {'params': params}, ids_BL, method=lambda m, ids: m.embed(ids)
    )

  rows = []
  with jax.set_mesh(mesh):
    for start in range(0, vocab_size, block):
      # The last block is filled up, so that all have one shape.
      ids_T = np.minimum(np.arange(start, start + block), vocab_size - 1)
      x_BLD = embed_rows(loaded.params, ids_T.reshape(mesh.size, -1))
      rows.append(np.asarray(x_BLD).reshape(block, -1))
  return np.concatenate(rows)[:vocab_size]


def with_table(loaded: Restored) -> Restored:
  """The same model with its input embeddings computed once, as a table.

  To evaluate or generate with: parameters no longer change, so whatever the
  embedder computes of a token id it need not compute again. A model that has a
  table is given back as it is.
  """
  model = loaded.parts.config.model
  table = embed.EMBEDDERS['table'](name='table')
  if model.embedder == table:
    return loaded
  x_VD = embeddings(loaded)
  missing = head.padded_rows(model.vocab_size) - model.vocab_size
  x_VD = np.pad(x_VD, ((0, missing), (0, 0)))
  model = dataclasses.replace(model, embedder=table, token_order='')
  parts = experiment.Experiment(
    dataclasses.replace(loaded.parts.config, model=model), loaded.parts.mesh
  )
  shardings = jax.tree.map(
    lambda x: x.sharding, parts.abstract_state.params['embedder']
  )
  embedder = jax.device_put({'table_VD': x_VD}, shardings)
  params = loaded.params | {'embedder': embedder}
  return dataclasses.replace(loaded, parts=parts, params=params)
