"""The one loss, by hand, and its fast twin."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan import losses
from leviathan import sharding

V, ROWS, D = 200, 256, 16  # Of the rows 56 only pad.
B, L = 8, 32
MESHES = {'1': (1, 1, 1), '8': (1, 8, 1), '2x4': (1, 2, 4), '2x2x2': (2, 2, 2)}


def nll(logits, targets):
  return losses.token_nll(jnp.asarray(logits), jnp.asarray(targets, jnp.int32))


def test_values_by_hand():
  logits_BLV = np.log([[[1.0, 1, 2], [8, 1, 1]]]).astype(np.float32)
  np.testing.assert_allclose(
    nll(logits_BLV, [[2, 1]]), [[np.log(2), np.log(10)]], rtol=1e-6
  )


def test_a_shift_of_all_logits_changes_nothing():
  logits_BLV = np.random.default_rng(0).normal(size=(2, 3, 5))
  targets_BL = [[0, 1, 2], [3, 4, 0]]
  plain = nll(logits_BLV.astype(np.float32), targets_BL)
  answer = np.log(np.exp(logits_BLV).sum(-1)) - np.take_along_axis(
    logits_BLV, np.array(targets_BL)[..., None], -1
  ).squeeze(-1)
  np.testing.assert_allclose(plain, answer, rtol=1e-5)
  far = nll((logits_BLV + 512).astype(np.float32), targets_BL)
  np.testing.assert_allclose(far, answer, atol=1e-3)


def test_large_logits_stay_finite():
  np.testing.assert_allclose(nll([[[1e4, 0.0, -1e4]]], [[2]]), [[2e4]])


@pytest.mark.parametrize('scale', [1.0, 1e4])
def test_columns_of_the_lowest_finite_number_do_not_count(scale):
  lowest = np.finfo(np.float32).min
  logits_V = np.array([1.0, -2.0, 0.5], np.float32) * scale
  padded_V = np.concatenate([logits_V, [lowest, lowest]]).astype(np.float32)

  def one(logits_V):
    return nll(logits_V[None, None], [[1]])[0, 0]

  loss, grad_V = jax.value_and_grad(one)(jnp.asarray(logits_V))
  padded_loss, padded_grad_V = jax.value_and_grad(one)(jnp.asarray(padded_V))
  assert padded_loss == loss
  np.testing.assert_array_equal(padded_grad_V[:3], grad_V)
  np.testing.assert_array_equal(padded_grad_V[3:], [0, 0])


def test_it_is_computed_in_float32():
  # A mean of 2**-8 of many tokens would be lost in bfloat16.
  logits_BLV = jnp.asarray([[[3.0, 0.0, 0.0]]], jnp.bfloat16)
  found = losses.token_nll(logits_BLV, jnp.zeros((1, 1), jnp.int32))
  assert found.dtype == jnp.float32
  np.testing.assert_allclose(found, [[np.log(1 + 2 * np.exp(-3))]], rtol=1e-6)


@pytest.mark.parametrize('target', [3, 100])
def test_a_target_outside_gives_nan_and_not_another_tokens_loss(target):
  assert np.isnan(nll([[[1.0, 2.0, 3.0]]], [[target]])).all()


@functools.cache
def draw(vocab_size=V):
  """x_BLD, w_VD, targets_BL and weights_BL, of which no two rows are alike."""
  rng = np.random.default_rng(1)
  weights_BL = rng.uniform(0.5, 2, (B, L)) * (rng.uniform(size=(B, L)) < 0.7)
  weights_BL[3] = 0
  return (
    rng.normal(size=(B, L, D)).astype(np.float32),
    rng.normal(size=(ROWS, D)).astype(np.float32),
    rng.integers(0, vocab_size, (B, L)).astype(np.int32),
    weights_BL.astype(np.float32),
  )


def by_x_and_w(function, vocab_size=V, z_loss=0.01, scale=1 / 70, **settings):
  """(x, w, targets, weights) -> (loss, its parts), (dx, dw)."""

  def scalar(*arguments):
    found = function(
      *arguments, vocab_size=vocab_size, z_loss=z_loss, **settings
    )
    return scale * found.objective, found

  return jax.value_and_grad(scalar, argnums=(0, 1), has_aux=True)


def assert_close(found, wanted):
  for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('function', ['whole', 'loss'])
def test_the_objective_is_weighted_nll_and_z_loss(function):
  x_BLD, w_VD, targets_BL, weights_BL = draw()
  settings = {'chunks': 4} if function == 'loss' else {}
  found = getattr(losses, function)(
    *draw(), vocab_size=V, z_loss=0.1, **settings
  )
  logits_BLV = x_BLD.astype(np.float64) @ w_VD[:V].T
  lse_BL = np.log(np.exp(logits_BLV).sum(-1))
  z_loss_BL = 0.1 * lse_BL**2
  nll_BL = lse_BL - np.take_along_axis(
    logits_BLV, targets_BL[..., None], -1
  ).squeeze(-1)
  np.testing.assert_allclose(found.nll_BL, nll_BL, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(found.z_loss_BL, z_loss_BL, rtol=1e-4)
  np.testing.assert_allclose(
    found.objective, (weights_BL * (nll_BL + z_loss_BL)).sum(), rtol=1e-5
  )


@pytest.mark.parametrize('z_loss', [0.0, 0.01])
@pytest.mark.parametrize('vocab_size', [V, ROWS])
@pytest.mark.parametrize('chunks', [1, 2, 4, 8])
def test_in_chunks_it_has_the_same_value_and_gradients(
  chunks, vocab_size, z_loss
):
  settings = {'vocab_size': vocab_size, 'z_loss': z_loss}
  whole = by_x_and_w(losses.whole, **settings)(*draw(vocab_size))
  chunked = by_x_and_w(losses.loss, chunks=chunks, **settings)
  assert_close(chunked(*draw(vocab_size)), whole)
  _, (dx_BLD, dw_VD) = whole
  assert np.abs(dx_BLD).max() > 0.01 and np.abs(dw_VD).max() > 0.01


def test_padded_rows_take_no_gradient_in_chunks_however_large():
  x_BLD, w_VD, targets_BL, weights_BL = draw()
  chunked = by_x_and_w(losses.loss, chunks=4)
  large_VD = np.where(np.arange(ROWS)[:, None] < V, w_VD, 1e6)
  found = chunked(x_BLD, large_VD, targets_BL, weights_BL)
  jax.tree.map(np.testing.assert_array_equal, found, chunked(*draw()))
  assert np.all(np.asarray(found[1][1])[V:] == 0)


def test_bfloat16_in_chunks_is_close_and_its_sums_are_float32():
  x_BLD, *others = draw()
  (_, exact), exact_gradients = by_x_and_w(losses.whole)(x_BLD, *others)
  chunked = by_x_and_w(losses.loss, chunks=8)
  (_, found), gradients = chunked(x_BLD.astype(jnp.bfloat16), *others)
  assert found.objective.dtype == found.nll_BL.dtype == jnp.float32
  assert [g.dtype for g in gradients] == [jnp.bfloat16, jnp.float32]
  np.testing.assert_allclose(found.objective, exact.objective, rtol=1e-2)
  for a, b in zip(gradients, exact_gradients, strict=True):
    error = np.abs(a.astype(jnp.float32) - b).max() / np.abs(b).max()
    assert error < 2e-2
  # Of 2048 equal shares a sum in bfloat16 would lose all but the first 256.
  ones = np.ones((1, 2048, 1), jnp.bfloat16)
  zeros_BL, ones_BL = np.zeros((1, 2048), np.int32), np.ones((1, 2048))
  _, (_, dw_VD) = by_x_and_w(
    losses.loss, vocab_size=2, z_loss=0.0, scale=1, chunks=2048
  )(ones, np.zeros((2, 1), np.float32), zeros_BL, ones_BL.astype(np.float32))
  np.testing.assert_array_equal(dw_VD, [[-1024], [1024]])


@pytest.mark.parametrize('target', [-1, V, ROWS, 10 * ROWS])
def test_a_target_outside_gives_nan_in_chunks_too(target):
  x_BLD, w_VD, targets_BL, weights_BL = draw()
  targets_BL = targets_BL.copy()
  targets_BL[0, 5] = target
  found = losses.loss(
    x_BLD, w_VD, targets_BL, weights_BL, vocab_size=V, z_loss=0.0, chunks=2
  )
  assert np.isnan(found.nll_BL).sum() == 1 and np.isnan(found.nll_BL[0, 5])


def mesh_of(name):
  data, fsdp, tensor = MESHES[name]
  sizes = sharding.MeshConfig(data=data, fsdp=fsdp, tensor=tensor)
  return sharding.make_mesh(sizes, jax.devices()[: data * fsdp * tensor])


def placed(mesh):
  """The arguments, where a training step has them."""
  rows = sharding.batch_sharding(mesh)
  matrix = jax.sharding.NamedSharding(mesh, sharding.spec(('vocab', 'embed')))
  return jax.device_put(draw(), (rows, matrix, rows, rows))


@pytest.mark.parametrize('chunks', [1, 4])
@pytest.mark.parametrize('name', MESHES)
def test_in_chunks_it_is_the_same_on_every_mesh(name, chunks):
  mesh = mesh_of(name)
  arguments = placed(mesh)
  with jax.set_mesh(mesh):
    found = jax.jit(by_x_and_w(losses.loss, chunks=chunks))(*arguments)
    scored = jax.jit(
      functools.partial(losses.loss, vocab_size=V, z_loss=0.01, chunks=4)
    )(*arguments)
  wanted = by_x_and_w(losses.whole)(*draw())
  assert_close(found, wanted)
  assert_close(scored.nll_BL, wanted[0][1].nll_BL)
  for gradient, argument in zip(found[1], arguments[:2], strict=True):
    assert gradient.sharding.is_equivalent_to(argument.sharding, argument.ndim)


def equations(jaxpr, loops=0):
  """(equation, how many loops it is in) of all of a jaxpr."""
  for equation in jaxpr.eqns:
    yield equation, loops
    inner = loops + (equation.primitive.name in ('scan', 'while'))
    for part in jax.tree.leaves(
      list(equation.params.values()),
      is_leaf=lambda x: hasattr(x, 'eqns') or hasattr(x, 'jaxpr'),
    ):
      part = getattr(part, 'jaxpr', part)
      if hasattr(part, 'eqns'):
        yield from equations(part, inner)


def test_a_token_costs_three_products_and_scoring_one():
  def products(function):
    found = equations(jax.make_jaxpr(function)(*draw()).jaxpr)
    return [n for e, n in found if e.primitive.name == 'dot_general']

  settings = {'vocab_size': V, 'z_loss': 0.01, 'chunks': 4}
  # Of the first part, then, in a loop, of the others.
  assert products(by_x_and_w(losses.loss, **settings)) == [0, 0, 0, 1, 1, 1]
  assert products(functools.partial(losses.loss, **settings)) == [0, 1]


def test_the_matrix_is_gathered_once_and_its_gradient_summed_once():
  with jax.set_mesh(mesh_of('2x2x2')):
    jaxpr = jax.make_jaxpr(by_x_and_w(losses.loss, chunks=4))(*draw()).jaxpr
  crossings = [
    (e.primitive.name, n)
    for e, n in equations(jaxpr)
    if e.primitive.name in ('all_gather', 'reduce_scatter', 'psum')
    # Without those of a number a token, over the vocabulary.
    and any(v.aval.ndim > 1 for v in e.outvars)
  ]
  assert sorted(crossings) == [
    ('all_gather', 0), ('psum', 0), ('psum', 0), ('reduce_scatter', 0)
  ]  # fmt: skip


def sizes(text):
  """How many elements each array in a compiled program has."""
  shapes = re.findall(r'\b(?:f32|bf16|s32|pred)\[([\d,]+)\]', text)
  return {int(np.prod([int(n) for n in s.split(',')])) for s in shapes}


@pytest.mark.parametrize('name', MESHES)
def test_logits_of_all_tokens_never_exist(name):
  mesh = mesh_of(name)
  data, fsdp, tensor = MESHES[name]
  logits = B * L // (data * fsdp) * (ROWS // tensor)

  def largest(function, **settings):
    with jax.set_mesh(mesh):
      run = jax.jit(by_x_and_w(function, **settings))
      return max(sizes(run.lower(*placed(mesh)).compile().as_text()))

  assert largest(losses.loss, chunks=8) < logits <= largest(losses.whole)
