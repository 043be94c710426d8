"""Attention against a plain twin, causality by gradient, kernels against XLA.

The TPU kernel's numbers are shown by interpreting it; that chips would take it,
by compiling for them. cuDNN's is only lowered: what it computes is not tested.
"""

import functools
import logging
import os

from flax import linen as nn
import jax
from jax._src.cudnn import fused_attention_stablehlo
from jax.experimental import topologies
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan import errors
from leviathan import model as model_lib
from leviathan import sharding
from leviathan.nn import attention

# Several processes may compile at once, and none asks the network for a TPU.
os.environ['ALLOW_MULTIPLE_LIBTPU_LOAD'] = '1'
os.environ['TPU_SKIP_MDS_QUERY'] = '1'

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
  return module.apply({'params': params}, x_BLD, POSITIONS, segments_BL)[0]


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


def operands(batch, length, heads=2, width=8):
  """q, k, v and the cotangent of what comes out; documents of each row."""
  rng = np.random.default_rng(5)
  shape = (batch, length, heads, width)
  arrays = [rng.normal(size=shape).astype(np.float32) for _ in range(4)]
  begins_BL = rng.random((batch, length)) < 4 / length
  return arrays, np.cumsum(begins_BL, axis=1).astype(np.int32)


@functools.partial(jax.jit, static_argnames='implementation')
def value_and_gradients(arrays, segments_BL, implementation):
  *qkv, cotangent_BLHK = arrays
  y_BLHK, back = jax.vjp(
    lambda *qkv: attention.attend(*qkv, segments_BL, implementation), *qkv
  )
  return y_BLHK, back(cotangent_BLHK)


def assert_splash_is_xla(arrays, segments_BL):
  pairs = zip(
    jax.tree.leaves(value_and_gradients(arrays, segments_BL, 'splash')),
    jax.tree.leaves(value_and_gradients(arrays, segments_BL, 'xla')),
    strict=True,
  )
  for found, wanted in pairs:
    assert np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize('length', [128, 150])  # Whole blocks, and filled up.
@pytest.mark.parametrize('packed', [False, True])
def test_splash_is_xla_in_value_and_gradients(packed, length):
  arrays, segments_BL = operands(2, length)
  assert segments_BL.max() > 1
  assert_splash_is_xla(arrays, segments_BL if packed else None)


def test_splash_is_xla_where_it_skips_blocks(monkeypatch):
  monkeypatch.setattr(attention, 'BLOCK', 128)
  jax.clear_caches()  # The block is no argument of what was traced before.
  arrays, segments_BL = operands(1, 300)
  assert_splash_is_xla(arrays, segments_BL)


@pytest.mark.parametrize('batch', [4, 1])  # One row does not divide.
def test_on_a_mesh_splash_is_xla_and_splits_rows_and_heads(batch):
  arrays, segments_BL = operands(batch, 128)
  wanted, _ = value_and_gradients(arrays, segments_BL, 'xla')
  mesh = sharding.make_mesh(sharding.MeshConfig(data=2, fsdp=2, tensor=2))
  with jax.set_mesh(mesh):
    assert_splash_is_xla(arrays, segments_BL)
    found, _ = value_and_gradients(arrays, segments_BL, 'splash')
  assert {s.data.shape for s in found.addressable_shards} == {(1, 128, 1, 8)}
  np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(
  'platform, dtype, head_width, name',
  [
    ('cpu', jnp.bfloat16, 64, 'xla'),
    ('tpu', jnp.bfloat16, 64, 'splash'),
    ('tpu', jnp.float32, 128, 'splash'),
    ('gpu', jnp.bfloat16, 64, 'cudnn'),
    ('gpu', jnp.bfloat16, 128, 'cudnn'),
    ('gpu', jnp.float32, 64, 'xla'),
    ('gpu', jnp.bfloat16, 136, 'xla'),
    ('gpu', jnp.bfloat16, 12, 'xla'),
  ],
)
def test_auto_follows_the_devices_and_says_once_why(
  platform, dtype, head_width, name, monkeypatch, caplog
):
  called = []
  monkeypatch.setattr(sharding, 'platform', lambda: platform)
  monkeypatch.setitem(
    attention.IMPLEMENTATIONS, name, lambda *arrays: called.append(name)
  )
  attention._fastest.cache_clear()
  caplog.set_level(logging.INFO)
  q_BLHK = jnp.zeros((1, 2, 1, head_width), dtype)
  for _ in range(2):
    attention.attend(q_BLHK, q_BLHK, q_BLHK)
  assert called == [name] * 2
  (line,) = [m for m in caplog.messages if m.startswith('attention runs')]
  assert line.startswith(f'attention runs as {name!r} on {platform}')
  assert ('cudnn needs' in line) == (platform == 'gpu' and name == 'xla')


@pytest.mark.parametrize(
  'platform, dtype, head_width, message',
  [
    ('cpu', jnp.bfloat16, 64, "'cudnn' needs a GPU, .* 'cpu'; choose auto"),
    ('gpu', jnp.float32, 64, "precision='bfloat16', not 'float32'; choose"),
    ('gpu', jnp.bfloat16, 136, 'head_width .* not 136; choose'),
  ],
)
def test_what_a_kernel_cannot_take_is_refused(
  platform, dtype, head_width, message, monkeypatch
):
  monkeypatch.setattr(sharding, 'platform', lambda: platform)
  q_BLHK = jnp.zeros((1, 2, 1, head_width), dtype)
  with pytest.raises(errors.ConfigError, match=message) as caught:
    attention.attend(q_BLHK, q_BLHK, q_BLHK, implementation='cudnn')
  assert str(caught.value).startswith("config.model.attention='cudnn' ")


def test_an_unknown_name_is_refused():
  q_BLHK = jnp.zeros((1, 2, 1, 8))
  with pytest.raises(errors.ConfigError, match="'flash' is unknown.*splash"):
    attention.attend(q_BLHK, q_BLHK, q_BLHK, implementation='flash')


def test_a_start_needs_no_kernel():
  module = attention.Attention(8, 2, jnp.float32, 'cudnn')
  x_BLD = jnp.zeros((1, 2, 16))
  params = module.init(jax.random.key(0), x_BLD, POSITIONS[:2])
  assert len(jax.tree.leaves(params)) == 4
  with pytest.raises(errors.ConfigError, match='needs a GPU'):
    module.apply(params, x_BLD, POSITIONS[:2])


@pytest.mark.parametrize('packed', [False, True])
def test_cudnn_is_lowered_for_gpus_on_each_devices_own_rows_and_heads(
  packed, monkeypatch
):
  monkeypatch.setattr(sharding, 'platform', lambda: 'gpu')
  monkeypatch.setattr(
    fused_attention_stablehlo, 'check_cudnn_version', lambda: 91000
  )
  mesh = sharding.make_mesh(sharding.MeshConfig(data=2, fsdp=2, tensor=2))
  q_BLHK = jax.ShapeDtypeStruct((4, 32, 4, 64), jnp.bfloat16)
  segments_BL = jax.ShapeDtypeStruct((4, 32), jnp.int32) if packed else None

  def step(q_BLHK, segments_BL):
    return jax.grad(
      lambda *qkv: jnp.sum(attention.attend(*qkv, segments_BL)), (0, 1, 2)
    )(q_BLHK, q_BLHK, q_BLHK)

  with jax.set_mesh(mesh):
    text = (
      jax.jit(step)
      .trace(q_BLHK, segments_BL)
      .lower(lowering_platforms=('cuda',))
      .as_text()
    )
  kind = 'ScaleBiasSoftmax' if packed else 'Softmax'
  for name in (f'__cudnn$fmha{kind}(', f'__cudnn$fmha{kind}Backward('):
    (call,) = [line for line in text.splitlines() if '@' + name in line]
    assert call.count('tensor<1x32x2x64xbf16>') >= 3
    assert 'CAUSAL' in call


def of_chips(data, fsdp, tensor):
  """A mesh of four chips of TPU v5e that are not here."""
  pytest.importorskip('libtpu', reason='only Linux on x86-64 has libtpu')
  return sharding.make_mesh(
    sharding.MeshConfig(data=data, fsdp=fsdp, tensor=tensor),
    topologies.get_topology_desc('v5e:2x2', platform='tpu').devices,
  )


def shape_on(mesh, shape, dtype, *axes):
  place = jax.sharding.NamedSharding(mesh, sharding.spec(axes))
  return jax.ShapeDtypeStruct(shape, dtype, sharding=place)


@pytest.mark.parametrize(
  'head_width, mesh_sizes, packed',
  [(64, (1, 2, 2), False), (128, (2, 2, 1), True)],
)
def test_a_layer_and_its_gradient_compile_for_tpus(
  head_width, mesh_sizes, packed
):
  mesh, batch, length, heads = of_chips(*mesh_sizes), 8, 512, 2
  width = heads * head_width
  layer = nn.remat(
    attention.Attention, policy=model_lib.REMAT_POLICIES['dots']
  )(head_width, 16, jnp.bfloat16)
  w_DHK = shape_on(
    mesh, (width, heads, head_width), jnp.float32, 'embed', 'heads', None
  )
  params = {name: w_DHK for name in ('query_DHK', 'key_DHK', 'value_DHK')}
  params['out_HKD'] = shape_on(
    mesh, (heads, head_width, width), jnp.float32, 'heads', None, 'embed'
  )
  x_BLD = shape_on(mesh, (batch, length, width), jnp.bfloat16, 'batch')
  segments_BL = shape_on(mesh, (batch, length), jnp.int32, 'batch')

  def scalar(params, x_BLD, segments_BL):
    y_BLD, _ = layer.apply(
      {'params': params}, x_BLD, jnp.arange(length), segments_BL
    )
    return jnp.sum(y_BLD.astype(jnp.float32) ** 2)

  with jax.set_mesh(mesh):
    compiled = (
      jax.jit(jax.grad(scalar, (0, 1)))
      .lower(params, x_BLD, segments_BL if packed else None)
      .compile()
    )
  for kernel in ('fwd', 'dq', 'dkv'):
    assert f'splash_mha_{kernel}' in compiled.as_text()


def test_on_tpus_splash_never_holds_the_scores():
  mesh = of_chips(1, 2, 2)
  x_BLHK = shape_on(
    mesh, (64, 512, 16, 128), jnp.bfloat16, 'batch', None, 'heads', None
  )

  def temporary(implementation):
    def step(*qkv):
      return jax.vjp(
        lambda *qkv: attention.attend(*qkv, None, implementation), *qkv
      )[1](qkv[0])

    with jax.set_mesh(mesh):
      compiled = jax.jit(step).lower(x_BLHK, x_BLHK, x_BLHK).compile()
    return compiled.memory_analysis().temp_size_in_bytes

  scores = 32 * 8 * 512**2 * 4  # In float32, of one device.
  found = {name: temporary(name) for name in ('xla', 'splash')}
  assert found['xla'] >= scores >= 2 * found['splash'], found
