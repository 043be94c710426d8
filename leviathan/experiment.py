"""One run's parts, built once from its config: the composition.

`Config` is every module's config; `Experiment` is what they make on a mesh.
"""

import bisect
from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import functools
import importlib.metadata
import math
from typing import Any

import jax
import optax

from leviathan import arrays
from leviathan import checkpoint
from leviathan import config as config_lib
from leviathan import errors
from leviathan import model as model_lib
from leviathan import optimizer as optimizer_lib
from leviathan import parameters
from leviathan import prng
from leviathan import sharding
from leviathan import sinks
from leviathan import state as state_lib
from leviathan import step as step_lib
from leviathan.data import loader
from leviathan.data import mixture
from leviathan.data import records
from leviathan.eval import requests
from leviathan.eval import score
from leviathan.token_order import files as token_orders

PLATFORMS = ('auto', 'cpu', 'gpu', 'tpu')
LIBRARIES = ('jax', 'flax', 'optax', 'orbax-checkpoint', 'grain', 'numpy')


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
  """What is trained on."""

  train: str  # directories of datasets, joined by commas
  weights: tuple[float, ...]  # of the datasets, by rows; () is by size
  seq_len: int
  batch_size: int  # sequences, over all devices
  document_mask: bool  # no attention across documents, positions from each

  def directories(self) -> list[str]:
    """Of the datasets."""
    return [name.strip() for name in self.train.split(',') if name.strip()]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
  """How long, from which seed, on what, and how a batch is gone through."""

  steps: int
  seed: int
  platform: str  # one of PLATFORMS
  stall_seconds: float  # that a step may take before the run is given up
  z_loss: float  # coefficient
  loss_chunks: int  # parts of a sequence
  accumulation: int  # micro-batches

  def __post_init__(self):
    for name in ('steps', 'loss_chunks', 'accumulation'):
      if getattr(self, name) < 1:
        raise errors.ConfigError(
          f'config.train.{name}={getattr(self, name)}; give 1 or more'
        )
    if not 0 <= self.z_loss < math.inf:
      raise errors.ConfigError(
        f'config.train.z_loss={self.z_loss}; give 0 or more, as 1e-4'
      )
    if self.platform not in PLATFORMS:
      raise errors.ConfigError(
        f'config.train.platform={self.platform!r}; choose one of '
        f'{", ".join(PLATFORMS)}'
      )
    if not self.stall_seconds > 0:
      raise errors.ConfigError(
        f'config.train.stall_seconds={self.stall_seconds}; give more than 0'
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
  """What is evaluated while training, and how often."""

  interval: int  # steps
  batch_size: int  # sequences, over all devices
  tasks: tuple[str, ...]  # of evaluate.TASKS
  datasets: tuple[str, ...]  # NAME=DIRECTORY
  task_data: str  # directory of the tasks' official files; '' is the hub
  task_items: int  # of each task at most; 0 is all

  def __post_init__(self):
    _check_interval('evaluate', self.interval)
    if self.task_items < 0:
      raise errors.ConfigError(
        f'config.evaluate.task_items={self.task_items}; give 0 or more, 0 for '
        'all'
      )
    names = [entry.partition('=')[0] for entry in self.datasets]
    for name, entry in zip(names, self.datasets, strict=True):
      if not all(entry.partition('=')):
        raise errors.ConfigError(
          f'config.evaluate.datasets: {entry!r} is not NAME=DIRECTORY'
        )
      if '/' in name:
        raise errors.ConfigError(
          f'config.evaluate.datasets: the name {name!r} has a /, which is for '
          'subsets; give another'
        )
      if names.count(name) > 1:
        raise errors.ConfigError(
          f'config.evaluate.datasets: the name {name!r} stands twice; give '
          'each dataset its own'
        )

  def directories(self) -> dict[str, str]:
    """{name: directory}."""
    return dict(entry.split('=', 1) for entry in self.datasets)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogConfig:
  """What is seen of a run while it trains."""

  interval: int  # steps between progress lines
  sinks: tuple[str, ...]  # of sinks.SINKS
  profile: tuple[int, ...]  # first and last step of a trace, or ()

  def __post_init__(self):
    _check_interval('log', self.interval)
    for name in self.sinks:
      if name not in sinks.SINKS or self.sinks.count(name) > 1:
        raise errors.ConfigError(
          f'config.log.sinks={self.sinks}: {name!r} is unknown or stands '
          f'twice; choose of {", ".join(sinks.SINKS)}'
        )
    if self.profile and not (
      len(self.profile) == 2 and 1 <= self.profile[0] <= self.profile[1]
    ):
      raise errors.ConfigError(
        f'config.log.profile={self.profile}; give (first, last) step from 1 '
        'on, or ()'
      )


def _check_interval(section: str, interval: int) -> None:
  if interval < 1:
    raise errors.ConfigError(
      f'config.{section}.interval={interval}; give 1 or more steps'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
  """The whole config of a run; see configs/base.py for each key."""

  arm: str
  model: model_lib.ModelConfig
  data: DataConfig
  mesh: sharding.MeshConfig
  optimizer: optimizer_lib.OptimizerConfig
  train: TrainConfig
  checkpoint: checkpoint.CheckpointConfig
  evaluate: EvaluateConfig
  log: LogConfig

  def __post_init__(self):
    length, chunks = self.data.seq_len, self.train.loss_chunks
    if length % chunks:
      divisors = [n for n in range(1, length + 1) if length % n == 0]
      # The next one below, and the next one above if there is one.
      at = bisect.bisect(divisors, chunks)
      near = ' or '.join(map(str, divisors[max(0, at - 1) : at + 1]))
      raise errors.ConfigError(
        f'config.train.loss_chunks={chunks} does not divide '
        f'config.data.seq_len={length}; give {near}'
      )
    save, evaluate = self.checkpoint.interval, self.evaluate.interval
    measured = 'perplexity' in self.evaluate.tasks and self.evaluate.datasets
    if self.checkpoint.keep_best and not measured:
      raise errors.ConfigError(
        f'config.checkpoint.keep_best={self.checkpoint.keep_best} keeps the '
        'lowest loss on the first of config.evaluate.datasets; name one, and '
        "'perplexity' among config.evaluate.tasks"
      )
    if self.checkpoint.keep_best and save % evaluate:
      raise errors.ConfigError(
        f'config.checkpoint.keep_best={self.checkpoint.keep_best} wants steps '
        f'that are evaluated: config.checkpoint.interval={save} is not a '
        f'multiple of config.evaluate.interval={evaluate}'
      )


def read_config(section: Any) -> Config:
  """The config of a ConfigDict or of a run's `config.json`, resolved.

  Raises:
    ConfigError: a key is missing, unknown, of another type or out of range.
  """
  config: Config = config_lib.build(Config, section)
  if config.optimizer.horizon is not None:
    return config
  resolved = dataclasses.replace(config.optimizer, horizon=config.train.steps)
  return dataclasses.replace(config, optimizer=resolved)


def open_dataset(directory: str, config: Config) -> records.Dataset:
  """A dataset that fits the model.

  Raises:
    DataError: it cannot be read, or its V or seq_len is not the config's.
  """
  dataset = records.open_dataset(directory)
  found = dataset.manifest
  vocab_size = found.tokenizer.vocab_size
  if vocab_size != config.model.vocab_size:
    raise errors.DataError(
      f'{directory}: the tokenizer has {vocab_size} tokens, but '
      f'config.model.vocab_size={config.model.vocab_size}; set '
      f'--config.model.vocab_size={vocab_size} or prepare the data '
      'with the other tokenizer'
    )
  if found.seq_len != config.data.seq_len:
    raise errors.DataError(
      f'{directory}: seq_len is {found.seq_len}, but '
      f'config.data.seq_len={config.data.seq_len}; set '
      f'--config.data.seq_len={found.seq_len} or prepare the data again'
    )
  return dataset


def open_training(config: Config) -> mixture.Mixture:
  """What the config trains on.

  Raises:
    ConfigError: no dataset is named, or the weights do not suit them.
    DataError: one cannot be read, or does not fit the model or the others.
  """
  directories = config.data.directories()
  if not directories:
    raise errors.ConfigError('config.data.train names no dataset; give one')
  datasets = [open_dataset(directory, config) for directory in directories]
  return mixture.Mixture(datasets, config.data.weights)


def check_tokenizer(dataset: records.Dataset, sha256: str) -> None:
  """Raises DataError if a dataset was made with another tokenizer."""
  found = dataset.manifest.tokenizer.sha256
  if found != sha256:
    raise errors.DataError(
      f'{dataset.directory} was made with another tokenizer (sha256 '
      f'{found[:12]}) than the training data ({sha256[:12]}); prepare it with '
      'theirs, of which the dataset and the run hold a copy'
    )


@dataclasses.dataclass(frozen=True)
class Experiment:
  """The parts of one run on one mesh; nothing here has run yet."""

  config: Config
  mesh: jax.sharding.Mesh

  @functools.cached_property
  def token_order(self) -> token_orders.TokenOrder | None:
    """What is in the config's file, or None for the tokenizer's own.

    Raises:
      DataError: it cannot be read, or is of another V.
    """
    if not self.config.model.token_order:
      return None
    model = self.config.model
    order = token_orders.load(model.token_order)
    if len(order.rank_V) != model.vocab_size:
      raise errors.DataError(
        f'config.model.token_order={model.token_order!r} orders '
        f'{len(order.rank_V)} tokens, but config.model.vocab_size='
        f'{model.vocab_size}; make one from the data that you train on with '
        '`leviathan order`'
      )
    return order

  @functools.cached_property
  def model(self) -> model_lib.Transformer:
    """The Transformer."""
    order = self.token_order
    return self.config.model.make(None if order is None else order.rank_V)

  @functools.cached_property
  def optimizer(self) -> optax.GradientTransformation:
    """AdamW, but for the learning rate."""
    return self.config.optimizer.make()

  @functools.cached_property
  def abstract_state(self) -> state_lib.State:
    """Shapes, types and shardings of the state, which no order changes."""
    return state_lib.abstract(
      self.config.model.make(), self.optimizer, self.mesh
    )

  def fresh_state(self) -> state_lib.State:
    """The state at step 0; the same bits on every mesh."""
    key = prng.stream(prng.root(self.config.train.seed), 'params')
    return state_lib.create(self.model, self.optimizer, self.mesh, key)

  def train_step(self) -> Callable:
    """(state, batch) -> (state, metrics), jitted."""
    config = self.config
    return step_lib.make(
      self.model,
      self.optimizer,
      config.optimizer.make_schedule(),
      spike_deviations=config.optimizer.spike_deviations or math.inf,
      z_loss=config.train.z_loss,
      loss_chunks=config.train.loss_chunks,
      accumulation=config.train.accumulation,
    )

  @functools.cached_property
  def scorer(self) -> score.Scorer:
    """See `eval.score`; compiled once for all datasets."""
    return score.make(self.model, self.mesh, self.config.train.loss_chunks)

  @functools.cached_property
  def request_scorer(self) -> requests.Scorer:
    """See `eval.requests`; batches take no more than those of datasets."""
    length = self.config.data.seq_len
    tokens = length * self.config.evaluate.batch_size
    return requests.make(
      self.model,
      self.mesh,
      length=length,
      tokens=tokens,
      positions=tokens // self.config.train.loss_chunks,
    )

  def train_batches(
    self, data: mixture.Mixture, start: int
  ) -> Iterator[arrays.Batch]:
    """This process's batches after `start` sequences of all processes."""
    self.check_train_batch()
    return loader.train_batches(
      data,
      batch_size=self.config.data.batch_size,
      seed=self.config.train.seed,
      start=start,
      process_index=jax.process_index(),
      process_count=jax.process_count(),
      document_mask=self.config.data.document_mask,
    )

  def eval_batches(self, dataset: records.Dataset) -> Iterator[arrays.Batch]:
    """This process's rows of a whole dataset, once."""
    self._check_batch('evaluate', self.config.evaluate.batch_size)
    return loader.eval_batches(
      dataset,
      batch_size=self.config.evaluate.batch_size,
      process_index=jax.process_index(),
      process_count=jax.process_count(),
      document_mask=self.config.data.document_mask,
    )

  def check_train_batch(self) -> None:
    """Raises ConfigError where the mesh does not divide a training batch."""
    self._check_batch(
      'data', self.config.data.batch_size, self.config.train.accumulation
    )

  def _check_batch(
    self, section: str, batch_size: int, accumulation: int = 1
  ) -> None:
    devices = self.mesh.shape['data'] * self.mesh.shape['fsdp']
    ways = devices * accumulation
    if batch_size < 1:
      raise errors.ConfigError(
        f'config.{section}.batch_size={batch_size}; give 1 or more sequences'
      )
    if batch_size % ways:
      micro = f' x config.train.accumulation={accumulation}'
      raise errors.ConfigError(
        f'config.{section}.batch_size={batch_size} does not divide over '
        f'{devices} devices (data x fsdp){micro if accumulation > 1 else ""}; '
        f'the nearest that does is {max(1, round(batch_size / ways)) * ways}'
      )

  def manifest(self, data: mixture.Mixture) -> dict[str, Any]:
    """What identifies the run: resuming and evaluating compare it.

    Raises:
      DataError: the token order is for other data.
    """
    order = self.token_order
    if order is not None:
      file = self.config.model.token_order
      order.check_tokenizer(
        data.tokenizer.sha256, f'config.model.token_order={file!r}'
      )
    return {
      'format_version': 2,  # 1 had no guard in its checkpoints
      'arm': self.config.arm,
      'vocab_size': self.config.model.vocab_size,
      'tokenizer': dataclasses.asdict(data.tokenizer),
      'token_order': None if order is None else order.sha256,
      'dataset_fingerprint': data.fingerprint,
      'horizon': self.config.optimizer.horizon,
      'parameters': parameters.shapes(self.abstract_state.params),
      'versions': {
        name: importlib.metadata.version(name) for name in LIBRARIES
      },
    }


def make(config: Config) -> Experiment:
  """The experiment over all devices of all processes."""
  return Experiment(config, sharding.make_mesh(config.mesh))
