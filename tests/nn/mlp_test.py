"""SwiGLU by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from leviathan.nn import mlp


def apply(params, x_BLD, dtype=jnp.float32):
  module = mlp.SwiGLU(width=params['gate_DF'].shape[1], layers=2, dtype=dtype)
  params = jax.tree.map(lambda p: jnp.asarray(p, jnp.float32), params)
  return module.apply({'params': params}, jnp.asarray(x_BLD, dtype))


def test_values_by_hand():
  # gate = 2, -1; up = 3, 5: silu(2) * 3 and silu(-1) * 5, then summed.
  params = {
    'gate_DF': np.array([[2.0, -1.0]]),
    'up_DF': np.array([[3.0, 5.0]]),
    'down_FD': np.array([[1.0], [10.0]]),
  }
  silu_2 = 2 / (1 + np.exp(-2))
  silu_minus_1 = -1 / (1 + np.exp(1))
  found = apply(params, np.ones((1, 1, 1)))
  np.testing.assert_allclose(
    found, [[[silu_2 * 3 + silu_minus_1 * 5 * 10]]], rtol=1e-6
  )


def test_it_is_the_formula():
  rng = np.random.default_rng(0)
  params = {
    'gate_DF': rng.normal(size=(5, 7)),
    'up_DF': rng.normal(size=(5, 7)),
    'down_FD': rng.normal(size=(7, 5)),
  }
  x_BLD = rng.normal(size=(2, 3, 5))
  gate = x_BLD @ params['gate_DF']
  inner = gate / (1 + np.exp(-gate)) * (x_BLD @ params['up_DF'])
  answer = inner @ params['down_FD']
  np.testing.assert_allclose(apply(params, x_BLD), answer, atol=1e-4)
  rough = apply(params, x_BLD, jnp.bfloat16)
  assert rough.dtype == jnp.bfloat16
  error = np.abs(np.asarray(rough, np.float64) - answer).max()
  assert error < 0.03 * np.abs(answer).max()


def test_parameters_have_no_biases_and_start_small():
  module = mlp.SwiGLU(width=96, layers=8, dtype=jnp.float32)
  params = module.init(jax.random.key(0), jnp.zeros((1, 1, 64)))['params']
  assert {name: box.value.shape for name, box in params.items()} == {
    'gate_DF': (64, 96),
    'up_DF': (64, 96),
    'down_FD': (96, 64),
  }
  for name, box in params.items():
    deviation = 0.02 / 16**0.5 if name == 'down_FD' else 0.02
    np.testing.assert_allclose(np.std(box.value), deviation, rtol=0.05)
    axes = {'D': 'embed', 'F': 'mlp'}
    assert box.names == tuple(axes[letter] for letter in name[-2:])
