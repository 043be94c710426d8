"""Rotary positions (arXiv 2104.09864), halves rotated as in Llama."""

import jax
import jax.numpy as jnp

THETA = 10_000.0


def restart(positions_L: jax.Array, segments_BL: jax.Array) -> jax.Array:
  """positions_BL from 0 on in each segment, a run of equal numbers."""
  begins_BL = jnp.diff(segments_BL, prepend=segments_BL[:, :1]) != 0
  starts_BL = jax.lax.cummax(jnp.where(begins_BL, positions_L, 0), axis=1)
  return positions_L - starts_BL


def rotate(x_BLHK: jax.Array, positions: jax.Array) -> jax.Array:
  """Turns each pair (k, k + K/2) by position * THETA**(-2k/K), in float32.

  Args:
    x_BLHK: queries or keys; K is even.
    positions: int32 positions in the sequence, (L,) or (B, L).

  Returns:
    An array like `x_BLHK`, of its type.
  """
  half = x_BLHK.shape[-1] // 2
  frequency_K = THETA ** (-jnp.arange(half, dtype=jnp.float32) / half)
  angle = positions[..., None].astype(jnp.float32) * frequency_K
  cos = jnp.cos(angle)[..., None, :]
  sin = jnp.sin(angle)[..., None, :]
  first, second = jnp.split(x_BLHK.astype(jnp.float32), 2, axis=-1)
  rotated = jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin], axis=-1
  )
  return rotated.astype(x_BLHK.dtype)
