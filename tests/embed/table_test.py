"""The table: rows, and rows that only pad."""

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from leviathan.embed import table

V, ROWS, D = 5, 8, 3
IDS = np.array([[0, 4, 2], [4, 4, 1]], np.int32)


def make():
  module = table.TableConfig(name='table').make(
    vocab_size=V, padded_vocab_size=ROWS, width=D
  )
  table_VD = np.arange(ROWS * D, dtype=np.float32).reshape(ROWS, D) / 7
  return module, table_VD


def test_an_id_picks_its_row():
  module, table_VD = make()
  x_BLD = module.apply({'params': {'table_VD': table_VD}}, IDS)
  assert x_BLD.dtype == jnp.float32
  np.testing.assert_array_equal(x_BLD, table_VD[IDS])


def test_gradients_add_up_by_id_and_padded_rows_have_none():
  module, table_VD = make()
  cotangent = np.random.default_rng(0).normal(size=(2, 3, D))

  def scalar(table_VD):
    x_BLD = module.apply({'params': {'table_VD': table_VD}}, IDS)
    return jnp.sum(x_BLD * cotangent.astype(np.float32))

  expected = np.zeros((ROWS, D))
  np.add.at(expected, IDS, cotangent)
  found = np.asarray(jax.grad(scalar)(jnp.asarray(table_VD)))
  np.testing.assert_allclose(found, expected, atol=1e-6)
  assert np.all(found[V:] == 0) and np.all(found[3] == 0)


def test_the_table_given_to_a_head_is_the_parameter():
  module, table_VD = make()
  shared = module.apply({'params': {'table_VD': table_VD}}, method='table')
  np.testing.assert_array_equal(shared, table_VD)


def test_it_has_one_parameter_with_padded_rows_and_its_axes():
  module, _ = make()
  params = jax.eval_shape(module.init, jax.random.key(0), IDS)['params']
  (box,) = params.values()
  assert box.names == ('vocab', 'embed')
  assert nn.unbox(params)['table_VD'].shape == (ROWS, D)
  assert nn.unbox(params)['table_VD'].dtype == jnp.float32


def test_an_id_outside_the_table_is_not_another_tokens_row():
  module, table_VD = make()
  x_BLD = module.apply(
    {'params': {'table_VD': jnp.asarray(table_VD)}}, np.array([[ROWS]])
  )
  assert np.isnan(x_BLD).all()
