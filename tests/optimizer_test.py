"""AdamW by hand: what decays, the schedule, the clipping."""

import math

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from leviathan import config as config_lib
from leviathan import errors
from leviathan import model as model_lib
from leviathan import optimizer as optimizer_lib

NORMS = {
  'blocks/attention_norm/scale_D',
  'blocks/mlp_norm/scale_D',
  'final_norm/scale_D',
}
LEV = {
  'name': 'lev',
  'num_digits': 2,
  'seed_width': 5,
  'heads': 2,
  'knots': 4,
  'rank': 3,
  'implementation': 'auto',
}
# {arm: (embedder, head, all that does not decay)}
ARMS = {
  'tied': ({'name': 'table'}, 'tied', NORMS),
  'untied': ({'name': 'table'}, 'untied', NORMS),
  'factorized_mlp': (
    {'name': 'factorized_mlp', 'matched_to': LEV | {'knots': 40, 'rank': 9}},
    'untied',
    NORMS | {'embedder/norm/scale_D'},
  ),
  'lev': (
    LEV,
    'untied',
    NORMS | {'embedder/scale_SC', 'embedder/bias_SC', 'embedder/splines_SCGR'},
  ),
}


def config(**changes):
  values = dict(
    schedule='cosine',
    learning_rate=0.5,
    final_fraction=0.1,
    warmup_steps=0,
    decay_steps=None,
    horizon=100,
    b1=0.9,
    b2=0.95,
    epsilon=1e-8,
    moment_type='float32',
    weight_decay=0.1,
    clip_norm=1.0,
    spike_deviations=math.inf,
    skip_limit=10,
  )
  return optimizer_lib.OptimizerConfig(**values | changes)


def parameters(arm, layers):
  """Ones in the shapes of a model's parameters."""
  embedder, head, _ = ARMS[arm]
  section = {
    'vocab_size': 50,
    'width': 16,
    'layers': layers,
    'head_width': 8,
    'mlp_width': 8,
    'precision': 'float32',
    'remat': 'none',
    'attention': 'auto',
    'token_order': '',
    'embedder': embedder,
    'head': {'name': head},
  }
  model = config_lib.build(model_lib.ModelConfig, section).make()
  shapes = jax.eval_shape(
    model.init, jax.random.key(0), np.zeros((1, 2), np.int32)
  )
  return jax.tree.map(lambda x: np.ones(x.shape, x.dtype), nn.unbox(shapes))[
    'params'
  ]


def by_name(tree):
  leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): leaf
    for path, leaf in leaves
  }


@pytest.mark.parametrize('arm', ARMS)
def test_decay_spares_exactly_gains_shifts_and_splines(arm):
  # Layers are stacked: a gain has two dimensions.
  params = parameters(arm, layers=12)
  optimizer = config().make()

  @jax.jit
  def one_step(params):
    zeros = jax.tree.map(jnp.zeros_like, params)
    directions, _ = optimizer.update(zeros, optimizer.init(params), params)
    return jax.tree.map(lambda p, d: p - 0.5 * d, params, directions)

  after = by_name(one_step(params))
  spared = {name for name, value in after.items() if np.all(value == 1)}
  assert spared == ARMS[arm][2]
  for name in after.keys() - spared:  # By learning rate times decay.
    np.testing.assert_allclose(after[name], 1 - 0.5 * 0.1, rtol=1e-6)
  sizes = optimizer_lib.sizes_by_decay(params)
  assert sizes[False].keys() == spared
  assert sizes[True].keys() == after.keys() - spared
  for name, size in (sizes[True] | sizes[False]).items():
    assert size == np.size(after[name])


def test_as_many_parameters_decay_whether_layers_are_stacked_or_not():
  stacked = parameters('lev', layers=3)
  apart = {name: tree for name, tree in stacked.items() if name != 'blocks'}
  for i in range(3):
    apart[f'block_{i}'] = jax.tree.map(lambda x, i=i: x[i], stacked['blocks'])
  one, many = (optimizer_lib.sizes_by_decay(p) for p in (stacked, apart))
  for decayed in (True, False):
    assert sum(one[decayed].values()) == sum(many[decayed].values())
  assert len(many[False]) > len(one[False]) > 0


def test_the_mask_is_the_same_for_boxed_parameters():
  params = parameters('lev', 2)
  boxed = jax.tree.map(
    lambda x: nn.LogicallyPartitioned(x, (None,) * x.ndim), params
  )
  plain = jax.tree.leaves(optimizer_lib.decay_mask(params))
  assert jax.tree.leaves(optimizer_lib.decay_mask(boxed)) == plain


def test_the_schedule_by_hand():
  schedule = config(
    learning_rate=2.0, final_fraction=0.1, warmup_steps=10, horizon=110
  ).make_schedule()
  # From 2 down to 0.2 over the 100 steps after the warm-up.
  expected = {
    0: 0.0,
    1: 0.2,
    5: 1.0,
    10: 2.0,
    35: 0.2 + 1.8 * (1 + math.cos(math.pi / 4)) / 2,
    60: 1.1,
    85: 0.2 + 1.8 * (1 - math.cos(math.pi / 4)) / 2,
    110: 0.2,
    111: 0.2,
    10_000: 0.2,
  }
  for step, rate in expected.items():
    np.testing.assert_allclose(schedule(step), rate, rtol=1e-6, err_msg=step)


def test_without_warm_up_the_first_step_has_the_peak():
  assert config(learning_rate=2.0, warmup_steps=0).make_schedule()(0) == 2.0


WSD = {'schedule': 'wsd', 'learning_rate': 2.0}


@pytest.mark.parametrize('warmup', [0, 10])
def test_warm_up_stable_decay_by_hand(warmup):
  schedule = config(
    **WSD, warmup_steps=warmup, decay_steps=20, horizon=110
  ).make_schedule()
  # From 2 down to 0.2, by a straight line over the last 20 steps.
  expected = {
    10: 2.0,
    50: 2.0,
    90: 2.0,
    91: 1.91,
    100: 1.1,
    109: 0.29,
    110: 0.2,
    10_000: 0.2,
  }
  expected |= {0: 0.0, 1: 0.2, 5: 1.0} if warmup else {0: 2.0, 1: 2.0}
  for step, rate in expected.items():
    np.testing.assert_allclose(schedule(step), rate, rtol=1e-6, err_msg=step)


def test_warm_up_may_go_straight_over_into_the_decay():
  schedule = config(
    **WSD, warmup_steps=30, decay_steps=70, horizon=100
  ).make_schedule()
  np.testing.assert_allclose(
    [schedule(step) for step in (15, 30, 65, 100)], [1, 2, 1.1, 0.2], rtol=1e-6
  )


@pytest.mark.parametrize(
  'changes, words',
  [
    ({'schedule': 'linear'}, "schedule='linear'; choose one of cosine, wsd"),
    (
      {'moment_type': 'float16'},
      "moment_type='float16'; choose one of float32",
    ),
    ({'decay_steps': 5}, 'decay_steps=5 is for schedule=wsd'),
    ({'schedule': 'wsd'}, 'decay_steps=None; give 1 or more'),
    ({'schedule': 'wsd', 'decay_steps': 0}, 'decay_steps=0; give 1 or more'),
    (
      {'schedule': 'wsd', 'decay_steps': 71, 'warmup_steps': 30},
      'decay_steps=71 and warmup_steps=30 .* horizon of 100',
    ),
    (
      {'learning_rate': 11.0},
      r'weight_decay=0.1 times learning_rate=11.0 must be at most 1',
    ),
    ({'learning_rate': math.inf, 'weight_decay': 0.0}, 'learning_rate=inf'),
  ],
)
def test_settings_that_do_not_go_together_are_refused(changes, words):
  with pytest.raises(errors.ConfigError, match=words) as caught:
    config(**changes)
  assert '\n' not in str(caught.value)


def one_step(grads, params, **changes):
  """The change of the parameters in a first step, at a rate of 0.5."""
  optimizer = config(**changes).make()
  grads, params = (
    {'w': jnp.asarray(value, jnp.float32)} for value in (grads, params)
  )
  state = optimizer.init(params)
  directions, state = jax.jit(optimizer.update)(grads, state, params)
  return -0.5 * np.asarray(directions['w']), state


def test_the_first_steps_by_hand():
  # Corrected for its start, Adam's first step is g / (|g| + epsilon).
  change, _ = one_step([0.3, -0.4], [1.0, 2.0], clip_norm=math.inf, epsilon=0.1)
  np.testing.assert_allclose(
    change,
    [-0.5 * (0.3 / 0.4 + 0.1 * 1), -0.5 * (-0.4 / 0.5 + 0.1 * 2)],
    rtol=1e-5,
  )


@pytest.mark.parametrize(
  'clip_norm, factor', [(1.0, 0.2), (5.0, 1.0), (10.0, 1.0), (math.inf, 1.0)]
)
def test_gradients_are_clipped_by_their_global_norm(clip_norm, factor):
  # 3 and 4 have the norm 5; a large epsilon keeps Adam near linear.
  g = np.array([3.0, -4.0]) * factor
  change, state = one_step(
    [3.0, -4.0], [0.0, 0.0], clip_norm=clip_norm, epsilon=1.0
  )
  np.testing.assert_allclose(change, -0.5 * g / (np.abs(g) + 1), rtol=1e-5)
  mean = optax.tree_utils.tree_get(state, 'mu')['w']
  np.testing.assert_allclose(mean, 0.1 * g, rtol=1e-5)


@pytest.mark.parametrize('first', ['float32', 'bfloat16'])
def test_the_moments_mirror_the_parameters_in_the_types_asked_for(first):
  params = parameters('lev', 2)
  optimizer = config(moment_type=first).make()

  def after_a_step(params):
    state = optimizer.init(params)
    return state, optimizer.update(params, state, params)

  fresh, (directions, after) = jax.eval_shape(after_a_step, params)
  for state in (fresh, after):
    for name, kind in (('mu', first), ('nu', 'float32')):
      moment = optax.tree_utils.tree_get(state, name)
      assert jax.tree.structure(moment) == jax.tree.structure(params)
      assert {x.dtype.name for x in jax.tree.leaves(moment)} == {kind}
  assert {x.dtype.name for x in jax.tree.leaves(directions)} == {'float32'}


def test_a_first_moment_of_two_bytes_goes_nearly_the_same_way():
  rng = np.random.default_rng(0)
  grads = rng.normal(size=(20, 50)) + 0.5
  found = {}
  for first in ('float32', 'bfloat16'):
    optimizer = config(moment_type=first, weight_decay=0.0).make()
    params = {'w': jnp.zeros(50)}
    state = optimizer.init(params)
    for g in grads:
      directions, state = optimizer.update({'w': jnp.asarray(g)}, state, params)
      params = jax.tree.map(lambda p, d: p - 0.1 * d, params, directions)
    found[first] = np.asarray(params['w'])
  difference = np.abs(found['bfloat16'] - found['float32']).max()
  assert 0 < difference < 0.01 * np.abs(found['float32']).max()


@pytest.mark.parametrize(
  'changes, named',
  [
    ({'learning_rate': 0.0}, 'config.optimizer.learning_rate=0.0'),
    ({'learning_rate': -1.0}, 'config.optimizer.learning_rate=-1.0'),
    ({'warmup_steps': 100}, 'config.optimizer.warmup_steps=100'),
    ({'warmup_steps': -1}, 'config.optimizer.warmup_steps=-1'),
  ],
)
def test_what_has_no_meaning_is_refused_by_name(changes, named):
  with pytest.raises(errors.ConfigError) as caught:
    config(**changes)
  assert named in str(caught.value) and '\n' not in str(caught.value)


def test_a_horizon_that_is_still_open_may_be_built():
  assert config(horizon=None, warmup_steps=500).horizon is None


@pytest.mark.parametrize(
  'name, value',
  [
    ('clip_norm', -1.0),  # Would turn the gradient round.
    ('clip_norm', 0.0),
    ('learning_rate', math.nan),
    ('final_fraction', -2.0),
    ('b1', 1.5),
    ('b2', 1.0),
    ('epsilon', 0.0),
    ('weight_decay', -1.0),
    ('spike_deviations', 0.0),
    ('spike_deviations', math.nan),
    ('skip_limit', -1),
  ],
)
def test_a_setting_out_of_range_is_refused_by_name(name, value):
  with pytest.raises(errors.ConfigError, match=f'config.optimizer.{name}='):
    config(**{name: value})
