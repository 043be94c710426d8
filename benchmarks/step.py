"""Whole training steps of several arms, and the loss alone, by turns.

  python benchmarks/step.py --scale=200m --batch_size=8 --arms=lev:1,lev:16

Prints two JSON rows. First the steps: seconds a step of each arm (median of the
rounds), the ratio to the first arm, and memory. Token ids follow Zipf's law,
or come from a prepared dataset. Nothing is left out of a step: forward, loss,
gradient, clipping and AdamW, on all devices. Then the loss alone of as many
tokens, value and gradients on one device: whole at once and in chunks.
"""

import functools
import importlib
import json
import pathlib
import statistics
import tempfile
import time

from absl import app
from absl import flags
import jax
import jax.numpy as jnp
import numpy as np

from leviathan import arrays
from leviathan import experiment
from leviathan import head
from leviathan import losses
from leviathan import model as model_lib
from leviathan.data import records
from leviathan.eval import score
from leviathan.token_order import files as token_orders

ARMS = flags.DEFINE_list(
  'arms',
  ['tied', 'lev', 'untied'],
  'Of configs/; NAME:N has its loss in N chunks.',
)
SCALE = flags.DEFINE_string('scale', '200m', 'See configs/base.py.')
BATCH_SIZE = flags.DEFINE_integer('batch_size', 8, 'Sequences.')
SEQ_LEN = flags.DEFINE_integer('seq_len', 512, 'Tokens.')
DATASET = flags.DEFINE_string('dataset', None, 'Prepared, instead of Zipf.')
PRECISION = flags.DEFINE_string(
  'precision', None, "By default the config's, but float32 on a CPU."
)
REMAT = flags.DEFINE_string('remat', None, "By default the config's.")
ROUNDS = flags.DEFINE_integer('rounds', 5, 'Steps of each arm.')
LOSS_CHUNKS = flags.DEFINE_integer('loss_chunks', 16, 'Of the loss alone.')


def make(arm: str) -> experiment.Experiment:
  """The arm's parts at the sizes asked for."""
  arm, _, chunks = arm.partition(':')
  config = importlib.import_module(f'configs.{arm}').get_config(SCALE.value)
  if chunks:
    config.train.loss_chunks = int(chunks)
  config.data.update(batch_size=BATCH_SIZE.value, seq_len=SEQ_LEN.value)
  if PRECISION.value or jax.default_backend() == 'cpu':
    config.model.precision = PRECISION.value or 'float32'
  if REMAT.value:
    config.model.remat = REMAT.value
  if DATASET.value:
    config.data.train = DATASET.value
    manifest = records.open_dataset(DATASET.value).manifest
    config.model.vocab_size = manifest.tokenizer.vocab_size
  if config.model.token_order:
    # Any order takes as long.
    config.model.token_order = str(_random_order(config.model.vocab_size))
  return experiment.make(experiment.read_config(config))


def _random_order(vocab_size: int) -> pathlib.Path:
  """A file of ranks."""
  path = pathlib.Path(tempfile.mkdtemp()) / 'token_order.npy'
  rank_V = np.random.default_rng(0).permutation(vocab_size)
  token_orders.save(token_orders.TokenOrder(rank_V), path)
  return path


def batches(parts: experiment.Experiment):
  """Batches without end."""
  config = parts.config
  if DATASET.value:
    yield from parts.train_batches(experiment.open_training(config), 0)
    return
  rng = np.random.default_rng(0)
  share_V = 1 / np.arange(1, config.model.vocab_size + 1)
  share_V /= share_V.sum()
  shape = BATCH_SIZE.value, SEQ_LEN.value + 1
  while True:
    ids = rng.choice(len(share_V), shape, p=share_V).astype(np.int32)
    ones_BL = np.ones(ids[:, 1:].shape, np.float32)
    yield arrays.Batch(ids[:, :-1], ids[:, 1:], ones_BL)


class Arm:
  """An arm with its state, which each step replaces."""

  def __init__(self, name: str):
    self._parts = make(name)
    self._state = self._parts.fresh_state()
    self._batches = batches(self._parts)
    batch = score.to_mesh(next(self._batches), self._parts.mesh)
    with jax.set_mesh(self._parts.mesh):
      lowered = self._parts.train_step().lower(self._state, batch)
      self._compiled = lowered.compile()
    memory = self._compiled.memory_analysis()
    self.figures = {
      'loss_chunks': self._parts.config.train.loss_chunks,
      'state_gb': round(memory.argument_size_in_bytes / 1e9, 2),
      'temporary_gb': round(memory.temp_size_in_bytes / 1e9, 2),
    }

  def step(self) -> float:
    """Seconds of one step; the batch is on the device before."""
    batch = score.to_mesh(next(self._batches), self._parts.mesh)
    jax.block_until_ready((batch, self._state))
    start = time.perf_counter()
    self._state, row = self._compiled(self._state, batch)
    jax.block_until_ready((self._state, row))
    return time.perf_counter() - start


class Loss:
  """The loss alone, its value and both its gradients."""

  def __init__(self, config: experiment.Config, chunks: int):
    rng = np.random.default_rng(0)
    model = config.model
    shape = BATCH_SIZE.value, SEQ_LEN.value
    x_BLD = rng.normal(size=(*shape, model.width))
    rows = head.padded_rows(model.vocab_size)
    w_VD = 0.02 * rng.normal(size=(rows, model.width))
    self._arguments = (
      jnp.asarray(x_BLD, model_lib.PRECISIONS[model.precision]),
      jnp.asarray(w_VD, jnp.float32),
      jnp.asarray(rng.integers(0, model.vocab_size, shape), jnp.int32),
      jnp.ones(shape, jnp.float32),
    )
    form = losses.whole
    if chunks:
      form = functools.partial(losses.loss, chunks=chunks)
    loss = functools.partial(form, vocab_size=model.vocab_size, z_loss=0.0)
    run = jax.value_and_grad(lambda *a: loss(*a).objective, argnums=(0, 1))
    self._compiled = jax.jit(run).lower(*self._arguments).compile()
    memory = self._compiled.memory_analysis()
    self.figures = {
      'chunks': chunks,
      'temporary_gb': round(memory.temp_size_in_bytes / 1e9, 3),
      'gradients_gb': round(memory.output_size_in_bytes / 1e9, 3),
    }

  def step(self) -> float:
    """Seconds of one evaluation."""
    start = time.perf_counter()
    jax.block_until_ready(self._compiled(*self._arguments))
    return time.perf_counter() - start


def measure(rivals: dict[str, Arm] | dict[str, Loss]) -> dict[str, dict]:
  """Their figures, with the times of rounds in which each has its turn."""
  for rival in rivals.values():
    rival.step()  # The first one also pays for its memory.
  seconds = {name: [] for name in rivals}
  for _ in range(ROUNDS.value):
    for name, rival in rivals.items():
      seconds[name].append(rival.step())
  first = next(iter(rivals))
  rows = {}
  for name, rival in rivals.items():
    # Of steps that ran one after another, as the machine's pace changes.
    ratios = [a / b for a, b in zip(seconds[name], seconds[first], strict=True)]
    median = statistics.median(seconds[name])
    rows[name] = rival.figures | {
      'seconds': round(median, 3),
      'tokens_per_second': round(BATCH_SIZE.value * SEQ_LEN.value / median),
      f'times_{first}': round(statistics.median(ratios), 4),
      'all_seconds': [round(s, 3) for s in seconds[name]],
    }
  return rows


def main(argv) -> None:
  """Runs the rounds."""
  del argv
  device = jax.devices()[0]
  row = {
    'scale': SCALE.value,
    'batch_size': BATCH_SIZE.value,
    'seq_len': SEQ_LEN.value,
    'ids': DATASET.value or 'zipf',
    'devices': f'{jax.device_count()} x {device.device_kind}',
  }
  print(json.dumps(row | measure({name: Arm(name) for name in ARMS.value})))
  config = make(ARMS.value[0]).config
  row = {
    'width': config.model.width,
    'vocab_size': config.model.vocab_size,
    'tokens': BATCH_SIZE.value * SEQ_LEN.value,
    'precision': config.model.precision,
    'device': device.device_kind,
  }
  rivals = {
    'whole': Loss(config, 0),  # The plain twin.
    'chunked': Loss(config, LOSS_CHUNKS.value),
  }
  print(json.dumps(row | measure(rivals)))


if __name__ == '__main__':
  app.run(main)
