"""RMSNorm by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan.nn import norms


def norm(x, scale, dtype=jnp.float32):
  params = {'scale_D': jnp.asarray(scale, jnp.float32)}
  return norms.RMSNorm(dtype).apply({'params': params}, x)


def test_values_by_hand():
  # The mean of squares of 3 and 4 is 12.5.
  found = norm(jnp.array([[[3.0, 4.0]]]), [1.0, 2.0])
  np.testing.assert_allclose(
    found, [[[3 / 12.5**0.5, 2 * 4 / 12.5**0.5]]], rtol=1e-5
  )


def test_epsilon_is_added_to_the_mean_of_squares():
  # 1e-5 beside a mean of squares of 1e-6: 1e-3 / sqrt(1.1e-5).
  found = norm(jnp.array([[[1e-3, -1e-3]]]), [1.0, 1.0])
  np.testing.assert_allclose(found[0, 0, 0], 1e-3 / 1.1e-5**0.5, rtol=1e-5)
  assert np.all(norm(jnp.zeros((1, 1, 2)), [1.0, 1.0]) == 0)


def test_each_position_is_normalised_alone():
  x_BLD = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
  found = norm(x_BLD, np.ones(8))
  rms = np.sqrt(np.mean(np.square(x_BLD), -1, keepdims=True) + 1e-5)
  np.testing.assert_allclose(found, x_BLD / rms, rtol=1e-5)


@pytest.mark.parametrize('magnitude', [1.0, 300.0])
def test_bfloat16_is_computed_in_float32_and_rounded_once(magnitude):
  x_BLD = np.random.default_rng(1).normal(size=(1, 4, 512)) * magnitude
  x_BLD = jnp.asarray(x_BLD, jnp.bfloat16)
  found = norm(x_BLD, np.ones(512), jnp.bfloat16)
  assert found.dtype == jnp.bfloat16
  x = np.asarray(x_BLD, np.float64)
  answer = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-5)
  # One rounding to 8 bits.
  np.testing.assert_allclose(np.asarray(found, np.float64), answer, rtol=2**-8)


def test_the_gain_starts_at_one():
  params = norms.RMSNorm(jnp.float32).init(
    jax.random.key(0), jnp.zeros((1, 1, 6))
  )['params']
  np.testing.assert_array_equal(params['scale_D'].value, np.ones(6))
  assert params['scale_D'].names == ('norm',)
