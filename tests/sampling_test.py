"""Sampling draws from the model, and never what is no token."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan import experiment
from leviathan import head
from leviathan import sampling

VOCAB_SIZE = 500  # Padded to 512.
LENGTH = 12


@pytest.fixture(scope='module')
def parts(tiny):
  config = tiny.config('tied', model__layers=1, model__vocab_size=VOCAB_SIZE)
  mesh = experiment.sharding.make_mesh(config.mesh, jax.devices()[:1])
  return experiment.Experiment(config, mesh)


@pytest.fixture(scope='module')
def params(parts):
  return parts.fresh_state().params


@pytest.fixture(scope='module')
def sample(parts):
  return sampling.make(parts.model, LENGTH)


def prompt(rows=1):
  ids_BL = np.zeros((rows, LENGTH), np.int32)
  ids_BL[:, :3] = [5, 6, 7]
  return jnp.asarray(ids_BL)


def test_temperature_0_takes_the_likeliest_one_after_another(
  parts, params, sample
):
  wanted = [5, 6, 7]
  while len(wanted) < LENGTH:
    logits_BLV = parts.model.apply({'params': params}, jnp.array([wanted]))
    wanted.append(int(logits_BLV[0, -1].argmax()))
  found = sample(params, prompt(), 3, jax.random.key(0), 0.0)
  assert found[0].tolist() == wanted


def test_rows_that_only_pad_are_never_drawn(params, sample):
  """Even at a temperature that makes all tokens alike."""
  assert head.padded_rows(VOCAB_SIZE) > VOCAB_SIZE
  ids_BL = sample(params, prompt(400), 3, jax.random.key(1), 1e6)
  drawn = np.asarray(ids_BL)[:, 3:]
  assert drawn.max() < VOCAB_SIZE
  assert len(np.unique(drawn)) > 0.9 * VOCAB_SIZE


def test_the_seed_decides(params, sample):
  a, b, c = (
    sample(params, prompt(), 3, jax.random.key(seed), 1.0).tolist()
    for seed in (0, 0, 1)
  )
  assert a == b != c
  assert a[0][:3] == [5, 6, 7]
