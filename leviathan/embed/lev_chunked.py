"""The modes of LEV by XLA alone: a block of tokens and a coordinate at a time.

1. In a block of tokens the product over coordinates is a running one, so what
   is multiplied stays in the cache, and phi never exists whole.
2. At most three functions of the basis are not 0: phi gathers three rows for a
   token, where a matrix product would take G.
3. The product's gradient by one factor is the product of the others, mode over
   phi_c: nothing but the modes is kept, and phi is computed again, by the same
   function and so to the same bits.

Division is right as long as what it divides is a normal number. A block where
it is not, as a factor is 0 or the product has left float32's range, multiplies
the others one by one.

B counts the tokens of a block here, and n the blocks. `hold` keeps XLA from
merging a computation into each of its uses, where it would be done once for
every rank.
"""

import functools

import jax
import jax.numpy as jnp

from leviathan import digits
from leviathan import sharding
from leviathan.embed import modes
from leviathan.embed import splines

_hold = jax.lax.optimization_barrier


def forward(
  operands: modes.Operands, ids_T: jax.Array, count: jax.Array
) -> jax.Array:
  """See `modes.modes`."""
  blocks = _Blocks(ids_T, count)
  S, _, G, R = operands.splines_SCGR.shape
  rows_CSGR = _rows_of_knots(operands)

  def body(i, mode_nSBR):
    u_BSC = _coordinates(blocks.ids_nB[i], *operands[:3])
    u_CSB = _hold(jnp.transpose(u_BSC, (2, 1, 0)))
    taps_CSB = _hold(splines.taps(u_CSB, G))

    def step(mode_SBR, coordinate):
      return mode_SBR * _phi(*coordinate), None

    start_SBR = jnp.ones((S, blocks.size, R), mode_nSBR.dtype)
    mode_SBR, _ = jax.lax.scan(step, start_SBR, (rows_CSGR, taps_CSB))
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
  # A mode of 1 where tokens are missing: it divides.
  mode_nSBR = blocks.split(mode_TM, heads, fill=1)
  d_mode_nSBR = blocks.split(d_mode_TM, heads, fill=0)
  splines_CSGR = jnp.swapaxes(operands.splines_SCGR, 0, 1)
  rows_CSGR = _rows_of_knots(operands)

  def body(i, sums):
    u_BSC, pull = jax.vjp(
      functools.partial(_coordinates, blocks.ids_nB[i]), *operands[:3]
    )
    u_CSB = _hold(jnp.transpose(u_BSC, (2, 1, 0)))
    d_mode_SBR = d_mode_nSBR[i]
    weighted_SBR = _hold(d_mode_SBR * mode_nSBR[i])
    divides_SBR = _is_normal(mode_nSBR[i]) & (
      _is_normal(weighted_SBR) | (d_mode_SBR == 0)
    )
    d_u_CSB, d_splines_CSGR = jax.lax.cond(
      jnp.all(divides_SBR),
      lambda *_: _by_division(rows_CSGR, u_CSB, weighted_SBR),
      _one_by_one,
      splines_CSGR,
      u_CSB,
      d_mode_SBR,
    )
    grads = *pull(jnp.transpose(d_u_CSB, (2, 1, 0))), d_splines_CSGR
    return jax.tree.map(jnp.add, sums, grads)

  start = jax.tree.map(jnp.zeros_like, (*operands[:3], splines_CSGR))
  d_rows_JNSC, d_scale_SC, d_bias_SC, d_splines_CSGR = jax.lax.fori_loop(
    0, blocks.needed, body, start
  )
  d_splines_SCGR = jnp.swapaxes(d_splines_CSGR, 0, 1)
  return modes.Operands(d_rows_JNSC, d_scale_SC, d_bias_SC, d_splines_SCGR)


def product(a: jax.Array, b: jax.Array, axes: str) -> jax.Array:
  """See `modes.Kernel`."""
  return modes.einsum(axes, a, b)


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

  def split(self, x_TM: jax.Array, heads: int, fill: float) -> jax.Array:
    """x_TM -> x_nSBR."""
    x_TM = jnp.pad(x_TM, ((0, self.missing), (0, 0)), constant_values=fill)
    x_nBSR = x_TM.reshape(-1, self.size, heads, x_TM.shape[1] // heads)
    return jnp.swapaxes(x_nBSR, 1, 2)

  def join(self, x_nSBR: jax.Array) -> jax.Array:
    """x_nSBR -> x_TM."""
    x_nBSR = jnp.swapaxes(x_nSBR, 1, 2)
    return x_nBSR.reshape(-1, x_nBSR.shape[2] * x_nBSR.shape[3])[: self.tokens]


def _is_normal(x: jax.Array) -> jax.Array:
  """Neither 0, nor so small that digits are lost, nor inf or NaN."""
  return jnp.isfinite(x) & (jnp.abs(x) >= jnp.finfo(x.dtype).tiny)


def _coordinates(ids_B, rows_JNSC, scale_SC, bias_SC) -> jax.Array:
  """u_BSC."""
  num_digits, base, _, _ = rows_JNSC.shape
  picked = [
    jnp.take(rows_NSC, digit_B, axis=0)
    for rows_NSC, digit_B in zip(
      rows_JNSC, digits.split(ids_B, base, num_digits), strict=True
    )
  ]
  a_BSC = functools.reduce(jnp.add, picked)
  return splines.coordinates(a_BSC, scale_SC, bias_SC)


def _rows_of_knots(operands: modes.Operands) -> tuple[jax.Array, ...]:
  """`splines.neighbours`, coordinates first."""
  splines_CSGR = jnp.swapaxes(operands.splines_SCGR, 0, 1)
  return _hold(splines.neighbours(splines_CSGR))


def _pick(rows_SGR, knot_SB: jax.Array) -> list[jax.Array]:
  """Each token's rows before, at and after its knot, (S, B, R)."""
  pick = jax.vmap(lambda row_GR, knot_B: row_GR[knot_B])
  return [pick(row_SGR, knot_SB) for row_SGR in rows_SGR]


def _phi(rows_SGR, taps_SB) -> jax.Array:
  """The splines of one coordinate, phi_SBR."""
  knot_SB, before_SB, after_SB = taps_SB
  weights_SB = before_SB, 1 - before_SB - after_SB, after_SB
  rows_SBR = _pick(rows_SGR, knot_SB)
  return sum(
    w_SB[..., None] * row_SBR
    for w_SB, row_SBR in zip(weights_SB, rows_SBR, strict=True)
  )  # pyright: ignore[reportReturnType]


def _by_division(rows_CSGR, u_CSB, weighted_SBR) -> tuple[jax.Array, jax.Array]:
  """(d_u_CSB, d_splines_CSGR) from d_mode * mode, where that is normal."""
  num_knots = rows_CSGR[0].shape[2]
  taps_CSB, (_, *rates_CSB) = _hold(
    jax.jvp(
      lambda u: splines.taps(u, num_knots), (u_CSB,), (jnp.ones_like(u_CSB),)
    )
  )
  # A sum over R as a product with ones, which XLA makes three times faster.
  ones_R = _hold(jnp.ones(weighted_SBR.shape[-1], weighted_SBR.dtype))

  def step(_, coordinate):
    rows_SGR, taps_SB, (d_before_SB, d_after_SB), u_SB = coordinate
    d_phi_SBR = weighted_SBR / _phi(rows_SGR, taps_SB)
    # The same rows again, held so that they are not kept from the first time.
    before_SBR, here_SBR, after_SBR = _pick(*_hold((rows_SGR, taps_SB[0])))
    slope_SBR = d_before_SB[..., None] * (before_SBR - here_SBR)
    slope_SBR += d_after_SB[..., None] * (after_SBR - here_SBR)
    d_u_SB = modes.einsum('SBR,R->SB', d_phi_SBR * slope_SBR, ones_R)
    basis_SGB = _hold(splines.basis(u_SB, num_knots, axis=1))
    return None, (d_u_SB, modes.einsum('SGB,SBR->SGR', basis_SGB, d_phi_SBR))

  coordinates = rows_CSGR, taps_CSB, rates_CSB, u_CSB
  # Coordinates do not wait for one another: four are under way at a time.
  return jax.lax.scan(step, None, coordinates, unroll=4)[1]


def _one_by_one(splines_CSGR, u_CSB, d_mode_SBR) -> tuple[jax.Array, jax.Array]:
  """(d_u_CSB, d_splines_CSGR) whatever the factors are; a head at a time."""

  def phi(u_B, splines_GR):
    basis_BG = splines.basis(u_B, splines_GR.shape[0])
    return modes.einsum('BG,GR->BR', basis_BG, splines_GR)

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
