"""Attention against a plain twin, and causality by gradient."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from leviathan.nn import attention

B, L, D, H, K = 2, 6, 12, 3, 4
POSITIONS = np.arange(L, dtype=np.int32)
ONE_SEGMENT = np.zeros((B, L), np.int32)
SEGMENTS = np.array([[0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 1, 1]], np.int32)


def draw(seed=0):
  rng = np.random.default_rng(seed)
  params = {
    name: rng.normal(0, 0.4, (D, H, K))
    for name in ('query_DHK', 'key_DHK', 'value_DHK')
  }
  params['out_HKD'] = rng.normal(0, 0.4, (H, K, D))
  x_BLD = rng.normal(size=(B, L, D))
  return params, x_BLD


@functools.partial(jax.jit, static_argnames='dtype')
def apply(params, x_BLD, dtype=jnp.float32, segments_BL=None):
  module = attention.Attention(head_width=K, layers=2, dtype=dtype)
  params = jax.tree.map(lambda p: jnp.asarray(p, jnp.float32), params)
  x_BLD = jnp.asarray(x_BLD, dtype)
  return module.apply({'params': params}, x_BLD, POSITIONS, segments_BL)


def twin(params, x_BLD, segments_BL):
  """One sequence, head and position at a time, in float64."""

  def turned(vector, position):
    out = np.empty(K)
    for k in range(K // 2):
      angle = position * 10_000 ** (-2 * k / K)
      a, b = vector[k], vector[k + K // 2]
      out[k] = a * np.cos(angle) - b * np.sin(angle)
      out[k + K // 2] = b * np.cos(angle) + a * np.sin(angle)
    return out

  y_BLD = np.zeros((B, L, D))
  for b in range(B):
    for h in range(H):
      q, k, v = (
        x_BLD[b] @ params[name][:, h]
        for name in ('query_DHK', 'key_DHK', 'value_DHK')
      )
      for i in range(L):
        seen = [
          j for j in range(i + 1) if segments_BL[b, j] == segments_BL[b, i]
        ]
        scores = [turned(q[i], i) @ turned(k[j], j) / K**0.5 for j in seen]
        weights = np.exp(scores) / np.sum(np.exp(scores))
        y_BLD[b, i] += (weights @ v[seen]) @ params['out_HKD'][h]
  return y_BLD


def test_it_is_causal_softmax_attention_with_rotary_positions():
  params, x_BLD = draw()
  np.testing.assert_allclose(
    apply(params, x_BLD), twin(params, x_BLD, ONE_SEGMENT), atol=2e-5
  )


def test_segments_see_themselves_alone():
  params, x_BLD = draw()
  found = apply(params, x_BLD, segments_BL=SEGMENTS)
  np.testing.assert_allclose(found, twin(params, x_BLD, SEGMENTS), atol=2e-5)


def test_no_gradient_comes_from_a_later_position():
  params, x_BLD = draw()
  # How each output position, weighted at random, depends on each input.
  weights_D = np.random.default_rng(3).normal(size=D).astype(np.float32)

  def outputs_L(x_LD):
    return apply(params, x_LD[None])[0] @ weights_D

  slopes_LLD = jax.jit(jax.jacrev(outputs_L))(
    jnp.asarray(x_BLD[0], jnp.float32)
  )
  depends_LL = np.abs(np.asarray(slopes_LLD)).max(-1)
  later = np.triu(np.ones((L, L), bool), 1)
  assert np.all(depends_LL[later] == 0)
  assert np.all(depends_LL[~later] > 0)


def test_sequences_of_a_batch_do_not_meet():
  params, x_BLD = draw()
  other = x_BLD.copy()
  other[1] += 1
  np.testing.assert_array_equal(
    apply(params, x_BLD)[0], apply(params, other)[0]
  )


def test_bfloat16_is_close():
  params, x_BLD = draw()
  found = apply(params, x_BLD, jnp.bfloat16)
  assert found.dtype == jnp.bfloat16
  answer = twin(params, x_BLD, ONE_SEGMENT)
  error = np.abs(np.asarray(found, np.float64) - answer).max()
  assert error < 0.03 * np.abs(answer).max()


def test_parameters_have_no_biases_and_start_small():
  width, layers = 64, 8
  module = attention.Attention(head_width=16, layers=layers, dtype=jnp.float32)
  params = module.init(
    jax.random.key(0), jnp.zeros((1, 2, width)), POSITIONS[:2]
  )['params']
  shapes = {name: box.value.shape for name, box in params.items()}
  assert shapes == {
    'query_DHK': (width, 4, 16),
    'key_DHK': (width, 4, 16),
    'value_DHK': (width, 4, 16),
    'out_HKD': (4, 16, width),
  }
  for name, box in params.items():
    deviation = 0.02 / (2 * layers) ** 0.5 if name == 'out_HKD' else 0.02
    np.testing.assert_allclose(np.std(box.value), deviation, rtol=0.05)
    axes = {'D': 'embed', 'H': 'heads', 'K': None}
    assert box.names == tuple(axes[letter] for letter in name[-3:])
