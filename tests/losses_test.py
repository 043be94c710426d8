"""The one loss, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan import losses


def nll(logits, targets):
  return losses.token_nll(jnp.asarray(logits), jnp.asarray(targets, jnp.int32))


def test_values_by_hand():
  logits_BLV = np.log([[[1.0, 1, 2], [8, 1, 1]]]).astype(np.float32)
  np.testing.assert_allclose(
    nll(logits_BLV, [[2, 1]]), [[np.log(2), np.log(10)]], rtol=1e-6
  )


def test_a_shift_of_all_logits_changes_nothing():
  logits_BLV = np.random.default_rng(0).normal(size=(2, 3, 5))
  targets_BL = [[0, 1, 2], [3, 4, 0]]
  plain = nll(logits_BLV.astype(np.float32), targets_BL)
  answer = np.log(np.exp(logits_BLV).sum(-1)) - np.take_along_axis(
    logits_BLV, np.array(targets_BL)[..., None], -1
  ).squeeze(-1)
  np.testing.assert_allclose(plain, answer, rtol=1e-5)
  far = nll((logits_BLV + 512).astype(np.float32), targets_BL)
  np.testing.assert_allclose(far, answer, atol=1e-3)


def test_large_logits_stay_finite():
  np.testing.assert_allclose(nll([[[1e4, 0.0, -1e4]]], [[2]]), [[2e4]])


@pytest.mark.parametrize('scale', [1.0, 1e4])
def test_columns_of_the_lowest_finite_number_do_not_count(scale):
  lowest = np.finfo(np.float32).min
  logits_V = np.array([1.0, -2.0, 0.5], np.float32) * scale
  padded_V = np.concatenate([logits_V, [lowest, lowest]]).astype(np.float32)

  def one(logits_V):
    return nll(logits_V[None, None], [[1]])[0, 0]

  loss, grad_V = jax.value_and_grad(one)(jnp.asarray(logits_V))
  padded_loss, padded_grad_V = jax.value_and_grad(one)(jnp.asarray(padded_V))
  assert padded_loss == loss
  np.testing.assert_array_equal(padded_grad_V[:3], grad_V)
  np.testing.assert_array_equal(padded_grad_V[3:], [0, 0])


def test_it_is_computed_in_float32():
  # A mean of 2**-8 of many tokens would be lost in bfloat16.
  logits_BLV = jnp.asarray([[[3.0, 0.0, 0.0]]], jnp.bfloat16)
  found = losses.token_nll(logits_BLV, jnp.zeros((1, 1), jnp.int32))
  assert found.dtype == jnp.float32
  np.testing.assert_allclose(found, [[np.log(1 + 2 * np.exp(-3))]], rtol=1e-6)


@pytest.mark.parametrize('target', [3, 100])
def test_a_target_outside_gives_nan_and_not_another_tokens_loss(target):
  assert np.isnan(nll([[[1.0, 2.0, 3.0]]], [[target]])).all()
