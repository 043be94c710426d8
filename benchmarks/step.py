"""Whole training steps of several arms, by turns in one process.

  python benchmarks/step.py --scale=200m --batch_size=8

Prints one JSON row: seconds a step of each arm (the median of the rounds), the
ratio to the first arm, and memory. Token ids follow Zipf's law, or come from a
prepared dataset. Nothing is left out of a step: forward, loss, gradient,
clipping and AdamW, on all devices.
"""

import importlib
import json
import pathlib
import statistics
import tempfile
import time

from absl import app
from absl import flags
import jax
import numpy as np

from leviathan import arrays
from leviathan import experiment
from leviathan.data import records
from leviathan.eval import score
from leviathan.token_order import files as token_orders

ARMS = flags.DEFINE_list('arms', ['tied', 'lev', 'untied'], 'Of configs/.')
SCALE = flags.DEFINE_string('scale', '200m', 'See configs/base.py.')
BATCH_SIZE = flags.DEFINE_integer('batch_size', 8, 'Sequences.')
SEQ_LEN = flags.DEFINE_integer('seq_len', 512, 'Tokens.')
DATASET = flags.DEFINE_string('dataset', None, 'Prepared, instead of Zipf.')
PRECISION = flags.DEFINE_string(
  'precision', None, "By default the config's, but float32 on a CPU."
)
ROUNDS = flags.DEFINE_integer('rounds', 5, 'Steps of each arm.')


def make(arm: str) -> experiment.Experiment:
  """The arm's parts at the sizes asked for."""
  config = importlib.import_module(f'configs.{arm}').get_config(SCALE.value)
  config.data.update(batch_size=BATCH_SIZE.value, seq_len=SEQ_LEN.value)
  if PRECISION.value or jax.default_backend() == 'cpu':
    config.model.precision = PRECISION.value or 'float32'
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


def main(argv) -> None:
  """Runs the rounds."""
  del argv
  arms = {name: Arm(name) for name in ARMS.value}
  for arm in arms.values():
    arm.step()  # The first one also pays for its memory.
  seconds = {name: [] for name in arms}
  for _ in range(ROUNDS.value):
    for name, arm in arms.items():
      seconds[name].append(arm.step())
  first = ARMS.value[0]
  device = jax.devices()[0]
  row = {
    'scale': SCALE.value,
    'batch_size': BATCH_SIZE.value,
    'seq_len': SEQ_LEN.value,
    'ids': DATASET.value or 'zipf',
    'devices': f'{jax.device_count()} x {device.device_kind}',
  }
  for name, arm in arms.items():
    # Of steps that ran one after another, as the machine's pace changes.
    ratios = [a / b for a, b in zip(seconds[name], seconds[first], strict=True)]
    row[name] = arm.figures | {
      'seconds': round(statistics.median(seconds[name]), 3),
      f'times_{first}': round(statistics.median(ratios), 4),
      'all_seconds': [round(s, 3) for s in seconds[name]],
    }
  print(json.dumps(row))


if __name__ == '__main__':
  app.run(main)
