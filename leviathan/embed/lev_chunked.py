"""LEV without its cost: the same function as `lev._reference`, reordered.

1. `z @ seed` is linear in the codebooks, so their J * N rows are projected
   once and a token only adds J rows of the result.
2. Coordinates are the outermost loop, in chunks: a step is a batched matrix
   product with the splines and a running product, and phi never exists whole.
3. The product's gradient by one factor is the product of the others, that is
   mode / phi_c: only `u` is kept for the backward pass and phi is recomputed.
   Factors that are exactly 0 are counted apart, so nothing divides by them.

A product out of float32's range: too large is inf, and seen as a loss that is
not finite; too small is 0 and so are its gradients, where the plain form may
still find one. Factors start near 1, and 128 of them would have to average
below 0.5 or above 2 for either.
"""

from collections.abc import Mapping
import functools

import jax
import jax.numpy as jnp

from leviathan.embed import digits
from leviathan.embed import splines

# Said at each product: a context is forgotten where a pass is traced later.
_einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)

CHUNK = 16  # coordinates at a time; more is no faster and holds more memory


def embed(params: Mapping[str, jax.Array], ids_T: jax.Array) -> jax.Array:
  """See `lev.lev_embed`."""
  u_CST = jnp.transpose(_coordinates_of_ids(params, ids_T), (2, 0, 1))
  splines_CSGR = jnp.swapaxes(params['splines_SCGR'], 0, 1)
  mode_STR = spline_product(u_CST, splines_CSGR)
  return _einsum('STR,SRD->TD', mode_STR, params['out_SRD'])


def _coordinates_of_ids(
  params: Mapping[str, jax.Array], ids_T: jax.Array
) -> jax.Array:
  """u_STC from the projected codebooks."""
  num_digits, base, _ = params['codebooks_JNC'].shape
  rows_SJNC = _einsum(
    'JNC,SCE->SJNE', params['codebooks_JNC'], params['seed_SCC']
  )
  a_STC = functools.reduce(
    jnp.add,
    [
      jnp.take(rows_SJNC[:, j], digit_T, axis=1)
      for j, digit_T in enumerate(digits.split(ids_T, base, num_digits))
    ],
  )
  return splines.coordinates(
    a_STC, params['scale_SC'][:, None], params['bias_SC'][:, None]
  )


@jax.custom_vjp
def spline_product(u_CST: jax.Array, splines_CSGR: jax.Array) -> jax.Array:
  """mode_STR: product over C of the splines' values at `u`."""
  return _forward(u_CST, splines_CSGR)[0]


def _phi(u_kST: jax.Array, splines_kSGR: jax.Array) -> jax.Array:
  """Spline values at a chunk's coordinates, phi_kSTR."""
  basis_kSTG = splines.basis(u_kST, splines_kSGR.shape[2])
  return _einsum('kSTG,kSGR->kSTR', basis_kSTG, splines_kSGR)


def _chunks(x_C: jax.Array, fill: float) -> jax.Array:
  """(C, ...) -> (C / CHUNK, CHUNK, ...), C filled up with `fill`."""
  count = -(-x_C.shape[0] // CHUNK)
  missing = count * CHUNK - x_C.shape[0]
  padding = [(0, missing)] + [(0, 0)] * (x_C.ndim - 1)
  x_C = jnp.pad(x_C, padding, constant_values=fill)
  return x_C.reshape(count, CHUNK, *x_C.shape[1:])


def _forward(u_CST, splines_CSGR):
  """mode_STR and what the backward pass keeps."""
  _, S, T = u_CST.shape
  R = splines_CSGR.shape[-1]
  dtype = splines_CSGR.dtype

  def step(carry, chunk):
    product_STR, zeros_STR = carry
    phi_kSTR = _phi(*chunk)
    is_zero_kSTR = phi_kSTR == 0
    factors_kSTR = jnp.where(is_zero_kSTR, 1, phi_kSTR)
    return (
      product_STR * jnp.prod(factors_kSTR, axis=0),
      zeros_STR + jnp.sum(is_zero_kSTR, axis=0, dtype=jnp.int32),
    ), None

  start = (jnp.ones((S, T, R), dtype), jnp.zeros((S, T, R), jnp.int32))
  # A coordinate that only fills up a chunk has splines of 1, so a factor of 1.
  chunks = (_chunks(u_CST, 0.5), _chunks(splines_CSGR, 1.0))
  (product_STR, zeros_STR), _ = jax.lax.scan(step, start, chunks)
  mode_STR = jnp.where(zeros_STR == 0, product_STR, 0)
  return mode_STR, (u_CST, splines_CSGR, product_STR, zeros_STR)


def _backward(residuals, d_mode_STR):
  """Gradients by `u` and by the splines; phi is recomputed chunk by chunk."""
  u_CST, splines_CSGR, product_STR, zeros_STR = residuals
  # No gradient arrives, none leaves: not 0 * inf where a zero hid an overflow.
  weighted_STR = jnp.where(d_mode_STR == 0, 0, d_mode_STR * product_STR)

  def step(carry, chunk):
    u_kST, splines_kSGR = chunk
    num_knots = splines_kSGR.shape[2]
    basis_kSTG, basis_vjp = jax.vjp(
      functools.partial(splines.basis, num_knots=num_knots), u_kST
    )
    phi_kSTR = _einsum('kSTG,kSGR->kSTR', basis_kSTG, splines_kSGR)
    # The others' product: all of it over phi_c where none is 0; where one is,
    # it counts for that one alone; where two are, for none.
    is_zero_kSTR = phi_kSTR == 0
    others = zeros_STR - is_zero_kSTR
    d_phi_kSTR = jnp.where(
      others == 0, weighted_STR / jnp.where(is_zero_kSTR, 1, phi_kSTR), 0
    )
    d_splines_kSGR = _einsum('kSTG,kSTR->kSGR', basis_kSTG, d_phi_kSTR)
    d_basis_kSTG = _einsum('kSTR,kSGR->kSTG', d_phi_kSTR, splines_kSGR)
    (d_u_kST,) = basis_vjp(d_basis_kSTG)
    return carry, (d_u_kST, d_splines_kSGR)

  chunks = (_chunks(u_CST, 0.5), _chunks(splines_CSGR, 1.0))
  _, (d_u, d_splines) = jax.lax.scan(step, None, chunks)
  C = u_CST.shape[0]
  return (
    d_u.reshape(-1, *u_CST.shape[1:])[:C],
    d_splines.reshape(-1, *splines_CSGR.shape[1:])[:C],
  )


spline_product.defvjp(_forward, _backward)
