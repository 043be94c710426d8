"""Rotary positions (arXiv 2104.09864), halves rotated as in Llama."""

import jax
import jax.numpy as jnp

THETA = 10_000.0


def rotate(x_BLHK: jax.Array, positions_L: jax.Array) -> jax.Array:
  """Turns each pair (k, k + K/2) by position * THETA**(-2k/K), in float32.

  Args:
    x_BLHK: queries or keys; K is even.
    positions_L: int32 positions in the sequence.

  Returns:
    An array like `x_BLHK`, of its type.
  """
  half = x_BLHK.shape[-1] // 2
  frequency_K = THETA ** (-jnp.arange(half, dtype=jnp.float32) / half)
  angle_LK = positions_L[:, None].astype(jnp.float32) * frequency_K
  cos = jnp.cos(angle_LK)[:, None, :]
  sin = jnp.sin(angle_LK)[:, None, :]
  first, second = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
  rotated = jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin], axis=-1
  )
  return rotated.astype(x_BLHK.dtype)
