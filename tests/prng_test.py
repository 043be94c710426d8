"""Named, stepped, typed keys."""

import itertools

import jax
import numpy as np
import pytest

from leviathan import prng


def bits(key):
  """The key's own words, comparable."""
  return tuple(np.asarray(jax.random.key_data(key)).tolist())


def test_a_stream_depends_on_seed_name_and_step():
  uses = itertools.product((0, 1), ('params', 'sample'), (0, 1, 2))
  keys = {
    bits(prng.stream(prng.root(seed), name, step)) for seed, name, step in uses
  }
  assert len(keys) == 2 * 2 * 3


def test_a_stream_depends_on_nothing_else():
  first = prng.stream(prng.root(3), 'sample', 5)
  prng.stream(prng.root(3), 'params')
  assert bits(prng.stream(prng.root(3), 'sample', 5)) == bits(first)


def test_keys_are_the_same_forever():
  # Else a run that is resumed with a newer version draws other numbers.
  assert bits(prng.stream(prng.root(0), 'params')) == (219926212, 2225269108)
  assert bits(prng.stream(prng.root(7), 'sample', 12)) == (
    4172518879,
    3052667619,
  )


def test_the_step_may_be_traced():
  traced = jax.jit(lambda step: prng.stream(prng.root(1), 'sample', step))(9)
  assert bits(traced) == bits(prng.stream(prng.root(1), 'sample', 9))


def test_keys_are_typed():
  for key in (prng.root(0), prng.stream(prng.root(0), 'params')):
    assert jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key)
    assert key.shape == ()


def test_the_suite_refuses_a_key_that_is_used_twice():
  key = prng.stream(prng.root(0), 'sample')
  jax.random.normal(key)
  with pytest.raises(jax.errors.KeyReuseError):
    jax.random.normal(key)


def test_one_root_serves_many_streams():
  root = prng.root(0)
  first, second = (
    float(jax.random.normal(prng.stream(root, name))) for name in ('a', 'b')
  )
  assert first != second
