"""The model as a whole, for both kinds of embedder and of head."""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from leviathan import config as config_lib
from leviathan import errors
from leviathan import model as model_lib
from leviathan import sharding
from leviathan import state as state_lib
from leviathan.embed import api
from leviathan.nn import attention
from leviathan.nn import mlp
from leviathan.nn import norms
from leviathan.nn import rope

V = 60
ARMS = {
  'tied': {'embedder': {'name': 'table'}, 'head': {'name': 'tied'}},
  'lev': {
    'embedder': {
      'name': 'lev',
      'num_digits': 3,
      'seed_width': 18,
      'heads': 2,
      'knots': 4,
      'rank': 3,
      'implementation': 'auto',
    },
    'head': {'name': 'untied'},
  },
}
MESHES = {
  '1': (1, 1, 1),
  '2': (1, 2, 1),
  '4': (1, 4, 1),
  '8': (1, 8, 1),
  '2x4': (1, 2, 4),
  '4x2': (1, 4, 2),
  '2x2x2': (2, 2, 2),
}
IDS = np.random.default_rng(0).integers(0, V, (8, 6)).astype(np.int32)
# Two documents a row, of which the second begins elsewhere in each.
STARTS = np.array([1, 2, 3, 4, 5, 4, 3, 2])
SEGMENTS = (np.arange(6) >= STARTS[:, None]).astype(np.int32)
SECOND = SEGMENTS == 1


def config(arm, **changes):
  section = {
    'vocab_size': V,
    'width': 32,
    'layers': 3,
    'head_width': 8,
    'mlp_width': 24,
    'precision': 'float32',
    'remat': 'none',
    'attention': 'auto',
    'token_order': '',
    **ARMS[arm],
  }
  return config_lib.build(model_lib.ModelConfig, section | changes)


def mesh_of(name):
  data, fsdp, tensor = MESHES[name]
  sizes = sharding.MeshConfig(data=data, fsdp=fsdp, tensor=tensor)
  return sharding.make_mesh(sizes, jax.devices()[: data * fsdp * tensor])


@functools.cache
def created(arm, mesh):
  """A fresh state on a mesh."""
  return state_lib.create(
    config(arm).make(), optax.sgd(0.1), mesh_of(mesh), jax.random.key(5)
  )


@functools.cache
def initial(arm):
  """Parameters on one device, larger than at the start so that all count."""
  params = jax.device_get(created(arm, '1').params)
  params['blocks'] = jax.tree.map(lambda p: 5 * p, params['blocks'])
  return params


@functools.cache
def forward(arm, **changes):
  """The jitted (params, ids, [segments]) -> logits."""
  model = config(arm, **changes).make()
  return jax.jit(
    lambda params, *inputs: model.apply({'params': params}, *inputs)
  )


@pytest.mark.parametrize('segments_L', [None, (0, 0, 1, 1, 1, 2)])
@pytest.mark.parametrize('arm', ARMS)
def test_gradients_come_from_earlier_tokens_of_the_segment_alone(
  arm, segments_L
):
  model, params = config(arm).make(), initial(arm)
  segments_BL = segments_L and jnp.array([segments_L], jnp.int32)
  weights_V = np.random.default_rng(1).normal(size=V).astype(np.float32)

  def outputs_L(shift_LD):
    """A mixture of each position's logits; the embeddings are shifted."""

    def shifted(call, args, kwargs, context):
      out = call(*args, **kwargs)
      is_embedder = isinstance(context.module, api.Embedder)
      if is_embedder and context.method_name == '__call__':
        out += shift_LD
      return out

    with nn.intercept_methods(shifted):
      logits_BLV = model.apply({'params': params}, IDS[:1], segments_BL)
    return logits_BLV[0, :, :V] @ weights_V

  slopes_LLD = jax.jit(jax.jacrev(outputs_L))(jnp.zeros((6, 32)))
  depends_LL = np.abs(np.asarray(slopes_LLD)).max(-1)
  seen = np.tril(np.ones((6, 6), bool))
  if segments_L:
    seen &= np.equal.outer(segments_L, segments_L)
  assert np.all(depends_LL[~seen] == 0)
  assert np.all(depends_LL[seen] > 0)


@pytest.mark.parametrize('arm', ARMS)
def test_a_token_changes_no_logits_before_it(arm):
  other = IDS.copy()
  other[:, 4] = (other[:, 4] + 1) % V
  plain, changed = (forward(arm)(initial(arm), ids) for ids in (IDS, other))
  np.testing.assert_array_equal(plain[:, :4], changed[:, :4])
  assert np.all(np.abs(plain - changed)[:, 4:, :V].max(-1) > 0)


@pytest.mark.parametrize('arm', ARMS)
def test_a_segment_does_not_see_the_one_before(arm):
  other = np.where(SECOND, IDS, (IDS + 1) % V)

  def change(*segments):
    plain, changed = (
      np.asarray(forward(arm)(initial(arm), ids, *segments))[..., :V]
      for ids in (IDS, other)
    )
    return np.abs(plain - changed).max(-1)

  assert np.all(change(SEGMENTS)[SECOND] == 0)
  assert np.all(change(SEGMENTS)[~SECOND] > 0)
  assert np.all(change()[SECOND] > 0)


def absolute(x_BLHK, positions):
  """Stands for rotary positions, and shows where they are counted from."""
  return x_BLHK * (1 + positions[..., None, None])


# Rotary positions count by their differences alone, hence the other code.
@pytest.mark.parametrize('code', [rope.rotate, absolute])
@pytest.mark.parametrize('arm', ARMS)
def test_a_packed_document_has_the_logits_it_has_alone(arm, code, monkeypatch):
  monkeypatch.setattr(rope, 'rotate', code)
  alone = np.stack(
    [np.roll(ids, -n) for ids, n in zip(IDS, STARTS, strict=True)]
  )
  call = forward.__wrapped__(arm)  # Compiled with the code in force.
  packed = np.asarray(call(initial(arm), IDS, SEGMENTS))
  single = np.asarray(call(initial(arm), alone))
  for b, n in enumerate(STARTS):
    np.testing.assert_allclose(packed[b, n:], single[b, :-n], atol=1e-5)


@pytest.mark.parametrize('arm', ARMS)
def test_no_segments_and_one_segment_are_whole_rows(arm):
  whole = forward(arm)(initial(arm), IDS)
  none = forward(arm)(initial(arm), IDS, None)
  one = forward(arm)(initial(arm), IDS, np.full_like(IDS, 3))
  np.testing.assert_array_equal(none, whole)
  np.testing.assert_allclose(one, whole, atol=1e-5)


@pytest.mark.parametrize('arm', ARMS)
def test_the_scan_is_a_loop_over_pre_norm_residual_layers(arm):
  c, params = config(arm), initial(arm)

  def apply(module, weights, *inputs):
    return module.apply({'params': weights}, *inputs)

  norm = norms.RMSNorm(jnp.float32)
  attend = attention.Attention(c.head_width, c.layers, jnp.float32)
  inner = mlp.SwiGLU(c.mlp_width, c.layers, jnp.float32)
  x_BLD = apply(c.make().embedder, params['embedder'], IDS)
  for layer in range(c.layers):
    w = jax.tree.map(lambda p, i=layer: p[i], params['blocks'])
    h_BLD = apply(norm, w['attention_norm'], x_BLD)
    y_BLD, _ = apply(attend, w['attention'], h_BLD, jnp.arange(6))
    x_BLD = x_BLD + y_BLD
    h_BLD = apply(norm, w['mlp_norm'], x_BLD)
    x_BLD = x_BLD + apply(inner, w['mlp'], h_BLD)
  x_BLD = apply(norm, params['final_norm'], x_BLD)
  w_VD = {
    'tied': params['embedder'].get('table_VD'),
    'lev': params.get('head', {}).get('out_VD'),
  }[arm]
  np.testing.assert_allclose(
    forward(arm)(params, IDS)[..., :V],
    np.einsum('BLD,VD->BLV', x_BLD, w_VD[:V]),
    atol=2e-5,
  )


@pytest.mark.parametrize(
  'precision, atol', [('float32', 2e-5), ('bfloat16', 0.05)]
)
@pytest.mark.parametrize('arm', ARMS)
def test_step_by_step_logits_are_those_of_the_whole_row(arm, precision, atol):
  """After prompts of 1 to 5 tokens, filled up with others."""
  model = config(arm, precision=precision).make()

  @functools.partial(jax.jit, static_argnames='method')
  def call(params, *inputs, method):
    return model.apply({'params': params}, *inputs, method=method)

  params, rows = initial(arm), np.arange(8)
  positions_B = np.array([1, 2, 3, 4, 5, 5, 1, 2], np.int32)
  filled = np.where(np.arange(5) < positions_B[:, None], IDS[:, :5], 7)
  logits_BV, past = call(params, filled, positions_B, method='begin')
  past = jax.tree.map(
    lambda x: jnp.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0), (0, 0))), past
  )
  whole = np.asarray(forward(arm, precision=precision)(params, IDS))[..., :V]
  for _ in range(6):
    np.testing.assert_allclose(
      np.asarray(logits_BV)[:, :V], whole[rows, positions_B - 1], atol=atol
    )
    # A row that is full is not held up, and its last token is read again.
    at_B = np.minimum(positions_B, 5)
    logits_BV, past = call(params, IDS[rows, at_B], at_B, past, method='step')
    positions_B = at_B + 1


def test_layers_are_not_copies_of_each_other():
  for leaf in jax.tree.leaves(initial('tied')['blocks']['mlp']):
    assert np.all(leaf[0] != leaf[1]) and np.all(leaf[1] != leaf[2])


@functools.cache
def loss_and_gradients(remat, implementation='xla'):
  model = config('lev', remat=remat, attention=implementation).make()

  def scalar(params):
    logits_BLV = model.apply({'params': params}, IDS)
    return jnp.mean(jax.nn.logsumexp(logits_BLV[..., :V], axis=-1))

  return jax.jit(jax.value_and_grad(scalar))(initial('lev'))


@pytest.mark.parametrize('implementation', ['xla', 'splash'])
@pytest.mark.parametrize('remat', ['dots', 'full'])
def test_remat_changes_neither_loss_nor_gradients(remat, implementation):
  (loss, grads), (other_loss, other_grads) = (
    loss_and_gradients(policy, implementation) for policy in ('none', remat)
  )
  np.testing.assert_allclose(other_loss, loss, rtol=1e-6)
  for a, b in zip(
    jax.tree.leaves(grads), jax.tree.leaves(other_grads), strict=True
  ):
    assert np.abs(a).max() > 0
    np.testing.assert_allclose(b, a, atol=1e-6 * np.abs(a).max())


def test_remat_trades_memory_in_the_order_of_its_names():
  ids_BL = jax.ShapeDtypeStruct((8, 64), jnp.int32)

  def temporary(remat):
    model = config('tied', remat=remat, layers=6).make()

    def scalar(params, ids_BL):
      return jnp.mean(model.apply({'params': params}, ids_BL))

    params = nn.unbox(
      jax.eval_shape(model.init, jax.random.key(0), ids_BL)['params']
    )
    compiled = jax.jit(jax.grad(scalar)).lower(params, ids_BL).compile()
    return compiled.memory_analysis().temp_size_in_bytes

  found = {remat: temporary(remat) for remat in model_lib.REMAT_POLICIES}
  assert found['none'] > 1.5 * found['dots'] > 1.5**2 * found['full'], found


@pytest.mark.parametrize('arm', ARMS)
def test_bfloat16_is_close_and_its_logits_and_parameters_are_float32(arm):
  params = created(arm, '1').params
  exact = np.asarray(forward(arm)(params, IDS))[..., :V]
  rough = forward(arm, precision='bfloat16')(params, IDS)
  assert rough.dtype == jnp.float32
  error = np.abs(np.asarray(rough)[..., :V] - exact)
  assert 1e-4 < error.max() / np.abs(exact).max() < 2e-2
  model = config(arm, precision='bfloat16').make()
  params = jax.eval_shape(model.init, jax.random.key(0), IDS)
  assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {
    np.dtype(np.float32)
  }


@pytest.mark.parametrize('mesh', [name for name in MESHES if name != '1'])
@pytest.mark.parametrize('arm', ARMS)
def test_the_start_is_the_same_to_the_bit_on_every_mesh(arm, mesh):
  one, many = created(arm, '1'), created(arm, mesh)
  jax.tree.map(np.testing.assert_array_equal, one.params, many.params)
  assert int(many.step) == 0


@pytest.mark.parametrize('arm', ARMS)
def test_parameters_lie_where_their_axes_say(arm):
  params = created(arm, '2x2x2').params
  up_DF = params['blocks']['mlp']['up_DF']
  assert up_DF.shape == (3, 32, 24)
  assert up_DF.sharding.shard_shape(up_DF.shape) == (3, 16, 12)
  w_VD = {
    'tied': params['embedder'].get('table_VD'),
    'lev': params.get('head', {}).get('out_VD'),
  }[arm]
  assert w_VD.sharding.shard_shape(w_VD.shape) == (64, 16)
  assert params['final_norm']['scale_D'].sharding.is_fully_replicated
  if arm == 'lev':
    for leaf in jax.tree.leaves(params['embedder']):
      assert leaf.sharding.is_fully_replicated


def test_the_abstract_state_is_the_states_shape_type_and_place():
  mesh = mesh_of('2x2x2')
  abstract = state_lib.abstract(config('lev').make(), optax.sgd(0.1), mesh)
  real = created('lev', '2x2x2')
  assert jax.tree.structure(abstract) == jax.tree.structure(real)
  for a, b in zip(
    jax.tree.leaves(abstract), jax.tree.leaves(real), strict=True
  ):
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    assert a.sharding.is_equivalent_to(b.sharding, len(a.shape))


@pytest.mark.parametrize('mesh', ['8', '2x2x2'])
@pytest.mark.parametrize('arm', ARMS)
def test_sharded_logits_equal_unsharded(arm, mesh):
  one = forward(arm)(initial(arm), IDS)
  mesh_ = mesh_of(mesh)
  params = jax.tree.map(
    lambda x, like: jax.device_put(x, like.sharding),
    initial(arm),
    created(arm, mesh).params,
  )
  with jax.set_mesh(mesh_):
    many = forward(arm)(
      params, jax.device_put(IDS, sharding.batch_sharding(mesh_))
    )
  assert len(many.sharding.device_set) == 8
  np.testing.assert_allclose(many[..., :V], one[..., :V], atol=1e-5)


@pytest.mark.parametrize(
  'field, value, remedy',
  [
    ('vocab_size', 0, 'give 1 or more'),
    ('layers', 0, 'give 1 or more'),
    ('mlp_width', -1, 'give 1 or more'),
    ('head_width', 12, 'config.model.width=32'),
    ('head_width', 1, 'must be even'),
    ('remat', 'some', 'none, dots, full'),
    ('precision', 'float16', 'float32, bfloat16'),
    ('attention', 'flash', 'xla, splash, cudnn'),
  ],
)
def test_sizes_and_choices_that_cannot_be_are_refused(field, value, remedy):
  with pytest.raises(errors.ConfigError) as caught:
    config('tied', **{field: value})
  message = str(caught.value)
  assert f'config.model.{field}={value!r}' in message
  assert remedy in message and '\n' not in message
