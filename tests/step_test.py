"""The training step: which tokens count, and the same on every mesh."""

import functools
import math
import types

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
  schedule='cosine',
  learning_rate=0.1,
  final_fraction=0.5,
  warmup_steps=0,
  decay_steps=None,
  horizon=4,
  b1=0.9,
  b2=0.95,
  epsilon=1e-3,
  moment_type='float32',
  weight_decay=0.1,
  clip_norm=1.0,
  spike_deviations=math.inf,
  skip_limit=10,
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
def train_step_of(arm, optimizer=None, **settings):
  defaults = {
    'spike_deviations': math.inf,
    'z_loss': 0.0,
    'loss_chunks': 1,
    'accumulation': 1,
  }
  return step_lib.make(
    make_model(arm),
    optimizer or OPTIMIZER.make(),
    OPTIMIZER.make_schedule(),
    **defaults | settings,
  )


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
def one_step(arm, mesh_name, packed=False, **settings):
  """(State, row) after a step from the start, on the host."""
  mesh = mesh_of(mesh_name)
  batch = score.to_mesh(draw_batch(packed=packed), mesh)
  with jax.set_mesh(mesh):
    state, row = train_step_of(arm, **settings)(placed(arm, mesh), batch)
  return jax.device_get((state, row))


class Fixed:
  """Stands for a model: logits of the i-th input are the i-th parameters."""

  def __init__(self, vocab_size):
    self.config = types.SimpleNamespace(vocab_size=vocab_size)

  def apply(self, variables, ids_BL, segments_BL, method):
    assert segments_BL is None and method == 'features'
    logits_TV = variables['params']
    return logits_TV[ids_BL], jnp.eye(logits_TV.shape[-1])


def loss_of(model, z_loss=0.0, chunks=1):
  """(params, batch) -> (sum, Sums)."""
  return functools.partial(step_lib.loss, model, z_loss=z_loss, chunks=chunks)


def mean(model, params, batch, **settings):
  """What a token costs on average."""
  objective, sums = loss_of(model, **settings)(params, batch)
  return objective / jnp.maximum(sums.tokens, 1)


def numbered(batch):
  """The batch, its inputs being 0, 1, 2, ..., for `Fixed`."""
  shape = batch.inputs_BL.shape
  return batch._replace(inputs_BL=np.arange(np.prod(shape)).reshape(shape))


def four_and_one():
  """(params, batch): four tokens that cost 1 each, and one that costs 5."""
  nll_TV = np.array([[1, 1, 1, 1, 5, 7, 7, 7]], np.float64).T
  p_TV = np.exp(-nll_TV)
  logits_TV = jnp.asarray(np.log(np.hstack([p_TV, 1 - p_TV])), jnp.float32)
  targets_BL = np.zeros((2, 4), np.int32)
  weights_BL = np.array([[1, 1, 1, 1], [1, 0, 0, 0]], np.float32)
  return logits_TV, numbered(arrays.Batch(targets_BL, targets_BL, weights_BL))


@pytest.mark.parametrize('chunks', [1, 2, 4])
def test_the_loss_is_the_sum_over_the_tokens_that_count(chunks):
  objective, sums = loss_of(Fixed(2), chunks=chunks)(*four_and_one())
  np.testing.assert_allclose(objective, 9, rtol=1e-5)
  np.testing.assert_allclose(sums.nll, 9, rtol=1e-5)
  assert sums.tokens == 5 and sums.z_loss == 0


@pytest.mark.parametrize('accumulation', [1, 2])
def test_micro_batches_are_averaged_by_their_tokens(accumulation):
  # The mean of the micro-batches' means would be (1 + 5) / 2.
  grads_TV, sums = step_lib.gradients(
    loss_of(Fixed(2)), *four_and_one(), accumulation
  )
  np.testing.assert_allclose(sums.nll / sums.tokens, 9 / 5, rtol=1e-5)
  # p - 1 of the target, for one of five tokens.
  slope = (np.exp([-1, -1, -1, -1, -5]) - 1) / 5
  np.testing.assert_allclose(grads_TV[:5, 0], slope, rtol=1e-5)
  assert np.all(grads_TV[5:] == 0)


@pytest.mark.parametrize('chunks', [1, 3])
def test_what_has_weight_zero_changes_neither_loss_nor_gradient(chunks):
  rng = np.random.default_rng(0)
  logits_TV = jnp.asarray(rng.normal(size=(B * L, V)), jnp.float32)
  batch = numbered(draw_batch())
  uncounted_BL = batch.weights_BL == 0
  assert uncounted_BL.sum() == 4 + 1 + 6
  other = batch._replace(targets_BL=np.where(uncounted_BL, 0, batch.targets_BL))
  run = jax.value_and_grad(
    lambda *arguments: mean(Fixed(V), *arguments, chunks=chunks, z_loss=0.1)
  )
  (loss, grad_TV), (other_loss, other_grad_TV) = (
    run(logits_TV, b) for b in (batch, other)
  )
  assert loss == other_loss
  np.testing.assert_array_equal(grad_TV, other_grad_TV)
  grad_BLV = np.asarray(grad_TV).reshape(B, L, V)
  assert np.all(grad_BLV[uncounted_BL] == 0)
  assert np.all(np.abs(grad_BLV[~uncounted_BL]).max(-1) > 0)


@pytest.mark.parametrize('chunks', [1, 3])
def test_a_batch_in_which_nothing_counts_has_loss_zero(chunks):
  batch = numbered(draw_batch())
  batch = batch._replace(weights_BL=np.zeros((B, L), np.float32))
  grad, sums = step_lib.gradients(
    loss_of(Fixed(V), chunks=chunks, z_loss=0.1), jnp.ones((B * L, V)), batch, 1
  )
  assert sums.nll == sums.z_loss == 0 and np.all(grad == 0)


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
    return mean(make_model('tied'), params, batch)

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
    'z_loss',
    'batch_tokens',
    'batch_hash',
    'grad_norm',
    'learning_rate',
    'skipped',
    'skipped_in_a_row',
  }
  assert (row['skipped'], row['skipped_in_a_row']) == (0, 0)
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


@pytest.mark.parametrize('arm', ARMS)
def test_a_whole_models_gradients_are_the_same_in_chunks(arm):
  # Larger than at the start, so that all logits differ.
  params = jax.tree.map(lambda p: 10 * p, start(arm).params)
  (whole, whole_grads), (chunked, chunked_grads) = (
    jax.jit(
      jax.value_and_grad(
        functools.partial(mean, make_model(arm), chunks=n, z_loss=0.01)
      )
    )(params, draw_batch())
    for n in (1, 3)
  )
  np.testing.assert_allclose(chunked, whole, rtol=1e-6)
  for a, b in zip(
    jax.tree.leaves(whole_grads), jax.tree.leaves(chunked_grads), strict=True
  ):
    np.testing.assert_allclose(b, a, atol=1e-5 * np.abs(a).max())
  if arm == 'tied':
    assert whole_grads.keys() == {'embedder', 'blocks', 'final_norm'}


def test_the_z_loss_is_minimised_but_reported_apart():
  _, without = one_step('tied', '1')
  _, row = one_step('tied', '1', z_loss=1e-2)
  assert row['nats_per_token'] == without['nats_per_token']
  assert without['z_loss'] == 0
  # At the start all logits are near 0.
  np.testing.assert_allclose(row['z_loss'], 1e-2 * np.log(V) ** 2, rtol=0.02)
  assert row['grad_norm'] != without['grad_norm']


@pytest.mark.parametrize('chunks', [1, 3])
def test_the_objective_is_nll_and_z_loss(chunks):
  logits_TV = 3 * jax.random.normal(jax.random.key(0), (B * L, V))
  objective, sums = loss_of(Fixed(V), z_loss=1e-2, chunks=chunks)(
    logits_TV, numbered(draw_batch())
  )
  _, without = loss_of(Fixed(V), chunks=chunks)(
    logits_TV, numbered(draw_batch())
  )
  assert sums.nll == without.nll and sums.z_loss > 1
  np.testing.assert_allclose(objective, sums.nll + sums.z_loss, rtol=1e-6)


# At the rate of 0.1, a step is the gradient: no noise is scaled up.
PLAIN_DESCENT = optax.scale(10.0)


@functools.cache
def descended(mesh_name, accumulation):
  """(params, row) after a step, on the host."""
  mesh = mesh_of(mesh_name)
  state = placed('tied', mesh)
  opt_state = state.opt_state.replace(
    optimizer=PLAIN_DESCENT.init(state.params)
  )
  state = state.replace(opt_state=opt_state)
  batch = score.to_mesh(draw_batch(packed=True), mesh)
  train_step = train_step_of(
    'tied', PLAIN_DESCENT, accumulation=accumulation, loss_chunks=2
  )
  with jax.set_mesh(mesh):
    state, row = train_step(state, batch)
  return jax.device_get((state.params, row))


@pytest.mark.parametrize(
  'mesh, accumulation',
  [
    ('1', 2),
    ('1', 4),
    ('8', 1),
    ('2x4', 4),
  ],
)
def test_micro_batches_and_devices_change_no_update(mesh, accumulation):
  one, one_row = descended('1', 1)
  many, many_row = descended(mesh, accumulation)
  for name in one_row:
    np.testing.assert_allclose(many_row[name], one_row[name], rtol=1e-6)
  for a, b, before in zip(
    jax.tree.leaves(one),
    jax.tree.leaves(many),
    jax.tree.leaves(start('tied').params),
    strict=True,
  ):
    np.testing.assert_allclose(b, a, atol=1e-6)
    assert np.abs(a - before).max() > 1e-4


def test_micro_batches_have_each_row_once_and_move_none():
  mesh, batch = mesh_of('2x4'), draw_batch(packed=True)
  on_mesh = score.to_mesh(batch, mesh)
  cut = jax.jit(functools.partial(step_lib.micro_batches, count=2))
  with jax.set_mesh(mesh):
    micros = cut(on_mesh)
    compiled = cut.lower(on_mesh).compile().as_text()
  for whole, parts in zip(batch, micros, strict=True):
    assert parts.shape == (2, B // 2, L)
    rows = np.asarray(parts).reshape(B, L).tolist()
    assert sorted(rows) == sorted(whole.tolist())
    assert parts.sharding.shard_shape(parts.shape) == (2, B // 4, L)
  for crossing in ('all-to-all', 'all-gather', 'permute', 'all-reduce'):
    assert crossing not in compiled


def test_the_batch_s_hash_knows_each_id_and_its_place():
  batch = draw_batch()
  hash_of = jax.jit(step_lib.fingerprint)
  hashes = {int(hash_of(batch))}
  assert hashes == {int(hash_of(draw_batch()))}
  for ids_BL in (
    batch.inputs_BL[::-1],
    batch.inputs_BL[:, ::-1],
    np.where(np.arange(B * L).reshape(B, L) == 5, 0, batch.inputs_BL),
    np.zeros_like(batch.inputs_BL),
  ):
    hashes.add(int(hash_of(batch._replace(inputs_BL=ids_BL))))
  assert len(hashes) == 5
  for mesh_name in MESHES:
    _, row = one_step('tied', mesh_name)
    assert int(row['batch_hash']) == int(hash_of(batch))


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
@pytest.mark.parametrize('packed, chunks', [(False, 3), (True, 1)])
@pytest.mark.parametrize('arm', ARMS)
def test_a_sharded_step_equals_an_unsharded_one(arm, packed, chunks, mesh):
  one, one_row = one_step(arm, '1', packed)
  many, many_row = one_step(arm, mesh, packed, loss_chunks=chunks)
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


def poisoned(batch):
  """The batch with a weight that is not a number: so are loss and gradients."""
  weights_BL = batch.weights_BL.copy()
  weights_BL[2, 3] = np.nan
  return batch._replace(weights_BL=weights_BL)


def run_steps(batches, mesh_name='1', state=None, spike_deviations=math.inf):
  """([state after each step], [row of each]) of `tied`, on the host."""
  mesh = mesh_of(mesh_name)
  train_step = train_step_of('tied', spike_deviations=spike_deviations)
  state = placed('tied', mesh) if state is None else state
  states, rows = [], []
  with jax.set_mesh(mesh):
    for batch in batches:
      state, row = train_step(state, score.to_mesh(batch, mesh))
      states.append(jax.tree.map(np.array, state))
      rows.append(jax.device_get(row))
  return states, rows


def assert_equal(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize('mesh', MESHES)
def test_a_step_that_is_not_finite_changes_nothing_but_the_counts(mesh):
  batches = [draw_batch(seed) for seed in range(4)]
  batches[2] = poisoned(batches[2])
  states, rows = run_steps(batches, mesh)
  assert [row['skipped'] for row in rows] == [0, 0, 1, 0]
  assert [row['skipped_in_a_row'] for row in rows] == [0, 0, 1, 0]
  assert np.isnan(rows[2]['nats_per_token']) and np.isnan(rows[2]['grad_norm'])
  assert_equal(states[2].params, states[1].params)
  assert_equal(states[2].opt_state.optimizer, states[1].opt_state.optimizer)
  assert [state.step for state in states] == [1, 2, 3, 4]
  guard = states[3].opt_state.guard
  assert (guard.skipped, guard.in_a_row, guard.good) == (1, 0, 3)
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(states))
  # And the step after it moves again.
  assert np.isfinite(rows[3]['grad_norm'])
  moved = jax.tree.map(
    lambda a, b: np.abs(a - b).max(), states[3].params, states[2].params
  )
  assert min(jax.tree.leaves(moved)) > 1e-4


def test_the_rate_after_a_skipped_step_is_that_of_its_number():
  batches = [draw_batch(seed) for seed in range(4)]
  straight, straight_rows = run_steps(batches)
  batches[1] = poisoned(batches[1])
  states, rows = run_steps(batches)
  schedule = OPTIMIZER.make_schedule()
  for step, (row, other) in enumerate(zip(rows, straight_rows, strict=True)):
    assert row['learning_rate'] == other['learning_rate']
    np.testing.assert_allclose(row['learning_rate'], schedule(step), rtol=1e-6)
  # By hand for one that does not decay: the rate told is the one used, and
  # Adam has counted two steps, not three.
  adam = states[2].opt_state.optimizer[1]
  assert adam.count == 2 and straight[2].opt_state.optimizer[1].count == 3
  w, after, mu, nu = (
    tree['final_norm']['scale_D']
    for tree in (states[1].params, states[2].params, adam.mu, adam.nu)
  )
  direction = mu / (1 - 0.9**2) / (np.sqrt(nu / (1 - 0.95**2)) + 1e-3)
  np.testing.assert_allclose(
    after, w - rows[2]['learning_rate'] * direction, rtol=1e-6
  )


@pytest.mark.parametrize('mesh', MESHES)
def test_tokens_never_met_before_spike_and_are_skipped_on_every_mesh(mesh):
  """After 64 steps on one half of the vocabulary comes the other half."""
  state = trained_on_one_half()
  abstract = state_lib.abstract(
    make_model('tied'), OPTIMIZER.make(), mesh_of(mesh)
  )
  state = jax.tree.map(
    lambda x, like: jax.device_put(x, like.sharding), state, abstract
  )
  before = jax.tree.map(np.array, state)
  batches = [half(64), half(65, other=True), half(66)]
  states, rows = run_steps(batches, mesh, state, spike_deviations=8.0)
  assert [row['skipped'] for row in rows] == [0, 1, 0]
  assert np.isfinite(rows[1]['nats_per_token'])
  assert_equal(states[1].params, states[0].params)
  assert_equal(states[1].opt_state.optimizer, states[0].opt_state.optimizer)
  assert states[2].opt_state.guard.skipped == 1
  assert before.opt_state.guard.skipped == 0


def half(seed, other=False):
  """A batch of the first half of the vocabulary, or of the other."""
  batch = draw_batch(seed)
  ids = (batch.inputs_BL % (V // 2), batch.targets_BL % (V // 2))
  shift = V // 2 if other else 0
  return batch._replace(inputs_BL=ids[0] + shift, targets_BL=ids[1] + shift)


@functools.cache
def trained_on_one_half():
  states, rows = run_steps([half(seed) for seed in range(64)])
  assert not any(row['skipped'] for row in rows)
  return states[-1]


def test_an_infinite_deviation_takes_what_a_finite_one_skips():
  state = jax.tree.map(jnp.asarray, trained_on_one_half())
  _, rows = run_steps([half(65, other=True)], state=state)
  assert rows[0]['skipped'] == 0
