"""What LEV costs: its forms and a table, side by side in one process.

  python benchmarks/lev_layer.py

Prints one JSON row for each number of tokens and width, at the paper's sizes
(V = 200,019; J, C, S, G, R = 3, 128, 8, 16, 64), in float32, on token ids of
Zipf's law, or on those of a prepared dataset (as if of that vocabulary). A form
is

  plain      the equations vmapped over tokens and heads, the product through
             a sum of logarithms: LEV as first published
  reference  the same with the true product: `implementation='reference'`
  distinct   the implementation under test, on those ids
  different  the same where no id comes twice, as far as V allows
  table      the lookup in a table V x D, and its gradient

with microseconds a token forward and for value and gradient, temporary memory
and seconds to compile. `faster` and `smaller` are ratios to `plain`, taken in
this run. What would not fit this machine's memory is compiled, not run.
"""

from collections.abc import Callable
import json
import os
import statistics
import time
from typing import Any

from absl import app
from absl import flags
import jax
import jax.numpy as jnp
import numpy as np

from configs import base
from configs import lev as arm
from leviathan import digits
from leviathan.data import loader
from leviathan.data import mixture
from leviathan.data import records
from leviathan.embed import lev
from leviathan.embed import splines

TOKENS = flags.DEFINE_list('tokens', ['512', '4096', '32768'], 'N.')
WIDTHS = flags.DEFINE_list('widths', ['512', '1024', '2048'], 'D.')
IMPLEMENTATION = flags.DEFINE_string('implementation', 'auto', 'Under test.')
DATASET = flags.DEFINE_string('dataset', None, 'Prepared, instead of Zipf.')
ROUNDS = flags.DEFINE_integer('rounds', 3, 'Timings; the median is printed.')

VOCAB_SIZE = base.VOCABULARIES['o200k']
CONFIG = lev.LevConfig(**arm.embedder('1p2b'))


def plain(params: dict[str, jax.Array], ids_T: jax.Array) -> jax.Array:
  """LEV with the product as exp of a sum of logarithms, signs apart."""

  def head(z_C, seed_CC, scale_C, bias_C, splines_CGR, out_RD):
    u_C = splines.coordinates(z_C @ seed_CC, scale_C, bias_C)
    basis_CG = splines.basis(u_C, splines_CGR.shape[1])
    phi_CR = jnp.einsum('CG,CGR->CR', basis_CG, splines_CGR)
    log_R = jnp.log(jnp.abs(phi_CR) + 1e-12).sum(0)
    return (jnp.sign(phi_CR).prod(0) * jnp.exp(log_R)) @ out_RD

  names = 'seed_SCC', 'scale_SC', 'bias_SC', 'splines_SCGR', 'out_SRD'

  def token(id_):
    z_C = digits.seed(params['codebooks_JNC'], id_)
    heads = jax.vmap(head, in_axes=(None, 0, 0, 0, 0, 0))
    return heads(z_C, *(params[name] for name in names)).sum(0)

  return jax.vmap(token)(ids_T)


def draw(width: int) -> dict[str, jax.Array]:
  """The layer's parameters near their start."""
  rng = np.random.default_rng(0)
  start = {'scale_SC': (1, 0), 'bias_SC': (0, 0), 'splines_SCGR': (1, 0.1)}
  params = {}
  for name, (shape, _) in CONFIG.parameters(VOCAB_SIZE, width).items():
    mean, deviation = start.get(name, (0, 0.02))
    values = mean + deviation * rng.standard_normal(shape, np.float32)
    params[name] = jnp.asarray(values)
  return params


def draw_ids(tokens: int, rng: np.random.Generator) -> np.ndarray:
  """ids_T of Zipf's law, or of whole records in a random order."""
  if not DATASET.value:
    share_V = 1 / np.arange(1, VOCAB_SIZE + 1)
    return rng.choice(VOCAB_SIZE, tokens, p=share_V / share_V.sum())
  dataset = records.open_dataset(DATASET.value)
  batches = loader.train_batches(
    mixture.Mixture([dataset]),
    batch_size=-(-tokens // dataset.manifest.seq_len),
    seed=0,
  )
  return next(batches).inputs_BL.reshape(-1)[:tokens]


def forms(width: int, tokens: int) -> dict[str, tuple[Callable, Any, Any]]:
  """{form: (function, parameters, ids_T)}."""
  rng = np.random.default_rng(1)
  ids_T = jnp.asarray(draw_ids(tokens, rng), jnp.int32)
  different_T = rng.permutation(max(VOCAB_SIZE, tokens))[:tokens] % VOCAB_SIZE
  different_T = jnp.asarray(different_T, jnp.int32)
  params = draw(width)

  def tested(params, ids_T):
    return lev.lev_embed(params, ids_T, IMPLEMENTATION.value)

  def lookup(table_VD, ids_T):
    return jnp.take(table_VD, ids_T, axis=0)

  table_VD = jnp.full((VOCAB_SIZE, width), 0.02, jnp.float32)
  return {
    'plain': (plain, params, ids_T),
    'reference': (
      lambda params, ids_T: lev.lev_embed(params, ids_T, 'reference'),
      params,
      ids_T,
    ),
    'different': (tested, params, different_T),
    'distinct': (tested, params, ids_T),
    'table': (lookup, table_VD, ids_T),
  }


def compile_(function: Callable, *args) -> tuple[Any, dict[str, float]]:
  """The compiled program, None where it would not fit, and its figures."""
  start = time.perf_counter()
  compiled = jax.jit(function).lower(*args).compile()
  seconds = time.perf_counter() - start
  temporary = compiled.memory_analysis().temp_size_in_bytes
  memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
  fits = jax.default_backend() != 'cpu' or temporary < memory / 3
  return compiled if fits else None, {
    'temporary_mb': round(temporary / 1e6, 1),
    'compile_seconds': round(seconds, 1),
  }


def measure(tokens: int, width: int) -> dict[str, Any]:
  """One row: all forms, timed by turns."""
  cotangent_TD = jnp.ones((tokens, width), jnp.float32)
  programs, figures, seconds = {}, {}, {}
  forms_ = forms(width, tokens)
  for form, (function, params, ids_T) in forms_.items():

    def scalar(params, ids_T, function=function):
      return jnp.sum(function(params, ids_T) * cotangent_TD)

    for what, traced in (
      ('forward', function),
      ('value_and_grad', jax.value_and_grad(scalar)),
    ):
      program, figures[form, what] = compile_(traced, params, ids_T)
      if program:
        programs[form, what] = program, params, ids_T
        seconds[form, what] = []
  for _ in range(ROUNDS.value):
    for key, (program, *args) in programs.items():
      # Untimed: the one before may have left gigabytes to be given back.
      jax.block_until_ready(program(*args))
      start = time.perf_counter()
      jax.block_until_ready(program(*args))
      seconds[key].append(time.perf_counter() - start)
  for key, times in seconds.items():
    microseconds = statistics.median(times) / tokens * 1e6
    figures[key]['microseconds_per_token'] = round(microseconds, 2)
  row = {'tokens': tokens, 'width': width, 'backend': jax.default_backend()}
  row['ids'] = DATASET.value or 'zipf'
  row['distinct_ids'] = len(np.unique(forms_['distinct'][-1]))
  for (form, what), found in figures.items():
    beside = figures['plain', what]
    for name, ratio in (
      ('microseconds_per_token', 'faster'),
      ('temporary_mb', 'smaller'),
    ):
      if found.get(name) and beside.get(name):
        found[ratio] = round(beside[name] / found[name], 1)
    row[f'{form}.{what}'] = found
  return row


def main(argv) -> None:
  """Runs all sizes."""
  del argv
  for width in map(int, WIDTHS.value):
    for tokens in map(int, TOKENS.value):
      print(json.dumps(measure(tokens, width)), flush=True)


if __name__ == '__main__':
  app.run(main)
