"""Sampling draws from the model, and never what is no token."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan import errors
from leviathan import experiment
from leviathan import head
from leviathan import prng
from leviathan import sampling

VOCAB_SIZE = 500  # Padded to 512.
LENGTH = 24
PROMPTS = ([5], [6, 7, 8, 9, 10, 11, 12], [5, 6, 7], [100] * 20)


@pytest.fixture(scope='module')
def parts(tiny):
  config = tiny.config('tied', model__layers=2, model__vocab_size=VOCAB_SIZE)
  mesh = experiment.sharding.make_mesh(config.mesh, jax.devices()[:1])
  return experiment.Experiment(config, mesh)


@pytest.fixture(scope='module')
def params(parts):
  """Larger than at the start, so that what came before counts."""
  return jax.tree.map(lambda p: 5 * p, parts.fresh_state().params)


def keys(rows, seed=0):
  return jnp.stack([prng.stream(prng.root(seed), 'row', n) for n in rows])


@pytest.fixture(scope='module')
def written(parts, params):
  """The new ids of each prompt, up to the length of a row."""
  make = functools.cache(functools.partial(sampling.make, parts.model, LENGTH))

  def write(prompts, seed=0, rows=None, **choice):
    sample = make(sampling.Choice(**choice))
    found = [[] for _ in prompts]
    rows = range(len(prompts)) if rows is None else rows
    for new in sample(params, prompts, keys(rows, seed)):
      for ids, more in zip(found, new, strict=True):
        ids += more
    return found

  return write


@pytest.fixture(scope='module')
def whole(parts, params):
  """logits_V of what follows some ids, by a forward pass over the row."""
  apply = jax.jit(parts.model.apply)

  def logits(ids):
    ids_BL = np.zeros((1, LENGTH), np.int32)
    ids_BL[0, : len(ids)] = ids
    return apply({'params': params}, ids_BL)[0, len(ids) - 1]

  return logits


def test_temperature_0_takes_the_likeliest_one_after_another(written, whole):
  for prompt, found in zip(PROMPTS, written(PROMPTS), strict=True):
    wanted = list(prompt)
    while len(wanted) < LENGTH:
      wanted.append(int(whole(wanted).argmax()))
    assert prompt + found == wanted


def test_a_token_is_drawn_by_the_key_of_its_row_and_position(written, whole):
  found = written(PROMPTS, temperature=0.7, rows=[3, 5, 7, 9])
  for prompt, row, ids in zip(PROMPTS, [3, 5, 7, 9], found, strict=True):
    for at in range(len(prompt), LENGTH):
      key = prng.stream(keys([row])[0], 'token', at)
      logits_V = whole([*prompt, *ids][:at]) / 0.7
      assert ids[at - len(prompt)] == jax.random.categorical(key, logits_V)


def test_a_row_depends_neither_on_the_others_nor_on_what_fills_it_up(
  written, monkeypatch
):
  drawn = {'temperature': 1.0, 'top_k': 50, 'top_p': 0.9}
  together = written(PROMPTS, **drawn)
  assert len({tuple(ids[:4]) for ids in together}) == len(PROMPTS)
  monkeypatch.setattr(sampling, 'BUFFER', 1)
  for row, prompt in enumerate(PROMPTS):
    assert written([prompt], rows=[row], **drawn) == [together[row]]


def test_rows_end_at_their_length_however_many_steps_are_made(written):
  for prompt, ids in zip(PROMPTS, written(PROMPTS), strict=True):
    assert len(prompt) + len(ids) == LENGTH


def test_rows_that_only_pad_are_never_drawn(written):
  """Even at a temperature that makes all tokens alike."""
  assert head.padded_rows(VOCAB_SIZE) > VOCAB_SIZE
  drawn = np.concatenate(written([[5, 6, 7]] * 200, temperature=1e6))
  assert drawn.max() < VOCAB_SIZE
  assert len(np.unique(drawn)) > 0.9 * VOCAB_SIZE


def test_the_seed_decides(written):
  a, b, c = (written([[5]], seed=n, temperature=1.0) for n in (0, 0, 1))
  assert a == b != c


SHARES = np.array([0.1, 0.4, 0.2, 0.3], np.float32)


@pytest.mark.parametrize(
  'choice, shares',
  [
    ({}, [0.1, 0.4, 0.2, 0.3]),
    ({'temperature': 0.5}, [1 / 30, 16 / 30, 4 / 30, 9 / 30]),
    ({'top_k': 2}, [0, 4 / 7, 0, 3 / 7]),
    ({'top_k': 1}, [0, 1, 0, 0]),
    ({'top_k': 100}, [0.1, 0.4, 0.2, 0.3]),
    ({'top_p': 0.3}, [0, 1, 0, 0]),
    ({'top_p': 0.6}, [0, 4 / 7, 0, 3 / 7]),
    ({'top_p': 0.8}, [0, 4 / 9, 2 / 9, 3 / 9]),
    # What the one leaves is the whole of the other.
    ({'top_k': 2, 'top_p': 0.56}, [0, 1, 0, 0]),
    ({'temperature': 0.5, 'top_p': 0.53}, [0, 1, 0, 0]),
  ],
)
def test_tokens_are_drawn_as_often_as_they_are_likely(choice, shares):
  choice = sampling.Choice(**({'temperature': 1.0} | choice))
  draws = 4000
  logits_BV = jnp.log(jnp.tile(SHARES, (draws, 1))) + 3
  drawn = jax.jit(choice.draw)(
    jax.random.split(jax.random.key(0), draws), logits_BV
  )
  found = np.bincount(drawn, minlength=4) / draws
  np.testing.assert_allclose(found, shares, atol=0.035)
  assert not found[np.array(shares) == 0].any()


@pytest.mark.parametrize(
  'field, value',
  [
    ('temperature', -0.1),
    ('temperature', float('nan')),
    ('top_k', 0),
    ('top_p', 0.0),
    ('top_p', 1.1),
  ],
)
def test_choices_that_cannot_be_are_refused(field, value):
  with pytest.raises(errors.ConfigError, match=f'{field}={value}; give'):
    sampling.Choice(**{field: value})
