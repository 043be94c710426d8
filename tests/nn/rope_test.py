"""Rotary positions: the layout by hand, and that only differences count."""

import jax.numpy as jnp
import numpy as np
import pytest

from leviathan.nn import rope


def rotate(vector, position, dtype=jnp.float32):
  """One vector at one position."""
  x_BLHK = jnp.asarray(vector, dtype)[None, None, None, :]
  return rope.rotate(x_BLHK, jnp.array([position], jnp.int32))[0, 0, 0]


@pytest.mark.parametrize('position', [0, 1, 3, 511])
def test_halves_are_rotated_as_in_llama(position):
  # K = 4: entries 0 and 2 turn by 1 a position, 1 and 3 by 10000**-0.5 = 0.01.
  c1, s1 = np.cos(position), np.sin(position)
  c2, s2 = np.cos(position / 100), np.sin(position / 100)
  # The columns are the images of the unit vectors.
  expected = [[c1, 0, -s1, 0], [0, c2, 0, -s2], [s1, 0, c1, 0], [0, s2, 0, c2]]
  found = np.stack([rotate(e, position) for e in np.eye(4)], axis=1)
  np.testing.assert_allclose(found, expected, atol=1e-5)


def test_frequencies_by_hand():
  # K = 8: 10000**(-k/4) = 1, 0.1, 0.01, 0.001.
  found = rotate([1, 1, 1, 1, 0, 0, 0, 0], 2)
  angles = 2 * np.array([1, 0.1, 0.01, 0.001])
  np.testing.assert_allclose(found[:4], np.cos(angles), atol=1e-6)
  np.testing.assert_allclose(found[4:], np.sin(angles), atol=1e-6)


def test_products_depend_on_the_difference_of_positions_alone():
  rng = np.random.default_rng(0)
  query, key = rng.normal(size=(2, 64)).astype(np.float32)
  for difference in (0, 1, 17, 200):
    products = [
      float(rotate(query, start + difference) @ rotate(key, start))
      for start in (0, 5, 100, 300)
    ]
    np.testing.assert_allclose(products, products[0], atol=1e-3)
  far = float(rotate(query, 40) @ rotate(key, 3))
  assert abs(far - float(rotate(query, 3) @ rotate(key, 40))) > 0.1


def test_lengths_are_kept_and_position_zero_is_the_identity():
  vector = np.random.default_rng(1).normal(size=64).astype(np.float32)
  np.testing.assert_array_equal(rotate(vector, 0), vector)
  np.testing.assert_allclose(
    np.linalg.norm(rotate(vector, 300)), np.linalg.norm(vector), rtol=1e-5
  )


def test_positions_restart_with_each_segment():
  segments_BL = np.array([[0, 0, 1, 1, 1, 2], [4] * 6, [7, 0, 0, 7, 7, 8]])
  np.testing.assert_array_equal(
    rope.restart(jnp.arange(6), jnp.asarray(segments_BL, jnp.int32)),
    [[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 4, 5], [0, 0, 1, 0, 1, 0]],
  )


def test_each_row_may_have_its_own_positions():
  x_BLHK = np.random.default_rng(2).normal(size=(2, 3, 2, 8))
  x_BLHK = x_BLHK.astype(np.float32)
  positions_BL = np.array([[0, 1, 2], [5, 0, 9]], np.int32)
  expected = [
    rope.rotate(x_BLHK[b : b + 1], positions_BL[b])[0] for b in range(2)
  ]
  np.testing.assert_array_equal(rope.rotate(x_BLHK, positions_BL), expected)


def test_angles_do_not_suffer_from_the_compute_type():
  # In bfloat16 position 257 would be 256.
  vector = [1.0] + [0.0] * 7
  found = np.asarray(rotate(vector, 257, jnp.bfloat16), np.float64)
  assert rotate(vector, 257, jnp.bfloat16).dtype == jnp.bfloat16
  np.testing.assert_allclose(found[0], np.cos(257), atol=4e-3)
  np.testing.assert_allclose(found[4], np.sin(257), atol=4e-3)
