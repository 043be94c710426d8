"""The training step: which tokens count, and the same on every mesh."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from leviathan import arrays
from leviathan import config as config_lib
from leviathan import model as model_lib
from leviathan import optimizer as optimizer_lib
from leviathan import sharding
from leviathan import state as state_lib
from leviathan import step as step_lib
from leviathan.eval import score

V, B, L = 60, 8, 6
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
MESHES = {'1': (1, 1, 1), '8': (1, 8, 1), '2x4': (1, 2, 4), '2x2x2': (2, 2, 2)}
# A large epsilon: else Adam's first step is a sign, and a gradient of rounding
# noise alone would make a whole step.
OPTIMIZER = optimizer_lib.OptimizerConfig(
  learning_rate=0.1,
  final_fraction=0.5,
  warmup_steps=0,
  horizon=4,
  b1=0.9,
  b2=0.95,
  epsilon=1e-3,
  weight_decay=0.1,
  clip_norm=1.0,
)


@functools.cache
def make_model(arm):
  section = {
    'vocab_size': V,
    'width': 32,
    'layers': 2,
    'head_width': 8,
    'mlp_width': 24,
    'precision': 'float32',
    'remat': 'none',
    'attention': 'auto',
    'token_order': '',
    **ARMS[arm],
  }
  return config_lib.build(model_lib.ModelConfig, section).make()


def mesh_of(name):
  data, fsdp, tensor = MESHES[name]
  sizes = sharding.MeshConfig(data=data, fsdp=fsdp, tensor=tensor)
  return sharding.make_mesh(sizes, jax.devices()[: data * fsdp * tensor])


@functools.cache
def start(arm):
  """The state at the start, on the host."""
  optimizer, key = OPTIMIZER.make(), jax.random.key(2)
  state = state_lib.create(make_model(arm), optimizer, mesh_of('1'), key)
  return jax.device_get(state)


def placed(arm, mesh):
  """The same on a mesh."""
  abstract = state_lib.abstract(make_model(arm), OPTIMIZER.make(), mesh)
  return jax.tree.map(
    lambda x, like: jax.device_put(x, like.sharding), start(arm), abstract
  )


@functools.cache
def train_step_of(arm):
  return step_lib.make(make_model(arm), OPTIMIZER.make(), OPTIMIZER.schedule())


def draw_batch(seed=0, packed=False):
  """Rows of every kind: whole, cut short, and one that only fills up."""
  ids = np.random.default_rng(seed).integers(0, V, (B, L + 1)).astype(np.int32)
  weights_BL = np.ones((B, L), np.float32)
  weights_BL[1, 2:] = 0
  weights_BL[4, 5:] = 0
  weights_BL[7] = 0
  segments_BL = (np.arange(L) >= np.arange(B)[:, None]).astype(np.int32)
  return arrays.Batch(
    ids[:, :-1], ids[:, 1:], weights_BL, segments_BL if packed else None
  )


@functools.cache
def one_step(arm, mesh_name, packed=False):
  """(State, row) after a step from the start, on the host."""
  mesh = mesh_of(mesh_name)
  batch = score.to_mesh(draw_batch(packed=packed), mesh)
  with jax.set_mesh(mesh):
    state, row = train_step_of(arm)(placed(arm, mesh), batch)
  return jax.device_get((state, row))


class Fixed:
  """Stands for a model: its logits are its parameters."""

  def apply(self, variables, ids_BL, segments_BL):
    del ids_BL, segments_BL
    return variables['params']


def test_the_loss_is_the_mean_over_the_tokens_that_count():
  # Micro means would give (1 + 5) / 2; the mean over tokens is 9 / 5.
  nll_BL = np.array([[1, 1, 1, 1], [5, 7, 7, 7]], np.float64)
  p_BL = np.exp(-nll_BL)
  logits_BLV = jnp.asarray(np.log(np.stack([p_BL, 1 - p_BL], -1)), jnp.float32)
  targets_BL = np.zeros((2, 4), np.int32)
  weights_BL = np.array([[1, 1, 1, 1], [1, 0, 0, 0]], np.float32)
  batch = arrays.Batch(targets_BL, targets_BL, weights_BL)
  mean, sums = step_lib.loss(Fixed(), logits_BLV, batch)
  np.testing.assert_allclose(mean, 9 / 5, rtol=1e-5)
  np.testing.assert_allclose(sums.nll, 9, rtol=1e-5)
  assert sums.tokens == 5


def test_what_has_weight_zero_changes_neither_loss_nor_gradient():
  rng = np.random.default_rng(0)
  logits_BLV = jnp.asarray(rng.normal(size=(B, L, V)), jnp.float32)
  batch = draw_batch()
  uncounted_BL = batch.weights_BL == 0
  assert uncounted_BL.sum() == 4 + 1 + 6
  other = batch._replace(targets_BL=np.where(uncounted_BL, 0, batch.targets_BL))
  run = jax.value_and_grad(
    lambda logits, batch: step_lib.loss(Fixed(), logits, batch)[0]
  )
  (loss, grad_BLV), (other_loss, other_grad_BLV) = (
    run(logits_BLV, b) for b in (batch, other)
  )
  assert loss == other_loss
  np.testing.assert_array_equal(grad_BLV, other_grad_BLV)
  grad_BLV = np.asarray(grad_BLV)
  assert np.all(grad_BLV[uncounted_BL] == 0)
  assert np.all(np.abs(grad_BLV[~uncounted_BL]).max(-1) > 0)


def test_a_batch_in_which_nothing_counts_has_loss_zero():
  batch = draw_batch()._replace(weights_BL=np.zeros((B, L), np.float32))
  loss, grad = jax.value_and_grad(
    lambda logits: step_lib.loss(Fixed(), logits, batch)[0]
  )(jnp.ones((B, L, V)))
  assert loss == 0 and np.all(grad == 0)


def test_the_loss_of_packed_documents_is_that_of_each_by_itself():
  # Inputs 0 a b c 0 d, of which the last two are a document; 0 is EOS, which
  # ends a document as a target and begins one as an input.
  ids = np.array([[0, 11, 12, 13, 0, 21, 22]], np.int32)
  segments_BL = np.array([[0, 0, 0, 0, 1, 1]], np.int32)
  ones_BL = np.ones((1, L), np.float32)
  # Larger than at the start, so that what another document says would count.
  params = jax.tree.map(lambda p: 10 * p, start('tied').params)

  @jax.jit
  def mean_of(batch):
    return step_lib.loss(make_model('tied'), params, batch)[0]

  packed = arrays.Batch(ids[:, :-1], ids[:, 1:], ones_BL, segments_BL)
  first = packed._replace(weights_BL=ones_BL * (np.arange(L) < 4))
  second = arrays.Batch(
    np.roll(ids[:, :-1], -4, axis=1),
    np.roll(ids[:, 1:], -4, axis=1),
    ones_BL * (np.arange(L) < 2),
  )
  apart = (
    4 * mean_of(first._replace(segments_BL=None)) + 2 * mean_of(second)
  ) / 6
  np.testing.assert_allclose(mean_of(packed), apart, rtol=1e-5)
  leaking = mean_of(packed._replace(segments_BL=None))
  assert abs(leaking - apart) > 1e-3


def test_the_row_says_what_the_step_did():
  _, row = one_step('tied', '1')
  assert row.keys() == {
    'nats_per_token',
    'batch_tokens',
    'grad_norm',
    'learning_rate',
  }
  batch = draw_batch()
  forward = jax.jit(make_model('tied').apply)
  logits = forward({'params': start('tied').params}, batch.inputs_BL)
  logits = np.asarray(logits, np.float64)[..., :V]
  nll_BL = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(
    logits, batch.targets_BL[..., None], -1
  ).squeeze(-1)
  counted = batch.weights_BL > 0
  np.testing.assert_allclose(
    row['nats_per_token'], nll_BL[counted].mean(), rtol=1e-5
  )
  assert row['batch_tokens'] == counted.sum() == B * L - 11
  np.testing.assert_allclose(row['learning_rate'], 0.1, rtol=1e-6)


def test_grad_norm_is_the_norm_before_clipping_and_the_update_is_adams():
  model, batch = make_model('tied'), draw_batch()
  before = start('tied').params

  def mean_nll(params):
    logits_BLV = model.apply({'params': params}, batch.inputs_BL)
    nll_BL = optax.softmax_cross_entropy_with_integer_labels(
      logits_BLV, batch.targets_BL
    )
    return jnp.sum(nll_BL * batch.weights_BL) / np.sum(batch.weights_BL)

  grads = jax.device_get(jax.jit(jax.grad(mean_nll))(before))
  norm = np.sqrt(sum(np.sum(g**2) for g in jax.tree.leaves(grads)))
  state, row = one_step('tied', '1')
  np.testing.assert_allclose(row['grad_norm'], norm, rtol=1e-5)
  # AdamW by hand for one that decays and one that does not.
  factor = min(1.0, 1.0 / norm)

  def expected(w, g, decay):
    g = g * factor
    return w - 0.1 * (g / (np.abs(g) + 1e-3) + decay * w)

  for path, decay in (
    (('blocks', 'mlp', 'up_DF'), 0.1),
    (('blocks', 'mlp_norm', 'scale_D'), 0.0),
  ):
    w, g, after = (
      functools.reduce(lambda tree, name: tree[name], path, tree)
      for tree in (before, grads, state.params)
    )
    np.testing.assert_allclose(after, expected(w, g, decay), atol=1e-5)


def test_the_state_is_donated_and_counts_its_steps():
  mesh = mesh_of('1')
  train_step, state = train_step_of('tied'), placed('tied', mesh)
  batch = jax.device_put(draw_batch(), sharding.batch_sharding(mesh))
  with jax.set_mesh(mesh):
    after, _ = train_step(state, batch)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(batch))
    assert int(after.step) == 1
    after, row = train_step(after, batch)
  assert int(after.step) == 2 and after.step.dtype == jnp.int32
  # The schedule moves on: a quarter of the way from 0.1 down to 0.05.
  rate = 0.05 + 0.05 * (1 + np.cos(np.pi / 4)) / 2
  np.testing.assert_allclose(row['learning_rate'], rate, rtol=1e-6)


@pytest.mark.parametrize('mesh', [name for name in MESHES if name != '1'])
@pytest.mark.parametrize('packed', [False, True])
@pytest.mark.parametrize('arm', ARMS)
def test_a_sharded_step_equals_an_unsharded_one(arm, packed, mesh):
  (one, one_row), (many, many_row) = (
    one_step(arm, name, packed) for name in ('1', mesh)
  )
  for name in one_row:
    np.testing.assert_allclose(many_row[name], one_row[name], rtol=1e-5)
  assert jax.tree.structure(one) == jax.tree.structure(many)
  for a, b in zip(
    jax.tree.leaves(one.params), jax.tree.leaves(many.params), strict=True
  ):
    np.testing.assert_allclose(b, a, atol=1e-5)
  moved = jax.tree.map(
    lambda a, b: np.abs(a - b).max(),
    one.params,
    start(arm).params,
  )
  assert min(jax.tree.leaves(moved)) > 1e-4
