"""The kernels of LEV at the edge of float32, by hand, and their work."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan.embed import lev_chunked
from leviathan.embed import lev_pallas
from leviathan.embed import modes

KERNELS = pytest.mark.parametrize(
  'kernel', [lev_chunked, lev_pallas], ids=['chunked', 'pallas']
)


def operands_of(factors_C):
  """One head of one rank, whose splines are constants."""
  factors_C = np.asarray(factors_C, np.float32)
  C = len(factors_C)
  return modes.Operands(
    rows_JNSC=jnp.zeros((1, 4, 1, C)),
    scale_SC=jnp.ones((1, C)),
    bias_SC=jnp.zeros((1, C)),
    splines_SCGR=jnp.tile(factors_C[None, :, None, None], (1, 1, 3, 1)),
  )


def product(kernel, factors_C, cotangent=1.0):
  """mode and its gradient by the factors, of one token, head and rank."""
  mode_TM, pull = jax.vjp(
    lambda operands: modes.modes(kernel, operands, jnp.zeros(1, int), 1),
    operands_of(factors_C),
  )
  (grads,) = pull(jnp.full_like(mode_TM, cotangent))
  return float(mode_TM.squeeze()), np.asarray(grads.splines_SCGR).sum(2).ravel()


@KERNELS
def test_a_product_within_range(kernel):
  mode, grads = product(kernel, [2, -3, 0.5])
  assert mode == -3.0
  np.testing.assert_allclose(grads, [-1.5, 1, -6], rtol=1e-6)


@KERNELS
def test_a_product_that_underflows_has_the_gradient_that_does_not(kernel):
  # The product is 2e-50 and so 0, but each without the other is a number.
  mode, grads = product(kernel, [1e-30, 1e-20, 2])
  assert mode == 0
  np.testing.assert_allclose(grads, [2e-20, 2e-30, 0], rtol=1e-6)


@KERNELS
@pytest.mark.parametrize(
  'factors, cotangent, expected',
  [
    ([1e-15, 1e-15, 2], 1e-10, [2e-25, 2e-25, 1e-40]),
    ([1e15, 1e15, 2], 1e10, [2e25, 2e25, np.inf]),
  ],
)
def test_the_gradient_is_right_where_only_it_leaves_the_range(
  kernel, factors, cotangent, expected
):
  _, grads = product(kernel, factors, cotangent)
  np.testing.assert_allclose(grads, expected, rtol=1e-6, atol=2e-40)


@KERNELS
def test_what_underflows_altogether_is_zero_without_nan(kernel):
  # 0.4**127 is some 1e-51, and so is its gradient: such a mode is dead.
  mode, grads = product(kernel, [0.4] * 128)
  assert mode == 0
  np.testing.assert_array_equal(grads, np.zeros(128))


@KERNELS
@pytest.mark.parametrize('tiny', [1e-40, -1e-44])
def test_a_factor_that_is_not_a_normal_number_is_safe(kernel, tiny):
  # Where such numbers are flushed to 0 it must be 0 for all: dividing by it
  # would give NaN.
  mode, grads = product(kernel, [tiny, 0.5, 3])
  assert abs(mode) < 1e-38
  np.testing.assert_allclose(grads, [1.5, 0, 0], atol=1e-38)


@KERNELS
def test_what_overflows_is_infinite_and_so_is_seen(kernel):
  mode, grads = product(kernel, [3] * 128)
  assert mode == np.inf and np.all(grads == np.inf)


@KERNELS
def test_where_no_gradient_arrives_none_leaves(kernel):
  # Not 0 * inf: a zero hides the overflow, and the loss would look fine.
  _, grads = product(kernel, [0] + [3] * 127, cotangent=0.0)
  np.testing.assert_array_equal(grads, np.zeros(128))


@KERNELS
def test_a_zero_among_what_overflows_is_still_zero(kernel):
  mode, grads = product(kernel, [0] + [3] * 127)
  assert mode == 0
  assert grads[0] == np.inf
  np.testing.assert_array_equal(grads[1:], np.zeros(127))


@KERNELS
def test_blocks_after_the_last_distinct_id_are_not_computed(kernel):
  """Of 1024 tokens one is wanted: the modes of the last block stay as found."""
  operands = operands_of([2, 3])
  ids_T = jnp.zeros(1024, int)
  mode_TM = kernel.forward(operands, ids_T, jnp.asarray(1))
  assert mode_TM[0, 0] == 6 and not np.any(mode_TM[-256:] == 6)
  cotangent_TM = jnp.zeros_like(mode_TM).at[0].set(1.0)
  # What a block that is not wanted would add, were it visited.
  cotangent_TM = cotangent_TM.at[-1].set(np.nan)
  grads = kernel.backward(
    operands, ids_T, jnp.asarray(1), mode_TM, cotangent_TM
  )
  np.testing.assert_allclose(grads.splines_SCGR.sum(2).ravel(), [3, 2])


@KERNELS
@pytest.mark.parametrize('lengths', [(3, 5, 7), (130, 64, 1030), (1, 1, 1)])
@pytest.mark.parametrize('axes', ['TM,MD->TD', 'TD,MD->TM', 'TM,TD->MD'])
def test_a_product_of_matrices_of_any_size(kernel, lengths, axes):
  rng = np.random.default_rng(0)
  length = dict(zip('TMD', lengths, strict=True))
  a, b = (
    rng.normal(size=[length[x] for x in names])
    for names in axes.split('->')[0].split(',')
  )
  found = kernel.product(
    jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32), axes
  )
  expected = np.einsum(axes, a, b)
  np.testing.assert_allclose(
    found, expected, atol=2e-5 * np.abs(expected).max(), rtol=0
  )
