"""The modes of LEV by XLA alone: a block of tokens and a coordinate at a time.

1. In a block of tokens the product over coordinates is a running one, so what
   is multiplied stays in the cache, and phi never exists whole.
2. Around a knot a quadratic spline is a value, a slope and a curvature: three
   rows for a token, where the basis has G.
3. The product's gradient by one factor is the product of the others, mode over
   phi_c: nothing but the modes is kept, and phi is computed again.

Division is exact as long as the mode is a normal number. A block where one is
not, as a factor is 0 or the product has left float32's range, multiplies the
others one by one.

`hold` keeps XLA from merging a computation into each of its uses, where it
would be done once for every rank.
"""

import functools

import jax
import jax.numpy as jnp

from leviathan import sharding
from leviathan.embed import digits
from leviathan.embed import modes
from leviathan.embed import splines

# Said at each product: a context is forgotten where a pass is traced later.
_einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
_hold = jax.lax.optimization_barrier


def forward(
  operands: modes.Operands, ids_T: jax.Array, count: jax.Array
) -> jax.Array:
  """See `modes.modes`."""
  blocks = _Blocks(ids_T, count)
  S, _, G, R = operands.splines_SCGR.shape
  pieces_CSGR = _pieces(operands)

  def body(i, mode_nSBR):
    u_BSC = _coordinates(operands, blocks.ids_nB[i])
    u_CSB = _hold(jnp.transpose(u_BSC, (2, 1, 0)))
    knot_CSB, offset_CSB = _hold(splines.piece(u_CSB, G))

    def step(mode_SBR, coordinate):
      return mode_SBR * _phi(*coordinate), None

    start_SBR = jnp.ones((S, blocks.size, R), mode_nSBR.dtype)
    mode_SBR, _ = jax.lax.scan(
      step, start_SBR, (pieces_CSGR, knot_CSB, offset_CSB)
    )
    return mode_nSBR.at[i].set(mode_SBR)

  shape = (*blocks.ids_nB.shape[:1], S, blocks.size, R)
  start_nSBR = jnp.zeros(shape, operands.splines_SCGR.dtype)
  return blocks.join(jax.lax.fori_loop(0, blocks.needed, body, start_nSBR))


def backward(
  operands: modes.Operands,
  ids_T: jax.Array,
  count: jax.Array,
  mode_TM: jax.Array,
  d_mode_TM: jax.Array,
) -> modes.Operands:
  """See `modes.Kernel`."""
  blocks = _Blocks(ids_T, count)
  heads = len(operands.splines_SCGR)
  mode_nSBR = blocks.split(mode_TM, heads)
  d_mode_nSBR = blocks.split(d_mode_TM, heads)
  splines_CSGR = jnp.swapaxes(operands.splines_SCGR, 0, 1)
  pieces_CSGR = _pieces(operands)

  def body(i, sums):
    u_BSC, pull = jax.vjp(
      lambda operands: _coordinates(operands, blocks.ids_nB[i]), operands
    )
    u_CSB = _hold(jnp.transpose(u_BSC, (2, 1, 0)))
    mode_SBR = mode_nSBR[i]
    smallest = jnp.finfo(mode_SBR.dtype).tiny
    is_normal = jnp.isfinite(mode_SBR) & (jnp.abs(mode_SBR) >= smallest)
    d_u_CSB, d_splines_CSGR = jax.lax.cond(
      jnp.all(is_normal),
      lambda *args: _by_division(mode_SBR, pieces_CSGR, *args),
      _one_by_one,
      splines_CSGR,
      u_CSB,
      d_mode_nSBR[i],
    )
    (d_operands,) = pull(jnp.transpose(d_u_CSB, (2, 1, 0)))
    return jax.tree.map(jnp.add, sums, (d_operands, d_splines_CSGR))

  start = jax.tree.map(jnp.zeros_like, (operands, splines_CSGR))
  d_operands, d_splines_CSGR = jax.lax.fori_loop(0, blocks.needed, body, start)
  return d_operands._replace(splines_SCGR=jnp.swapaxes(d_splines_CSGR, 0, 1))


def product(a: jax.Array, b: jax.Array, axes: str) -> jax.Array:
  """See `modes.Kernel`."""
  return _einsum(axes, a, b)


class _Blocks:
  """Tokens in blocks, the last one filled up; only those needed are visited."""

  def __init__(self, ids_T: jax.Array, count: jax.Array):
    # On a CPU a block's running product, 1 MB at the paper's sizes, fits the
    # cache; an accelerator wants more to do at once.
    limit = 512 if sharding.platform() == 'cpu' else 4096
    self.tokens = len(ids_T)
    self.size = min(self.tokens, limit)
    self.missing = -self.tokens % self.size
    self.needed = (count + self.size - 1) // self.size
    # With an id that is there already: any other might give inf.
    self.ids_nB = jnp.pad(ids_T, (0, self.missing), mode='edge').reshape(
      -1, self.size
    )

  def split(self, x_TM: jax.Array, heads: int) -> jax.Array:
    """x_TM -> x_nSBR."""
    x_TM = jnp.pad(x_TM, ((0, self.missing), (0, 0)))
    return jnp.swapaxes(
      x_TM.reshape(-1, self.size, heads, x_TM.shape[1] // heads), 1, 2
    )

  def join(self, x_nSBR: jax.Array) -> jax.Array:
    """x_nSBR -> x_TM."""
    x_nBSR = jnp.swapaxes(x_nSBR, 1, 2)
    return x_nBSR.reshape(-1, x_nBSR.shape[2] * x_nBSR.shape[3])[: self.tokens]


def _coordinates(operands: modes.Operands, ids_B: jax.Array) -> jax.Array:
  """u_BSC."""
  num_digits, base, _, _ = operands.rows_JNSC.shape
  rows = [
    jnp.take(rows_NSC, digit_B, axis=0)
    for rows_NSC, digit_B in zip(
      operands.rows_JNSC, digits.split(ids_B, base, num_digits), strict=True
    )
  ]
  a_BSC = functools.reduce(jnp.add, rows)
  return splines.coordinates(a_BSC, operands.scale_SC, operands.bias_SC)


def _pieces(operands: modes.Operands) -> tuple[jax.Array, ...]:
  """`splines.pieces`, coordinates first."""
  return _hold(splines.pieces(jnp.swapaxes(operands.splines_SCGR, 0, 1)))


def _rows(table_SGR: jax.Array, knot_SB: jax.Array) -> jax.Array:
  """Each token's row, (S, B, R)."""
  return jax.vmap(lambda table_GR, knot_B: table_GR[knot_B])(table_SGR, knot_SB)


def _phi(pieces_SGR, knot_SB: jax.Array, offset_SB: jax.Array) -> jax.Array:
  """The splines of one coordinate, phi_SBR."""
  value_SBR, slope_SBR, curvature_SBR = (
    _rows(table_SGR, knot_SB) for table_SGR in pieces_SGR
  )
  offset_SB1 = offset_SB[..., None]
  return value_SBR + offset_SB1 * (slope_SBR + offset_SB1 * curvature_SBR)


def _by_division(
  mode_SBR, pieces_CSGR, splines_CSGR, u_CSB, d_mode_SBR
) -> tuple[jax.Array, jax.Array]:
  """(d_u_CSB, d_splines_CSGR), where no mode is 0."""
  num_knots = splines_CSGR.shape[2]
  (knot_CSB, offset_CSB), (_, rate_CSB) = _hold(
    jax.jvp(
      lambda u: splines.piece(u, num_knots), (u_CSB,), (jnp.ones_like(u_CSB),)
    )
  )
  weighted_SBR = _hold(d_mode_SBR * mode_SBR)
  # A sum over R as a product with ones, which XLA makes three times faster.
  ones_R = _hold(jnp.ones(mode_SBR.shape[-1], mode_SBR.dtype))

  def step(_, coordinate):
    pieces_SGR, knot_SB, offset_SB, rate_SB, u_SB = coordinate
    d_phi_SBR = weighted_SBR / _phi(pieces_SGR, knot_SB, offset_SB)
    # The same rows again, held so that they are not kept from the first time.
    (_, *rest_SGR), knot_SB = _hold((pieces_SGR, knot_SB))
    slope_SBR, curvature_SBR = (_rows(x_SGR, knot_SB) for x_SGR in rest_SGR)
    slope_SBR += 2 * offset_SB[..., None] * curvature_SBR
    d_u_SB = rate_SB * _einsum('SBR,R->SB', d_phi_SBR * slope_SBR, ones_R)
    basis_SGB = _hold(splines.basis(u_SB, num_knots, axis=1))
    return None, (d_u_SB, _einsum('SGB,SBR->SGR', basis_SGB, d_phi_SBR))

  coordinates = (pieces_CSGR, knot_CSB, offset_CSB, rate_CSB, u_CSB)
  # Coordinates do not wait for one another: four are under way at a time.
  return jax.lax.scan(step, None, coordinates, unroll=4)[1]


def _one_by_one(splines_CSGR, u_CSB, d_mode_SBR) -> tuple[jax.Array, jax.Array]:
  """(d_u_CSB, d_splines_CSGR) whatever the factors are; a head at a time."""

  def phi(u_B, splines_GR):
    basis_BG = splines.basis(u_B, splines_GR.shape[0])
    return _einsum('BG,GR->BR', basis_BG, splines_GR)

  def head(xs):
    u_CB, splines_CGR, d_mode_BR = xs

    def up(before_BR, coordinate):
      return before_BR * phi(*coordinate), before_BR

    def down(after_BR, coordinate):
      before_BR, *arguments = coordinate
      phi_BR, pull = jax.vjp(phi, *arguments)
      # A factor of 0 decides, also beside an overflow.
      is_zero_BR = (before_BR == 0) | (after_BR == 0) | (d_mode_BR == 0)
      d_phi_BR = jnp.where(is_zero_BR, 0, d_mode_BR * before_BR * after_BR)
      return after_BR * phi_BR, pull(d_phi_BR)

    ones_BR = jnp.ones_like(d_mode_BR)
    _, before_CBR = jax.lax.scan(up, ones_BR, (u_CB, splines_CGR))
    return jax.lax.scan(
      down, ones_BR, (before_CBR, u_CB, splines_CGR), reverse=True
    )[1]

  d_u_SCB, d_splines_SCGR = jax.lax.map(
    head,
    (jnp.swapaxes(u_CSB, 0, 1), jnp.swapaxes(splines_CSGR, 0, 1), d_mode_SBR),
  )
  return jnp.swapaxes(d_u_SCB, 0, 1), jnp.swapaxes(d_splines_SCGR, 0, 1)
