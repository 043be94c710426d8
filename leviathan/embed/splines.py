"""Coordinates in [0, 1], and quadratic splines on them.

Batley & Saha, arXiv 2601.22040 v2.
"""

import jax
import jax.numpy as jnp

NORM_EPSILON = 1e-5


def coordinates(
  a_C: jax.Array, scale_C: jax.Array, bias_C: jax.Array, axis: int = -1
) -> jax.Array:
  """Projected seeds to coordinates in [0, 1].

  LayerNorm over the C coordinates, then sigmoid(a / 2); other axes broadcast.

  Args:
    a_C: projected seeds, float32; C may stand beside others.
    scale_C: gain of the norm, to be broadcast to `a_C`.
    bias_C: its shift.
    axis: where C stands in `a_C`.

  Returns:
    Coordinates like `a_C`.
  """
  mean = jnp.mean(a_C, axis=axis, keepdims=True)
  variance = jnp.mean(jnp.square(a_C - mean), axis=axis, keepdims=True)
  normed_C = (a_C - mean) * jax.lax.rsqrt(variance + NORM_EPSILON)
  return jax.nn.sigmoid(0.5 * (normed_C * scale_C + bias_C))


def basis(u: jax.Array, num_knots: int, axis: int = -1) -> jax.Array:
  """Values of the G basis functions, which sum to 1.

  Args:
    u: coordinates in [0, 1], of any shape.
    num_knots: G >= 3; knots lie evenly on [0, 1], both ends included.
    axis: where G stands in what is returned.

  Returns:
    Like `u` with an axis more, along which at most three values are not 0.
  """
  x = jnp.expand_dims(u * (num_knots - 1), axis)
  shape = list(x.shape)
  shape[axis] = num_knots
  # Of integers: a kernel can make no others.
  knots = jax.lax.broadcasted_iota(jnp.int32, shape, axis % x.ndim)
  # Inside, the sum is 1 already; at the ends part of the support is cut off,
  # that of the functions which would have their knots at -1 and at G.
  total = 1 - _bspline(x + 1) - _bspline(num_knots - x)
  return _bspline(x - knots.astype(x.dtype)) / total


def _bspline(t: jax.Array) -> jax.Array:
  """The quadratic B-spline: 3/4 - t^2, then (3/2 - |t|)^2 / 2, then 0."""
  t = jnp.abs(t)
  far = jnp.maximum(1.5 - t, 0)
  near = jnp.maximum(0.5 - t, 0)
  return 0.5 * far * far - 1.5 * near * near


def taps(
  u: jax.Array, num_knots: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """The three functions of `basis` that may not be 0 at `u`.

  Args:
    u: coordinates in [0, 1], of any shape.
    num_knots: G >= 3.

  Returns:
    Arrays like `u`: the nearest knot, int32 in [0, G), and the weights of what
    `neighbours` calls before and after it. The knot itself has the rest to 1.
  """
  x = u * (num_knots - 1)
  knot = (x + 0.5).astype(jnp.int32)
  offset = x - knot.astype(u.dtype)
  # At an end the function beyond it is cut off, and the other two are divided
  # by their sum; by symmetry both ends look inward.
  t = jnp.where(knot == 0, offset, -offset)
  inward = _bspline(1 - t) / (_bspline(t) + _bspline(1 - t))
  at_end = (knot == 0) | (knot == num_knots - 1)
  return (
    knot,
    jnp.where(at_end, 0, _bspline(1 + offset)),
    jnp.where(at_end, inward, _bspline(1 - offset)),
  )


def neighbours(
  splines_GR: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Rows before, at and after each knot, each (..., G, R) as `splines_GR`.

  At both ends, what is inward counts as after; nothing is before.
  """
  before = jnp.concatenate(
    [splines_GR[..., :1, :], splines_GR[..., :-1, :]], axis=-2
  )
  after = jnp.concatenate(
    [splines_GR[..., 1:, :], splines_GR[..., -2:-1, :]], axis=-2
  )
  return before, splines_GR, after
