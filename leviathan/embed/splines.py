"""Coordinates in [0, 1], and the quadratic B-spline basis on them.

Batley & Saha, arXiv 2601.22040 v2.
"""

import jax
import jax.numpy as jnp

NORM_EPSILON = 1e-5


def coordinates(
  a_C: jax.Array, scale_C: jax.Array, bias_C: jax.Array
) -> jax.Array:
  """Projected seeds to coordinates in [0, 1].

  LayerNorm over the last axis, then sigmoid(a / 2); other axes broadcast.
  """
  mean = jnp.mean(a_C, axis=-1, keepdims=True)
  variance = jnp.mean(jnp.square(a_C - mean), axis=-1, keepdims=True)
  normed_C = (a_C - mean) * jax.lax.rsqrt(variance + NORM_EPSILON)
  return jax.nn.sigmoid(0.5 * (normed_C * scale_C + bias_C))


def basis(u: jax.Array, num_knots: int) -> jax.Array:
  """Values of the G basis functions, which sum to 1.

  Args:
    u: coordinates in [0, 1], of any shape.
    num_knots: G >= 3; knots lie evenly on [0, 1], both ends included.

  Returns:
    Array of shape u.shape + (G,), at most three entries of which are not 0.
  """
  knots_G = jnp.arange(num_knots, dtype=u.dtype)
  t = jnp.abs(u[..., None] * (num_knots - 1) - knots_G)
  values = jnp.where(
    t < 0.5,
    0.75 - t * t,
    jnp.where(t < 1.5, 0.5 * jnp.square(1.5 - t), 0.0),
  )
  # Inside, the sum is 1 already; at the ends part of the support is cut off.
  return values / jnp.sum(values, axis=-1, keepdims=True)
