"""The quadratic B-spline basis: by hand, by recurrence, and its derivative."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan.embed import splines

KNOTS = (3, 5, 16)


def grid(num_knots):
  """Coordinates with both ends, all knots and all midpoints among them."""
  steps = 8 * (num_knots - 1)
  rng = np.random.default_rng(0)
  return np.sort(
    np.concatenate([np.arange(steps + 1) / steps, rng.uniform(size=200)])
  ).astype(np.float32)


def recurrence(u, num_knots):
  """Float64 twin by Cox and de Boor: B-splines of degree 0, 1, 2 in turn."""
  # Edges of the unit cells, far enough out that all G functions are whole.
  x = np.asarray(u, np.float64)[..., None] * (num_knots - 1)
  edges = np.arange(num_knots + 3) - 1.5
  b = ((x >= edges[:-1]) & (x < edges[1:])).astype(np.float64)
  for degree in (1, 2):
    left = (x - edges[: -degree - 1]) / degree
    right = (edges[degree + 1 :] - x) / degree
    b = left * b[..., :-1] + right * b[..., 1:]
  return b / b.sum(-1, keepdims=True)


@functools.partial(jax.jit, static_argnums=1)
def derivative(u, num_knots):
  """d basis / d u, of shape u.shape + (G,)."""
  return jax.vmap(jax.jacfwd(lambda v: splines.basis(v, num_knots)))(u)


@pytest.mark.parametrize('num_knots', KNOTS)
def test_it_is_the_b_spline_of_the_recurrence(num_knots):
  u = grid(num_knots)
  np.testing.assert_allclose(
    splines.basis(jnp.asarray(u), num_knots),
    recurrence(u, num_knots),
    atol=2e-6,
  )


@pytest.mark.parametrize('num_knots', KNOTS)
def test_values_sum_to_one_and_at_most_three_are_not_zero(num_knots):
  values = np.asarray(splines.basis(jnp.asarray(grid(num_knots)), num_knots))
  np.testing.assert_allclose(values.sum(-1), 1, atol=1e-6)
  assert values.min() >= 0
  assert (values > 0).sum(-1).max() == 3
  for row in values:  # Those that are not 0 stand side by side.
    found = np.flatnonzero(row)
    assert np.ptp(found) == len(found) - 1


@pytest.mark.parametrize(
  'u, expected',
  [
    (0.0, [6 / 7, 1 / 7, 0, 0, 0]),  # 3/4 and 1/8, the rest cut off
    (0.0625, [11 / 15.5, 4.5 / 15.5, 0, 0, 0]),  # 0.25 of the way: 11/16, 9/32
    (0.125, [0.5, 0.5, 0, 0, 0]),
    (0.25, [0.125, 0.75, 0.125, 0, 0]),
    (0.5, [0, 0.125, 0.75, 0.125, 0]),
    (0.625, [0, 0, 0.5, 0.5, 0]),
    (1.0, [0, 0, 0, 1 / 7, 6 / 7]),
  ],
)
def test_values_on_five_knots_by_hand(u, expected):
  values = splines.basis(jnp.float32(u), 5)
  np.testing.assert_allclose(values, expected, atol=1e-6)


def test_mirrored_coordinates_have_mirrored_values():
  u = jnp.arange(65) / 64
  np.testing.assert_allclose(
    splines.basis(1 - u, 5), splines.basis(u, 5)[:, ::-1], atol=1e-6
  )


def test_any_shape_in_and_the_same_type_out():
  u = jnp.zeros((2, 3, 4), jnp.float32)
  assert splines.basis(u, 6).shape == (2, 3, 4, 6)
  assert splines.basis(u, 6).dtype == jnp.float32


@pytest.mark.parametrize('num_knots', KNOTS)
def test_the_derivative_is_that_of_the_recurrence(num_knots):
  u = grid(num_knots)[1:-1]
  v = np.asarray(u, np.float64)
  step = 1e-6
  differences = (
    recurrence(v + step, num_knots) - recurrence(v - step, num_knots)
  ) / (2 * step)
  np.testing.assert_allclose(
    derivative(u, num_knots), differences, atol=1e-4 * num_knots
  )


@pytest.mark.parametrize('num_knots', KNOTS)
def test_the_derivative_does_not_jump(num_knots):
  # Where the pieces meet, at midpoints and knots, a step of `gap` changes the
  # slope by no more than the second derivative allows (at most 2 (G - 1)**2
  # inside and 4 (G - 1)**2 where the ends are divided by their sum).
  meet = np.arange(1, 2 * (num_knots - 1)) / (2 * (num_knots - 1))
  gap = 1e-4 / num_knots
  before = derivative((meet - gap).astype(np.float32), num_knots)
  after = derivative((meet + gap).astype(np.float32), num_knots)
  allowed = 4 * (num_knots - 1) ** 2 * 2 * gap
  assert np.abs(np.asarray(after - before)).max() < 1.1 * allowed


def test_the_derivative_at_the_ends_by_hand():
  # With x = 4 u: b0 = 3/4 - x^2 and b1 = (1/2 + x)^2 / 2 over their sum, so
  # b0' = -(3/4)(1/2) / (7/8)^2 = -24/49 at x = 0, and b1' = 24/49.
  slope = 4 * 24 / 49
  low, high = derivative(jnp.array([0.0, 1.0]), 5)
  np.testing.assert_allclose(low, [-slope, slope, 0, 0, 0], atol=1e-5)
  np.testing.assert_allclose(high, [0, 0, 0, -slope, slope], atol=1e-5)


@pytest.mark.parametrize('num_knots', KNOTS)
def test_the_taps_are_the_basis(num_knots):
  """Values and slopes, of splines whose knots are far apart as well."""
  rng = np.random.default_rng(0)
  splines_GR = 10.0 ** rng.uniform(-3, 3, (num_knots, 4))
  splines_GR = jnp.asarray(splines_GR, jnp.float32)
  u_T = jnp.asarray(grid(num_knots))

  def by_basis(u):
    return splines.basis(u, num_knots) @ splines_GR

  def by_taps(u):
    knot, before, after = splines.taps(u, num_knots)
    rows_3R = [row_GR[knot] for row_GR in splines.neighbours(splines_GR)]
    weights = before, 1 - before - after, after
    return sum(w * row_R for w, row_R in zip(weights, rows_3R, strict=True))

  for transform in (lambda f: f, jax.jacfwd):
    found, expected = (
      jax.jit(jax.vmap(transform(f)))(u_T) for f in (by_taps, by_basis)
    )
    scale = np.abs(expected).max(axis=0)
    np.testing.assert_array_less(np.abs(found - expected) / scale, 2e-5)


def test_the_basis_along_another_axis_is_the_same():
  u = jnp.asarray(grid(5))[:6].reshape(2, 3)
  np.testing.assert_array_equal(
    splines.basis(u, 5, axis=0), jnp.moveaxis(splines.basis(u, 5), -1, 0)
  )
