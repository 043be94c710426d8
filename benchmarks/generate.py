"""Writing with keys and values kept, and without, by turns.

  python benchmarks/generate.py --scale=smoke --seq_len=512 --new_tokens=256

Prints one JSON row: seconds of each way (median of the rounds), tokens a second
and the ratio. Parameters are as at the start, prompts random; the likeliest
token is taken, and both ways must write the same. Without is a forward pass
over the whole row for each new token. LEV reads a table when it generates, so
`untied` is what it costs.
"""

from collections.abc import Callable
import importlib
import json
import statistics
import time
from typing import Any

from absl import app
from absl import flags
import jax
import jax.numpy as jnp
import numpy as np

from leviathan import experiment
from leviathan import prng
from leviathan import sampling

ARM = flags.DEFINE_string('arm', 'untied', 'Of configs/.')
SCALE = flags.DEFINE_string('scale', 'smoke', 'See configs/base.py.')
LAYERS = flags.DEFINE_integer('layers', None, "By default the config's.")
SEQ_LEN = flags.DEFINE_integer('seq_len', 512, 'Length of a row at most.')
ROWS = flags.DEFINE_integer('rows', 1, 'Prompts at once.')
PROMPT_TOKENS = flags.DEFINE_integer('prompt_tokens', 16, 'Of each prompt.')
NEW_TOKENS = flags.DEFINE_integer('new_tokens', 256, 'Of each continuation.')
ROUNDS = flags.DEFINE_integer('rounds', 1, 'Of each way.')


def make() -> experiment.Experiment:
  """The parts at the sizes asked for."""
  config = importlib.import_module(f'configs.{ARM.value}').get_config(
    SCALE.value
  )
  config.data.seq_len = SEQ_LEN.value
  config.model.layers = LAYERS.value or config.model.layers
  if jax.default_backend() == 'cpu':
    config.model.precision = 'float32'
  return experiment.make(experiment.read_config(config))


def with_past(parts: experiment.Experiment, params, prompts):
  """By the sampler; returns a function that gives new_BL."""
  sample = sampling.make(parts.model, SEQ_LEN.value, sampling.Choice())
  key_B = jax.random.split(prng.root(0), len(prompts))

  def write():
    found = [[] for _ in prompts]
    for new in sample(params, prompts, key_B):
      for ids, more in zip(found, new, strict=True):
        ids += more
      if len(found[0]) >= NEW_TOKENS.value:
        break
    return [ids[: NEW_TOKENS.value] for ids in found]

  return write


def without(parts: experiment.Experiment, params, prompts):
  """The plain twin."""
  apply: Callable[..., Any] = parts.model.apply
  start, end = PROMPT_TOKENS.value, PROMPT_TOKENS.value + NEW_TOKENS.value

  @jax.jit
  def fill(params, ids_BL):
    def one(position, ids_BL):
      logits_BLV = apply({'params': params}, ids_BL)
      next_B = jnp.argmax(logits_BLV[:, position - 1], axis=-1)
      return ids_BL.at[:, position].set(next_B.astype(jnp.int32))

    return jax.lax.fori_loop(start, end, one, ids_BL)

  ids_BL = np.zeros((len(prompts), end), np.int32)
  ids_BL[:, :start] = prompts
  return lambda: np.asarray(fill(params, ids_BL))[:, start:].tolist()


def main(argv) -> None:
  """Runs the rounds."""
  del argv
  parts = make()
  model = parts.config.model
  params = parts.fresh_state().params
  rng = np.random.default_rng(0)
  shape = ROWS.value, PROMPT_TOKENS.value
  prompts = rng.integers(0, model.vocab_size, shape).tolist()
  with jax.set_mesh(parts.mesh):
    ways = {
      'with_past': with_past(parts, params, prompts),
      'without': without(parts, params, prompts),
    }
    written = [write() for write in ways.values()]  # Compiles.
    seconds = {name: [] for name in ways}
    for _ in range(ROUNDS.value):
      for name, write in ways.items():
        start = time.perf_counter()
        write()
        seconds[name].append(time.perf_counter() - start)
  row = {
    'arm': ARM.value,
    'width': model.width,
    'layers': model.layers,
    'vocab_size': model.vocab_size,
    'precision': model.precision,
    'rows': ROWS.value,
    'prompt_tokens': PROMPT_TOKENS.value,
    'new_tokens': NEW_TOKENS.value,
    'devices': f'{jax.device_count()} x {jax.devices()[0].device_kind}',
    'same_tokens': written[0] == written[1],
    'distinct_tokens': len(set(np.ravel(written[0]).tolist())),
  }
  for name, each in seconds.items():
    median = statistics.median(each)
    row[name] = {
      'seconds': round(median, 3),
      'tokens_per_second': round(ROWS.value * NEW_TOKENS.value / median, 1),
    }
  ratios = [
    a / b for a, b in zip(seconds['without'], seconds['with_past'], strict=True)
  ]
  row['times_faster'] = round(statistics.median(ratios), 1)
  print(json.dumps(row))


if __name__ == '__main__':
  app.run(main)
