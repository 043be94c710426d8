"""Named, stepped, typed random keys: each use has its own, used once."""

import zlib

import jax


def root(seed: int) -> jax.Array:
  """The run's one key, from `config.train.seed`."""
  return jax.random.key(seed)


def stream(key: jax.Array, name: str, step: int | jax.Array = 0) -> jax.Array:
  """The key of one use of randomness at one step.

  Args:
    key: the run's root key.
    name: what the randomness is for, as 'params' or 'sample'.
    step: position in the stream.

  Returns:
    A typed key that depends on all three and on nothing else.
  """
  named = jax.random.fold_in(key, zlib.crc32(name.encode()))
  return jax.random.fold_in(named, step)
