"""The head: padded rows are as good as absent, and tied means one array."""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan import config as config_lib
from leviathan import errors
from leviathan import head
from leviathan import losses
from leviathan import model as model_lib

V, D = 50, 16
ROWS = 128
LEV = {
  'name': 'lev',
  'num_digits': 2,
  'seed_width': 5,
  'heads': 2,
  'knots': 4,
  'rank': 3,
  'implementation': 'auto',
}


def make_model(embedder, head_name):
  section = {
    'vocab_size': V,
    'width': D,
    'layers': 1,
    'head_width': 8,
    'mlp_width': 8,
    'precision': 'float32',
    'remat': 'none',
    'attention': 'auto',
    'token_order': '',
    'embedder': embedder,
    'head': {'name': head_name},
  }
  return config_lib.build(model_lib.ModelConfig, section).make()


@pytest.mark.parametrize(
  'vocab_size, rows',
  [(1, 128), (128, 128), (129, 256), (50_257, 50_304), (200_019, 200_064)],
)
def test_rows_are_padded_to_the_next_multiple_of_128(vocab_size, rows):
  assert head.padded_rows(vocab_size) == rows


def draw(seed=0):
  rng = np.random.default_rng(seed)
  w_VD = rng.normal(size=(ROWS, D))
  x_BLD = rng.normal(size=(2, 3, D))
  targets_BL = rng.integers(0, V, (2, 3))
  return w_VD, x_BLD, targets_BL


def apply(w_VD, x_BLD, dtype=jnp.float32):
  module = head.UntiedConfig(name='untied').make(vocab_size=V, dtype=dtype)
  return module.apply({'params': {'out_VD': w_VD}}, x_BLD, None)


def test_logits_are_products_with_the_rows():
  w_VD, x_BLD, _ = draw()
  logits_BLV = apply(w_VD.astype(np.float32), x_BLD.astype(np.float32))
  assert logits_BLV.shape == (2, 3, ROWS) and logits_BLV.dtype == jnp.float32
  np.testing.assert_allclose(logits_BLV[..., :V], x_BLD @ w_VD[:V].T, atol=1e-5)


def test_padded_rows_have_no_probability_however_large():
  w_VD, x_BLD, _ = draw()
  w_VD[V:] = 1e6 * x_BLD[0, 0]
  logits_BLV = apply(w_VD.astype(np.float32), x_BLD.astype(np.float32))
  p_BLV = np.asarray(jax.nn.softmax(logits_BLV))
  assert np.all(p_BLV[..., V:] == 0)
  assert np.all(p_BLV[..., :V].argmax(-1) == np.asarray(logits_BLV).argmax(-1))
  np.testing.assert_allclose(p_BLV.sum(-1), 1, rtol=1e-5)


def test_loss_and_gradients_are_those_of_an_unpadded_head():
  w_VD, x_BLD, targets_BL = draw()

  def mean_nll(w_VD, x_BLD):
    return jnp.mean(losses.token_nll(apply(w_VD, x_BLD), targets_BL))

  loss, (d_w_VD, d_x_BLD) = jax.value_and_grad(mean_nll, argnums=(0, 1))(
    jnp.asarray(w_VD, jnp.float32), jnp.asarray(x_BLD, jnp.float32)
  )
  # By hand, in float64 and without padding: p - onehot, over 6 tokens.
  logits_BLV = x_BLD @ w_VD[:V].T
  p_BLV = np.exp(logits_BLV)
  p_BLV /= p_BLV.sum(-1, keepdims=True)
  onehot_BLV = np.eye(V)[targets_BL]
  d_logits_BLV = (p_BLV - onehot_BLV) / 6
  answer = -np.log((p_BLV * onehot_BLV).sum(-1)).mean()
  np.testing.assert_allclose(loss, answer, rtol=1e-6)
  np.testing.assert_allclose(
    d_w_VD[:V], np.einsum('BLV,BLD->VD', d_logits_BLV, x_BLD), atol=1e-6
  )
  np.testing.assert_allclose(d_x_BLD, d_logits_BLV @ w_VD[:V], atol=1e-6)
  assert np.all(np.asarray(d_w_VD)[V:] == 0)


def test_bfloat16_products_are_accumulated_in_float32():
  # 1 + 2**-9 + ... : a sum kept in bfloat16 would stay at 1.
  w_VD = np.full((ROWS, D), 2.0**-9, np.float32)
  w_VD[:, 0] = 1
  logits_BLV = apply(w_VD, jnp.ones((1, 1, D), jnp.bfloat16), jnp.bfloat16)
  assert logits_BLV.dtype == jnp.float32
  np.testing.assert_array_equal(logits_BLV[0, 0, :V], 1 + (D - 1) * 2.0**-9)


IDS = np.array([[3, 7, 49], [0, 7, 7]], np.int32)


@functools.cache
def with_table(head_name):
  """Fresh parameters, and params -> (loss, gradients)."""
  model = make_model({'name': 'table'}, head_name)

  def mean_nll(params):
    logits_BLV = model.apply({'params': params}, IDS)
    return jnp.mean(losses.token_nll(logits_BLV, (IDS + 1) % V))

  params = nn.unbox(jax.jit(model.init)(jax.random.key(0), IDS)['params'])
  return params, jax.jit(jax.value_and_grad(mean_nll))


def test_tied_is_one_array_with_both_gradients():
  params, scalar = with_table('tied')
  with_vocabulary = [x for x in jax.tree.leaves(params) if x.shape[0] == ROWS]
  assert len(with_vocabulary) == 1
  assert params.keys() == {'embedder', 'blocks', 'final_norm'}
  table_VD = params['embedder']['table_VD']
  loss, grads = scalar(params)
  # The same function with two arrays of equal values.
  _, apart = with_table('untied')
  apart_loss, parts = apart(params | {'head': {'out_VD': table_VD}})
  np.testing.assert_allclose(loss, apart_loss, rtol=1e-6)
  np.testing.assert_allclose(
    grads['embedder']['table_VD'],
    parts['embedder']['table_VD'] + parts['head']['out_VD'],
    atol=1e-6,
  )
  assert np.all(np.asarray(grads['embedder']['table_VD'])[V:] == 0)


@pytest.mark.parametrize('head_name', head.HEADS)
def test_padded_rows_of_a_whole_model_change_nothing(head_name):
  params, scalar = with_table(head_name)
  in_use_V1 = (np.arange(ROWS) < V)[:, None]

  def refill(path, x):
    return jnp.where(in_use_V1, x, 1e3) if path[-1].key[-3:] == '_VD' else x

  other = jax.tree_util.tree_map_with_path(refill, params)
  jax.tree.map(np.testing.assert_array_equal, scalar(params), scalar(other))


def test_a_tied_head_without_a_table_is_refused_in_one_line():
  model = make_model(LEV, 'tied')
  with pytest.raises(errors.ConfigError) as caught:
    jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, 2), np.int32))
  message = str(caught.value)
  assert "config.model.head.name='tied'" in message
  assert "'untied'" in message and '\n' not in message
