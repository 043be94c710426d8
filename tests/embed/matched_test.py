"""The rivals: what they compute, by hand, and that they are LEV's size."""

import importlib

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan import errors
from leviathan import experiment
from leviathan import parameters

RIVALS = ('albert', 'flat_mlp', 'factorized_mlp')
PAPER_LEV = {'200m': 1_532_032, '400m': 1_728_640, '1p2b': 2_252_928}


def model_config(arm, scale, vocab_size=None):
  config = importlib.import_module(f'configs.{arm}').get_config(scale)
  if vocab_size is not None:
    config.model.vocab_size = vocab_size
  return experiment.read_config(config).model


def input_parameters(config):
  ids_BL = jnp.zeros((1, 2), jnp.int32)
  boxed = jax.eval_shape(config.make().init, jax.random.key(0), ids_BL)
  shapes = parameters.shapes(nn.unbox(boxed['params']))
  return parameters.count(shapes, config.vocab_size)['input']


@pytest.mark.parametrize('vocab_size', [50_257, 100_277, 200_019])
@pytest.mark.parametrize('scale', ['200m', '400m', '1p2b'])
@pytest.mark.parametrize('arm', RIVALS)
def test_input_parameters_are_lev_s_to_five_percent(arm, scale, vocab_size):
  lev = input_parameters(model_config('lev', scale, vocab_size))
  rival = input_parameters(model_config(arm, scale, vocab_size))
  assert abs(rival / lev - 1) <= 0.05
  if vocab_size == 200_019:
    assert lev == PAPER_LEV[scale]


@pytest.mark.parametrize('arm', RIVALS)
def test_the_smoke_scale_is_matched_to_its_own_smaller_lev(arm):
  lev = input_parameters(model_config('lev', 'smoke'))
  rival = input_parameters(model_config(arm, 'smoke'))
  assert abs(rival / lev - 1) <= 0.05


def test_a_vocabulary_that_cannot_be_matched_is_refused():
  """A table of one number a token is already larger than that LEV."""
  config = model_config('albert', 'smoke', 1_000_000)
  with pytest.raises(errors.ConfigError, match='vocab_size=1000000'):
    config.make()


def rms_norm(x, scale):
  return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale


def silu(x):
  return x / (1 + np.exp(-x))


def run(arm, ids):
  """(x, parameters) of an arm's embedder, in float64, and not as they start."""
  embedder = model_config(arm, 'smoke').make().embedder
  ids_BL = jnp.asarray([ids], jnp.int32)
  params = nn.unbox(embedder.init(jax.random.key(0), ids_BL)['params'])
  params = jax.tree.map(lambda x: x * 1.5, params)
  x_BLD = embedder.apply({'params': params}, ids_BL)
  return x_BLD[0], jax.tree.map(lambda x: np.asarray(x, np.float64), params)


IDS = [0, 1, 25, 26, 700, 16_383]


def test_albert_by_hand():
  x_TD, p = run('albert', IDS)
  wanted = p['table_VE'][IDS] @ p['out_ED']
  np.testing.assert_allclose(x_TD, wanted, rtol=1e-5, atol=1e-7)


def test_flat_mlp_by_hand():
  x_TD, p = run('flat_mlp', IDS)
  normed = rms_norm(p['table_VE'][IDS], p['norm']['scale_D'])
  wanted = silu(normed @ p['hidden_CM']) @ p['out_MD']
  np.testing.assert_allclose(x_TD, wanted, rtol=1e-5, atol=1e-6)


def test_factorized_mlp_by_hand():
  x_TD, p = run('factorized_mlp', IDS)
  # 26**3 is the smallest cube that is 16,384 or more.
  digits = [(i // 676, i // 26 % 26, i % 26) for i in IDS]
  z = np.stack(
    [sum(p['codebooks_JNC'][j, d] for j, d in enumerate(t)) for t in digits]
  )
  normed = rms_norm(z, p['norm']['scale_D'])
  wanted = silu(normed @ p['hidden_CM']) @ p['out_MD']
  np.testing.assert_allclose(x_TD, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('arm', ['flat_mlp', 'factorized_mlp'])
def test_the_mlp_is_not_linear_where_it_starts(arm):
  """SiLU's curved part is used: halving its input is not halving it."""
  embedder = model_config(arm, 'smoke').make().embedder
  ids_BL = jnp.asarray([IDS], jnp.int32)
  params = nn.unbox(embedder.init(jax.random.key(0), ids_BL)['params'])
  x_BLD = embedder.apply({'params': params}, ids_BL)
  halved = dict(params) | {'hidden_CM': params['hidden_CM'] / 2}
  y_BLD = embedder.apply({'params': halved}, ids_BL)
  assert jnp.linalg.norm(y_BLD - x_BLD / 2) > 0.05 * jnp.linalg.norm(x_BLD)


@pytest.mark.parametrize('arm', RIVALS)
def test_embeddings_start_at_a_table_s_scale(arm):
  embedder = model_config(arm, 'smoke').make().embedder
  ids_BL = jnp.arange(512, dtype=jnp.int32)[None]
  params = embedder.init(jax.random.key(0), ids_BL)
  spread = float(jnp.std(embedder.apply(nn.unbox(params), ids_BL)))
  assert spread == pytest.approx(0.02, rel=0.15)
