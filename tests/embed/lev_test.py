"""LEV against float64: stored answers, and a plain twin with its gradient."""

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan import errors
from leviathan import sharding
from leviathan.embed import lev

ORACLES = ('lev_small', 'lev_two_digits', 'lev_one_digit')
IMPLEMENTATIONS = tuple(lev.IMPLEMENTATIONS)
NAMES = (
  'codebooks_JNC',
  'seed_SCC',
  'scale_SC',
  'bias_SC',
  'splines_SCGR',
  'out_SRD',
)


# The twin: lev.md written out in NumPy, a token and a head at a time. The
# gradient of a product is the product of the others, taken directly.


def twin_basis(u, num_knots):
  """Values and slopes of the G basis functions at one coordinate."""
  x = u * (num_knots - 1) - np.arange(num_knots)
  t = np.abs(x)
  near, far = t < 0.5, (t >= 0.5) & (t < 1.5)
  raw = np.where(near, 0.75 - t**2, np.where(far, 0.5 * (1.5 - t) ** 2, 0))
  slope = np.where(near, -2 * t, np.where(far, t - 1.5, 0)) * np.sign(x)
  slope = slope * (num_knots - 1)
  total = raw.sum()
  return raw / total, slope / total - raw * slope.sum() / total**2


def twin_digits(id_, base, num_digits):
  found = []
  for _ in range(num_digits):
    found.insert(0, id_ % base)
    id_ //= base
  return found


def twin(params, ids, cotangent_TD):
  """x_TD and the gradients of sum(x_TD * cotangent_TD), in float64."""
  p = {name: np.asarray(value, np.float64) for name, value in params.items()}
  num_digits, base, C = p['codebooks_JNC'].shape
  S, _, G, _ = p['splines_SCGR'].shape
  x_TD = np.zeros((len(ids), p['out_SRD'].shape[-1]))
  grads = {name: np.zeros_like(value) for name, value in p.items()}
  for token, id_ in enumerate(ids):
    picked = twin_digits(int(id_), base, num_digits)
    z_C = sum(p['codebooks_JNC'][j, i] for j, i in enumerate(picked))
    d_z_C = np.zeros(C)
    for s in range(S):
      a_C = z_C @ p['seed_SCC'][s]
      deviation = np.sqrt(np.mean((a_C - a_C.mean()) ** 2) + 1e-5)
      normed_C = (a_C - a_C.mean()) / deviation
      shifted_C = normed_C * p['scale_SC'][s] + p['bias_SC'][s]
      u_C = 1 / (1 + np.exp(-shifted_C / 2))
      both = [twin_basis(u, G) for u in u_C]
      basis_CG = np.stack([values for values, _ in both])
      slope_CG = np.stack([slopes for _, slopes in both])
      phi_CR = np.stack(
        [basis_CG[c] @ p['splines_SCGR'][s, c] for c in range(C)]
      )
      mode_R = phi_CR.prod(axis=0)
      x_TD[token] += mode_R @ p['out_SRD'][s]

      d_x_D = cotangent_TD[token]
      grads['out_SRD'][s] += np.outer(mode_R, d_x_D)
      d_mode_R = p['out_SRD'][s] @ d_x_D
      d_u_C = np.zeros(C)
      for c in range(C):
        d_phi_R = d_mode_R * np.delete(phi_CR, c, axis=0).prod(axis=0)
        grads['splines_SCGR'][s, c] += np.outer(basis_CG[c], d_phi_R)
        d_u_C[c] = d_phi_R @ (slope_CG[c] @ p['splines_SCGR'][s, c])
      d_shifted_C = d_u_C * u_C * (1 - u_C) / 2
      grads['bias_SC'][s] += d_shifted_C
      grads['scale_SC'][s] += d_shifted_C * normed_C
      d_normed_C = d_shifted_C * p['scale_SC'][s]
      d_a_C = (
        d_normed_C
        - d_normed_C.mean()
        - normed_C * np.mean(d_normed_C * normed_C)
      ) / deviation
      grads['seed_SCC'][s] += np.outer(z_C, d_a_C)
      d_z_C += p['seed_SCC'][s] @ d_a_C
    for j, i in enumerate(picked):
      grads['codebooks_JNC'][j, i] += d_z_C
  return x_TD, grads


def draw(V, J, C, S, G, R, D, T=7, seed=0):
  """Random float32 parameters, ids (the last possible one, one twice)."""
  rng = np.random.default_rng(seed)
  N = next(n for n in range(1, V + 1) if n**J >= V)
  params = {
    'codebooks_JNC': rng.normal(0, 0.02, (J, N, C)),
    'seed_SCC': rng.normal(0, 0.3, (S, C, C)),
    'scale_SC': 1 + rng.normal(0, 0.1, (S, C)),
    'bias_SC': rng.normal(0, 0.1, (S, C)),
    'splines_SCGR': 1 + rng.normal(0, 0.1, (S, C, G, R)),
    'out_SRD': rng.normal(0, 0.02, (S, R, D)),
  }
  params = {k: np.asarray(v, np.float32) for k, v in params.items()}
  ids_T = rng.integers(0, V, T).astype(np.int32)
  ids_T[:2] = 0, V - 1
  ids_T[-1] = ids_T[-2]
  cotangent_TD = rng.normal(size=(T, D)).astype(np.float32)
  return params, ids_T, cotangent_TD


def _run(params, ids_T, cotangent_TD, implementation):
  """x_TD and the gradients, as `twin`."""

  def scalar(params):
    x_TD = lev.lev_embed(params, ids_T, implementation)
    return jnp.sum(x_TD * cotangent_TD), x_TD

  (_, x_TD), grads = jax.value_and_grad(scalar, has_aux=True)(params)
  return x_TD, grads


run = jax.jit(_run, static_argnames='implementation')
run_optimized = jax.jit(
  _run,
  static_argnames='implementation',
  compiler_options={
    'xla_backend_optimization_level': 3,
    'xla_llvm_disable_expensive_passes': False,
  },
)
# Compiling is most of this file's time: where many shapes are met, in haste.
run_many = jax.jit(
  _run,
  static_argnames='implementation',
  compiler_options={
    'xla_backend_optimization_level': 0,
    'xla_llvm_disable_expensive_passes': True,
  },
)


def assert_close(found, expected, tolerance):
  """Largest error over the array's largest magnitude; NaN is an error."""
  (x_TD, grads), (answer_TD, answers) = found, expected
  pairs = {'x_TD': (x_TD, answer_TD)}
  pairs |= {name: (grads[name], answers[name]) for name in NAMES}
  for name, (value, answer) in pairs.items():
    assert value.shape == answer.shape, name
    error = np.abs(np.asarray(value, np.float64) - answer).max()
    scale = np.abs(answer).max()
    assert error <= tolerance * scale, f'{name}: {error} of {scale}'


def load(shared, name):
  """An oracle's (params, ids, cotangent) and its (x_TD, gradients)."""
  path = shared / 'oracle' / f'{name}.npz'
  if not path.exists():
    pytest.skip(f'{name}.npz is absent from ../shared/oracle')
  with np.load(path) as file:
    arrays = dict(file)
  params = {k: arrays[k] for k in NAMES}
  grads = {k: arrays[f'grad_{k}'] for k in NAMES}
  inputs = params, arrays['ids'].astype(np.int32), arrays['cotangent_TD']
  return inputs, (arrays['x_TD'], grads)


@pytest.mark.parametrize('name', ORACLES)
def test_the_twin_is_the_oracle(shared, name):
  # Its gradients are finite differences, right to some 1e-9 of the largest.
  inputs, expected = load(shared, name)
  assert_close(twin(*inputs), expected, 1e-7)
  np.testing.assert_allclose(twin(*inputs)[0], expected[0], rtol=1e-12)


def test_the_twins_gradient_is_its_finite_difference():
  params, ids_T, cotangent_TD = draw(20, 2, 4, 2, 5, 2, 3)
  params = {k: v.astype(np.float64) for k, v in params.items()}
  params['splines_SCGR'][1, 2, :, 0] = 0
  _, grads = twin(params, ids_T, cotangent_TD)
  rng = np.random.default_rng(1)
  step = 1e-5
  for name in NAMES:
    direction = rng.normal(size=params[name].shape)
    low, high = (
      np.sum(
        twin(
          params | {name: params[name] + sign * step * direction},
          ids_T,
          cotangent_TD,
        )[0]
        * cotangent_TD
      )
      for sign in (-1, 1)
    )
    slope = np.sum(grads[name] * direction)
    assert abs((high - low) / (2 * step) - slope) < 1e-5 * abs(slope)


@pytest.mark.parametrize('implementation', IMPLEMENTATIONS)
@pytest.mark.parametrize('name', ORACLES)
def test_float32_agrees_with_the_oracle(shared, name, implementation):
  inputs, expected = load(shared, name)
  params, ids_T, cotangent_TD = jax.tree.map(
    lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, inputs
  )
  found = run_many(params, ids_T, cotangent_TD, implementation=implementation)
  assert found[0].dtype == jnp.float32
  assert_close(found, expected, 2e-5)


# The kernel computes in float32 alone.
@pytest.mark.parametrize('implementation', ['reference', 'chunked'])
@pytest.mark.parametrize('name', ORACLES)
def test_float64_agrees_with_the_oracle(shared, name, implementation):
  inputs, expected = load(shared, name)
  with jax.enable_x64(True):
    found = run_many(*inputs, implementation=implementation)
    assert found[0].dtype == jnp.float64
    found = jax.tree.map(np.asarray, found)
  np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
  assert_close(found, twin(*inputs), 1e-9)
  assert_close(found, expected, 1e-7)  # As exact as finite differences are.


SIZES = {  # V, J, C, S, G, R, D
  'one digit, one coordinate': (50, 1, 1, 2, 4, 2, 2),
  'two digits': (343, 2, 16, 3, 5, 2, 7),
  'three digits, the width of the paper': (200_019, 3, 128, 2, 16, 3, 4),
  'four digits, an odd width': (50_257, 4, 33, 2, 6, 2, 4),
  'five digits, three knots, no other': (3000, 5, 17, 1, 3, 1, 1),
}
ONE = 1000, 3, 36, 2, 5, 2, 3  # One shape for all that follows.


@pytest.mark.parametrize('implementation', IMPLEMENTATIONS)
@pytest.mark.parametrize('sizes', SIZES.values(), ids=SIZES)
def test_any_sizes_agree_with_the_twin(sizes, implementation):
  inputs = draw(*sizes)
  found = run_many(*inputs, implementation=implementation)
  assert_close(found, twin(*inputs), 2e-5)


def zero(params, *places):
  """Splines that are 0 all over, at (head, coordinate, rank)."""
  splines = params['splines_SCGR'].copy()
  for s, c, r in places:
    splines[s, c, :, r] = 0
  return params | {'splines_SCGR': splines}


ZEROS = {
  'one': [(0, 3, 0)],
  'one in the last coordinate': [(1, 35, 1)],
  'two': [(0, 3, 0), (0, 7, 0)],
  'two far apart': [(0, 3, 0), (0, 20, 0)],
  'three, and one of another rank': [
    (0, 3, 0),
    (0, 4, 0),
    (0, 35, 0),
    (0, 4, 1),
  ],
}


@pytest.mark.parametrize('implementation', IMPLEMENTATIONS)
@pytest.mark.parametrize('places', ZEROS.values(), ids=ZEROS)
def test_factors_of_zero_have_the_true_gradient(places, implementation):
  params, ids_T, cotangent_TD = draw(*ONE)
  params = zero(params, *places)
  found = run(params, ids_T, cotangent_TD, implementation=implementation)
  assert_close(found, twin(params, ids_T, cotangent_TD), 2e-5)


@pytest.mark.parametrize('implementation', IMPLEMENTATIONS)
def test_a_factor_that_only_crosses_zero_has_the_true_gradient(implementation):
  # u is exactly 1/2, on the middle knot, where the coefficients cancel: the
  # factor is 0, yet neither its slope nor the splines' gradient is.
  params, ids_T, cotangent_TD = draw(*ONE)
  params['scale_SC'][0, 2] = params['bias_SC'][0, 2] = 0
  params['splines_SCGR'][0, 2, :, 0] = 1, 4, -1, 2, 1  # 4/8 - 3/4 + 2/8
  found = run(params, ids_T, cotangent_TD, implementation=implementation)
  expected = twin(params, ids_T, cotangent_TD)
  assert np.abs(expected[1]['splines_SCGR'][0, 2, :, 0]).max() > 0
  assert np.abs(expected[1]['bias_SC'][0, 2]) > 0
  assert_close(found, expected, 2e-5)


@pytest.mark.parametrize('implementation', IMPLEMENTATIONS)
def test_signs_count(implementation):
  params, ids_T, cotangent_TD = draw(*ONE)
  rng = np.random.default_rng(2)
  signs = rng.choice([-1, 1], (2, 36, 1, 2)).astype(np.float32)
  # The sign of a product is the product of the signs.
  flipped = params | {'splines_SCGR': params['splines_SCGR'] * signs}
  equal = params | {
    'out_SRD': params['out_SRD'] * signs.prod(1)[..., 0, :, None]
  }
  found = run(flipped, ids_T, cotangent_TD, implementation=implementation)
  assert_close(found, twin(flipped, ids_T, cotangent_TD), 2e-5)
  x_TD, _ = run(equal, ids_T, cotangent_TD, implementation=implementation)
  np.testing.assert_allclose(found[0], x_TD, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('implementation', IMPLEMENTATIONS)
def test_coordinates_at_both_ends(implementation):
  # So large a shift that u is 0 or 1 to the last bit and has no slope.
  params, ids_T, cotangent_TD = draw(*ONE)
  params['bias_SC'][:, ::3] = 300
  params['bias_SC'][:, 1::3] = -300
  found = run(params, ids_T, cotangent_TD, implementation=implementation)
  assert_close(found, twin(params, ids_T, cotangent_TD), 2e-5)
  assert np.all(np.asarray(found[1]['bias_SC'])[:, ::3] == 0)


@pytest.mark.parametrize('implementation', IMPLEMENTATIONS)
def test_gradients_of_repeated_ids_add_up(implementation):
  params, ids_T, cotangent_TD = draw(*ONE)
  ids_T[:] = 421
  found = run(params, ids_T, cotangent_TD, implementation=implementation)
  once = twin(params, ids_T[:1], cotangent_TD.sum(0, keepdims=True))
  assert_close((found[0][:1], found[1]), once, 2e-5)


def test_the_module_computes_the_function_and_keeps_the_shape():
  config = lev.LevConfig(
    name='lev',
    num_digits=3,
    seed_width=5,
    heads=2,
    knots=4,
    rank=3,
    implementation='auto',
  )
  module = config.make(vocab_size=1000, padded_vocab_size=1024, width=7)
  params, ids_T, cotangent_TD = draw(1000, 3, 5, 2, 4, 3, 7, T=6)
  x_BLD = module.apply({'params': params}, ids_T.reshape(2, 3))
  assert x_BLD.dtype == jnp.float32
  np.testing.assert_allclose(
    np.reshape(x_BLD, (6, 7)), twin(params, ids_T, cotangent_TD)[0], rtol=2e-5
  )


def test_parameters_start_as_the_paper_says():
  config = lev.LevConfig(
    name='lev',
    num_digits=3,
    seed_width=32,
    heads=4,
    knots=16,
    rank=16,
    implementation='auto',
  )
  module = config.make(vocab_size=50_257, padded_vocab_size=50_304, width=64)
  init = jax.jit(lambda key: nn.unbox(module.init(key, jnp.zeros((1, 2), int))))
  params = jax.tree.map(np.asarray, init(jax.random.key(0))['params'])
  moments = {
    'codebooks_JNC': ((3, 37, 32), 0, 0.02),
    'seed_SCC': ((4, 32, 32), 0, 0.02),
    'splines_SCGR': ((4, 32, 16, 16), 1, 0.1),
    'out_SRD': ((4, 16, 64), 0, 0.01),
    'scale_SC': ((4, 32), 1, 0),
    'bias_SC': ((4, 32), 0, 0),
  }
  assert params.keys() == moments.keys()
  for name, (shape, mean, deviation) in moments.items():
    value = params[name].astype(np.float64)
    assert value.shape == shape and params[name].dtype == np.float32
    # Five standard errors.
    assert abs(value.mean() - mean) <= 5 * deviation / value.size**0.5
    assert abs(value.std() - deviation) <= 4 * deviation / value.size**0.5


@pytest.mark.parametrize(
  'tokens, distinct',
  [(512, 512), (513, 513), (1100, 600)],
  ids=['one block exactly', 'one and one', 'three, of which two are needed'],
)
@pytest.mark.parametrize('implementation', ['chunked', 'pallas'])
def test_many_tokens_equal_the_reference(implementation, tokens, distinct):
  """Fully optimized, as users run it."""
  params, _, cotangent_TD = draw(205_379, 3, 20, 2, 6, 4, 8, T=tokens)
  rng = np.random.default_rng(0)
  ids_T = rng.choice(205_379, distinct, replace=False).astype(np.int32)
  if distinct < tokens:
    ids_T = rng.choice(ids_T, tokens)
  plain = run(params, ids_T, cotangent_TD, implementation='reference')
  found = run_optimized(
    params, ids_T, cotangent_TD, implementation=implementation
  )
  assert_close(found, plain, 2e-5)
  eager = lev.lev_embed(params, ids_T[:10], implementation)
  np.testing.assert_allclose(eager, plain[0][:10], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('implementation', IMPLEMENTATIONS)
def test_factors_far_from_one_agree_with_the_twin(implementation):
  """Huge and tiny by turns, so that their product is neither."""
  params, ids_T, cotangent_TD = draw(*ONE)
  power_C = np.where(np.arange(36) % 2, 6.0, -6.0)
  power_C[[4, 5]] = -18, 18
  factors_C = (10.0**power_C)[:, None, None]
  splines_SCGR = (params['splines_SCGR'] * factors_C).astype(np.float32)
  params = params | {'splines_SCGR': splines_SCGR}
  params = zero(params, (1, 7, 0))
  found = run(params, ids_T, cotangent_TD, implementation=implementation)
  expected = twin(params, ids_T, cotangent_TD)
  assert_close(found, expected, 2e-5)
  # The largest hides the others: each coordinate's gradient by itself.
  for c in range(36):
    value, answer = (x[1]['splines_SCGR'][:, c] for x in (found, expected))
    assert np.abs(value - answer).max() <= 1e-4 * np.abs(answer).max(), c


@pytest.mark.parametrize('implementation', IMPLEMENTATIONS)
def test_neighbouring_knots_far_apart_agree_with_the_twin(implementation):
  """A knot 1e6 beside others of 1: its share must not swallow theirs."""
  params, ids_T, cotangent_TD = draw(*ONE)
  params['splines_SCGR'][:, ::7, 3] *= 1e6
  found = run(params, ids_T, cotangent_TD, implementation=implementation)
  assert_close(found, twin(params, ids_T, cotangent_TD), 2e-5)


@pytest.mark.parametrize('implementation', IMPLEMENTATIONS)
def test_no_token_gives_no_row(implementation):
  params, _, _ = draw(*ONE)
  x_TD = lev.lev_embed(params, np.zeros(0, np.int32), implementation)
  assert x_TD.shape == (0, 3)


@pytest.mark.parametrize('implementation', IMPLEMENTATIONS)
def test_bfloat16_parameters_are_computed_with_in_float32(implementation):
  params, ids_T, cotangent_TD = draw(*ONE)
  narrow = {k: jnp.asarray(v, jnp.bfloat16) for k, v in params.items()}
  wide = {k: np.asarray(v, np.float32) for k, v in narrow.items()}
  x_TD = lev.lev_embed(narrow, ids_T, implementation)
  assert x_TD.dtype == jnp.bfloat16
  expected_TD, _ = twin(wide, ids_T, cotangent_TD)
  error = np.abs(np.asarray(x_TD, np.float64) - expected_TD)
  # Half a last place of bfloat16, and nothing on the way.
  assert np.all(error <= np.abs(expected_TD) * 2**-8 + 1e-6)


def test_auto_is_the_fastest_for_the_platform_and_is_said_once(caplog):
  params, ids_T, _ = draw(50, 1, 5, 2, 4, 3, 5)
  lev._fastest.cache_clear()
  with caplog.at_level('INFO', 'leviathan'):
    found = [lev.lev_embed(params, ids_T) for _ in range(2)]
  np.testing.assert_array_equal(
    found[0], lev.lev_embed(params, ids_T, 'chunked')
  )
  assert [r.getMessage() for r in caplog.records] == [
    "LEV runs as 'chunked' on cpu"
  ]
  assert lev._fastest('tpu', False) == 'pallas'
  assert lev._fastest('tpu', True) == lev._fastest('gpu', False) == 'chunked'


def test_an_unknown_implementation_is_refused():
  params, ids_T, _ = draw(50, 1, 5, 2, 4, 3, 5)
  with pytest.raises(errors.ConfigError, match="implementation='fast'") as e:
    lev.lev_embed(params, ids_T, 'fast')
  assert 'reference, chunked, pallas' in str(e.value)


@pytest.mark.parametrize(
  'field, value',
  [
    ('num_digits', 0),
    ('seed_width', 0),
    ('heads', -1),
    ('rank', 0),
    ('knots', 2),
    ('implementation', 'fast'),
  ],
)
def test_sizes_without_a_meaning_are_refused_by_name(field, value):
  sizes = dict(
    name='lev',
    num_digits=3,
    seed_width=4,
    heads=2,
    knots=3,
    rank=2,
    implementation='auto',
  )
  with pytest.raises(errors.ConfigError) as caught:
    lev.LevConfig(**sizes | {field: value})
  assert 'config.model.embedder' in str(caught.value)
  assert f'{field}={value!r}' in str(caught.value)


@pytest.mark.parametrize('implementation', ['chunked', 'pallas'])
@pytest.mark.parametrize('sizes', [(8, 1, 1), (2, 2, 2)])
def test_each_device_embeds_its_own_rows(implementation, sizes):
  mesh = sharding.make_mesh(
    sharding.MeshConfig(**dict(zip(sharding.AXES, sizes, strict=True)))
  )
  params, ids_T, cotangent_TD = draw(*ONE, T=64)
  rows = sharding.batch_sharding(mesh)
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

  def scalar(params, ids_BL, cotangent_BLD):
    def embed(params, ids_BL):
      x_TD = lev.lev_embed(params, ids_BL.reshape(-1), implementation)
      return x_TD.reshape(*ids_BL.shape, -1)

    x_BLD = sharding.by_rows(embed, params, ids_BL)
    return jnp.sum(x_BLD * cotangent_BLD), x_BLD

  step = jax.jit(jax.grad(scalar, has_aux=True))
  arguments = (
    jax.device_put(params, whole),
    jax.device_put(ids_T.reshape(16, 4), rows),
    jax.device_put(cotangent_TD.reshape(16, 4, -1), rows),
  )
  with jax.set_mesh(mesh):
    compiled = step.lower(*arguments).compile()
    grads, x_BLD = compiled(*arguments)
  assert x_BLD.sharding.is_equivalent_to(rows, 3)
  # Only the parameters' gradients meet: no token crosses the mesh.
  text = compiled.as_text()
  for collective in ('all-gather', 'all-to-all', 'collective-permute'):
    assert f' {collective}(' not in text
  found = np.reshape(x_BLD, (64, -1)), jax.tree.map(np.asarray, grads)
  assert_close(found, twin(params, ids_T, cotangent_TD), 2e-5)


def test_chunked_never_holds_all_factors():
  # Temporary memory of value and gradient, 4 M factors of which are 16.8 MB.
  # Measured on the CPU: 10.9 MB, the reference 96.3 MB.
  params, ids_T, cotangent_TD = draw(200_019, 3, 64, 4, 16, 32, 64, T=512)

  def temporary(implementation):
    lowered = run.lower(
      params, ids_T, cotangent_TD, implementation=implementation
    )
    return lowered.compile().memory_analysis().temp_size_in_bytes

  assert temporary('chunked') < temporary('reference') / 6


@pytest.mark.parametrize('form', ['grad', 'jit', 'remat', 'scan'])
@pytest.mark.parametrize('implementation', ['chunked', 'pallas'])
def test_every_product_is_of_full_precision_however_it_is_traced(
  form, implementation
):
  """A TPU would round to bfloat16; the CPU cannot show it, the jaxpr does."""
  config = lev.LevConfig(
    name='lev', num_digits=2, seed_width=4, heads=2, knots=4, rank=3,
    implementation=implementation,
  )  # fmt: skip
  shapes = config.parameters(50, 6)
  params = {name: jnp.ones(shape) for name, (shape, _) in shapes.items()}
  ids_T = jnp.arange(5)

  def loss(params):
    return lev.lev_embed(params, ids_T, implementation).sum()

  def scanned(params):
    return jax.lax.scan(lambda c, _: (c + loss(params), None), 0.0, None, 2)[0]

  forms = {
    'grad': loss,
    'jit': jax.jit(loss),
    'remat': jax.checkpoint(loss),
    'scan': scanned,
  }
  text = str(jax.make_jaxpr(jax.grad(forms[form]))(params))
  products = text.count('dot_general[')
  assert products >= 6
  assert text.count('precision=(Precision.HIGHEST') >= products
