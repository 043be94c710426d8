"""The modes of LEV as a TPU kernel: phi never leaves the chip's own memory.

The grid is heads x blocks of tokens; tokens lie on lanes. A block's digits pick
their rows by a product with zeros and ones, so coordinates too are made in the
kernel and nothing of size T x S x C is ever written out.

Backward, the running product before each coordinate is kept on the chip on the
way up; on the way down it meets the product of what comes after, so nothing is
divided. Gradients of the operands are summed over the blocks in place.

On other platforms the kernel is interpreted: slowly, to be tested. A GPU has no
place for it: its blocks run side by side, so nothing can be summed over them in
place, and share no memory that holds a block's running products (8 MB at the
paper's sizes).
"""

import functools

import jax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
import jax.numpy as jnp

from leviathan import digits
from leviathan import errors
from leviathan import sharding
from leviathan.embed import modes
from leviathan.embed import splines

LANES = 128
BLOCK = 256  # tokens
TILE = 1024  # of a matrix, along each axis
VMEM_BYTES = 64 * 2**20
MAX_ROWS = 2048  # of all codebooks: a product picks from them

_dot = functools.partial(
  jax.lax.dot_general,
  precision=jax.lax.Precision.HIGHEST,
  preferred_element_type=jnp.float32,
)


def refusal(operands: modes.Operands) -> str | None:
  """Why the kernel does not take these operands; None if it does."""
  J, N, _, C = operands.rows_JNSC.shape
  _, _, G, R = operands.splines_SCGR.shape
  if J * N > MAX_ROWS:
    return f'num_digits x base = {J * N} codebook rows, of at most {MAX_ROWS}'
  # As laid out on the chip. A head's operands and their gradients are held
  # twice, one being moved while the other is worked on.
  factors = C * _up(R, 8) * BLOCK
  head = C * (_up(G, 8) * _up(R, LANES) + _up(J * N, LANES) + 2 * LANES)
  needed = 4 * (factors + 4 * head)
  if needed > VMEM_BYTES:
    return (
      f'seed_width={C}, knots={G} and rank={R} need {needed / 2**20:.0f} MiB '
      f'on the chip, of at most {VMEM_BYTES // 2**20}'
    )
  if jnp.result_type(*operands) != jnp.float32:
    return f'parameters in {jnp.result_type(*operands)}, not float32'
  return None


def _up(length: int, multiple: int) -> int:
  return -(-length // multiple) * multiple


def forward(
  operands: modes.Operands, ids_T: jax.Array, count: jax.Array
) -> jax.Array:
  """See `modes.modes`."""
  inputs = _Inputs(operands, ids_T)
  S, C, _, R = operands.splines_SCGR.shape
  (mode_SRT,) = _call(
    _forward_kernel,
    count,
    inputs.arrays,
    inputs.specs,
    products=1,
    out_shape=[jax.ShapeDtypeStruct((S, R, inputs.tokens), jnp.float32)],
    out_specs=[inputs.block_of_tokens(R)],
    scratch_shapes=[pltpu.VMEM((C, BLOCK), jnp.float32)],
  )
  return mode_SRT.reshape(S * R, -1).T[: len(ids_T)]


def backward(
  operands: modes.Operands,
  ids_T: jax.Array,
  count: jax.Array,
  mode_TM: jax.Array,
  d_mode_TM: jax.Array,
) -> modes.Operands:
  """See `modes.Kernel`."""
  del mode_TM
  inputs = _Inputs(operands, ids_T)
  S, C, _, R = operands.splines_SCGR.shape
  missing = inputs.tokens - len(ids_T)
  d_mode_TM = jnp.pad(d_mode_TM, ((0, missing), (0, 0)))
  d_mode_SRT = d_mode_TM.T.reshape(S, R, -1)
  d_rows_SCK, d_scale_SC1, d_bias_SC1, d_splines_SCGR = _call(
    _backward_kernel,
    count,
    (*inputs.arrays, d_mode_SRT),
    (*inputs.specs, inputs.block_of_tokens(R)),
    products=4,
    out_shape=[
      jax.ShapeDtypeStruct(x.shape, jnp.float32) for x in inputs.operands
    ],
    out_specs=inputs.operand_specs,
    scratch_shapes=[
      pltpu.VMEM((C, BLOCK), jnp.float32),
      pltpu.VMEM((C, R, BLOCK), jnp.float32),
      pltpu.VMEM((C, BLOCK), jnp.float32),
    ],
  )
  J, N, _, _ = operands.rows_JNSC.shape
  d_rows_SCJN = d_rows_SCK[..., : J * N].reshape(S, C, J, N)
  return modes.Operands(
    rows_JNSC=jnp.transpose(d_rows_SCJN, (2, 3, 0, 1)),
    scale_SC=d_scale_SC1[..., 0],
    bias_SC=d_bias_SC1[..., 0],
    splines_SCGR=d_splines_SCGR,
  )


def product(a: jax.Array, b: jax.Array, axes: str) -> jax.Array:
  """See `modes.Kernel`.

  XLA computes the same, but takes a quarter of a minute to compile each of
  LEV's three float32 products for a TPU.
  """
  inputs, (rows, columns) = axes.split('->')
  a_axes, b_axes = inputs.split(',')
  (depth,) = set(a_axes) & set(b_axes)
  length = dict(zip(a_axes + b_axes, a.shape + b.shape, strict=True))
  tile = {axis: _tile(length[axis]) for axis in length}
  count = {axis: -(-length[axis] // tile[axis]) for axis in length}

  def fill(x, x_axes):
    return jnp.pad(x, [(0, -length[axis] % tile[axis]) for axis in x_axes])

  def spec(x_axes):
    places = [(rows, columns, depth).index(axis) for axis in x_axes]
    return pl.BlockSpec(
      tuple(tile[axis] for axis in x_axes),
      lambda *tiles: tuple(tiles[place] for place in places),
    )

  def kernel(a, b, out):
    @pl.when(pl.program_id(2) == 0)
    def _():
      out[...] = jnp.zeros_like(out)

    contracted = (a_axes.index(depth),), (b_axes.index(depth),)
    out[...] += _dot(a[...], b[...], (contracted, ((), ())))

  size = length[rows] * length[columns]
  out = pl.pallas_call(
    kernel,
    out_shape=jax.ShapeDtypeStruct(
      (count[rows] * tile[rows], count[columns] * tile[columns]), jnp.float32
    ),
    grid=(count[rows], count[columns], count[depth]),
    in_specs=[spec(a_axes), spec(b_axes)],
    out_specs=spec(rows + columns),
    compiler_params=_compiler_params('parallel', 'parallel', 'arbitrary'),
    cost_estimate=pl.CostEstimate(
      flops=2 * size * length[depth],
      transcendentals=0,
      bytes_accessed=4
      * (a.size * count[columns] + b.size * count[rows] + size),
    ),
    interpret=sharding.platform() != 'tpu',
    name='lev_product',
  )(fill(a, a_axes), fill(b, b_axes))
  return out[: length[rows], : length[columns]]


def _tile(length: int) -> int:
  """How much of an axis a product takes at a time."""
  if length <= LANES:
    return length
  # The largest that divides the axis; if none does, the axis is filled up.
  sizes = range(TILE, 0, -LANES)
  return next((size for size in sizes if length % size == 0), TILE)


def _compiler_params(*semantics):
  return pltpu.CompilerParams(
    dimension_semantics=semantics, vmem_limit_bytes=VMEM_BYTES
  )


class _Inputs:
  """What both kernels read: arrays, and how they are cut into blocks.

  Attributes:
    tokens: T, filled up to whole blocks.
    operands: (rows_SCK, scale_SC1, bias_SC1, splines_SCGR), K counting the rows
      of all codebooks, filled up to whole lanes.
    operand_specs: a block is all that one head has.
    arrays: the digits' places among the rows, position_JT, and the operands.
    specs: of the arrays.
  """

  def __init__(self, operands: modes.Operands, ids_T: jax.Array):
    J, N, S, C = operands.rows_JNSC.shape
    why = refusal(operands)
    if why:
      raise errors.ConfigError(
        f"config.model.embedder.implementation='pallas' cannot take {why}; "
        "choose 'chunked' or 'auto'"
      )
    missing = -len(ids_T) % BLOCK
    ids_T = jnp.pad(ids_T, (0, missing), mode='edge')
    self.tokens = len(ids_T)
    position_JT = jnp.stack(
      [digit_T + j * N for j, digit_T in enumerate(digits.split(ids_T, N, J))]
    )
    rows_SCK = jnp.transpose(operands.rows_JNSC, (2, 3, 0, 1))
    rows_SCK = rows_SCK.reshape(S, C, J * N)
    rows_SCK = jnp.pad(rows_SCK, ((0, 0), (0, 0), (0, -(J * N) % LANES)))
    self.operands = (
      rows_SCK,
      operands.scale_SC[..., None],
      operands.bias_SC[..., None],
      operands.splines_SCGR,
    )
    self.operand_specs = [
      pl.BlockSpec(
        (1, *x.shape[1:]),
        lambda s, i, count, rank=x.ndim: (s,) + (0,) * (rank - 1),
      )
      for x in self.operands
    ]
    position_spec = pl.BlockSpec((J, BLOCK), lambda s, i, count: (0, i))
    self.arrays = position_JT, *self.operands
    self.specs = position_spec, *self.operand_specs

  def block_of_tokens(self, rows: int) -> pl.BlockSpec:
    """Of an array of shape (S, rows, T)."""
    return pl.BlockSpec((1, rows, BLOCK), lambda s, i, count: (s, 0, i))


def _call(
  kernel,
  count,
  arrays,
  specs,
  *,
  products,
  out_shape,
  out_specs,
  scratch_shapes,
):
  """Runs a kernel over heads x blocks of tokens.

  `products` is how many it makes of G x R for each token and coordinate.
  """
  position_JT, _, _, _, splines_SCGR, *_ = arrays
  tokens = position_JT.shape[1]
  S, C, G, R = splines_SCGR.shape
  cost = pl.CostEstimate(
    flops=products * 2 * S * C * G * R * tokens,
    transcendentals=S * C * tokens,
    bytes_accessed=4 * sum(x.size for x in (*arrays, *out_shape)),
  )
  return pl.pallas_call(
    kernel,
    out_shape=out_shape,
    grid_spec=pltpu.PrefetchScalarGridSpec(
      num_scalar_prefetch=1,
      grid=(S, tokens // BLOCK),
      in_specs=specs,
      out_specs=out_specs,
      scratch_shapes=scratch_shapes,
    ),
    compiler_params=_compiler_params('parallel', 'arbitrary'),
    cost_estimate=cost,
    interpret=sharding.platform() != 'tpu',
    name=kernel.__name__.strip('_'),
  )(jnp.reshape(count, 1), *arrays)


def _coordinates(position_JT, rows_CK, scale_C1, bias_C1) -> jax.Array:
  """u_CT of one head."""
  J, T = position_JT.shape
  rows_KT = jax.lax.broadcasted_iota(jnp.int32, (rows_CK.shape[1], T), 0)
  # Each digit has rows of its own, so its one never meets another's.
  picked_KT = functools.reduce(
    jnp.add,
    [(rows_KT == position_JT[j : j + 1]).astype(jnp.float32) for j in range(J)],
  )
  a_CT = _dot(rows_CK, picked_KT, (((1,), (0,)), ((), ())))
  return splines.coordinates(a_CT, scale_C1, bias_C1, axis=0)


def _basis(u_1T, num_knots: int) -> jax.Array:
  """basis_GT of one coordinate."""
  return splines.basis(u_1T, num_knots, axis=0)[:, 0]


def _phi(basis_GT, splines_GR) -> jax.Array:
  """phi_RT."""
  return _dot(splines_GR, basis_GT, (((0,), (0,)), ((), ())))


def _forward_kernel(
  count, position, rows, scale, bias, splines_ref, mode, u_scratch
):
  C, G, R = splines_ref.shape[1:]

  @pl.when(pl.program_id(1) * BLOCK < count[0])
  def _():
    u_scratch[...] = _coordinates(position[...], rows[0], scale[0], bias[0])

    def step(c, mode_RT):
      basis_GT = _basis(u_scratch[pl.ds(c, 1)], G)
      return mode_RT * _phi(basis_GT, splines_ref[0, c])

    mode[0] = jax.lax.fori_loop(0, C, step, jnp.ones((R, BLOCK), jnp.float32))


def _backward_kernel(
  count,
  position,
  rows,
  scale,
  bias,
  splines_ref,
  d_mode,
  d_rows,
  d_scale,
  d_bias,
  d_splines,
  u_scratch,
  before_scratch,
  d_u_scratch,
):
  C, G, R = splines_ref.shape[1:]

  @pl.when(pl.program_id(1) == 0)
  def _():
    for sum_ in (d_rows, d_scale, d_bias, d_splines):
      sum_[...] = jnp.zeros_like(sum_)

  @pl.when(pl.program_id(1) * BLOCK < count[0])
  def _():
    position_JT = position[...]
    u_CT, pull = jax.vjp(
      lambda *args: _coordinates(position_JT, *args), rows[0], scale[0], bias[0]
    )
    u_scratch[...] = u_CT

    def up(c, before_RT):
      before_scratch[c] = before_RT
      basis_GT = _basis(u_scratch[pl.ds(c, 1)], G)
      return before_RT * _phi(basis_GT, splines_ref[0, c])

    def down(k, after_RT):
      c = C - 1 - k
      basis_GT, basis_pull = jax.vjp(
        functools.partial(_basis, num_knots=G), u_scratch[pl.ds(c, 1)]
      )
      splines_GR = splines_ref[0, c]
      before_RT, d_mode_RT = before_scratch[c], d_mode[0]
      # A factor of 0 decides, also beside an overflow.
      is_zero_RT = (before_RT == 0) | (after_RT == 0) | (d_mode_RT == 0)
      d_phi_RT = jnp.where(is_zero_RT, 0, d_mode_RT * before_RT * after_RT)
      d_splines[0, c] += _dot(basis_GT, d_phi_RT, (((1,), (1,)), ((), ())))
      d_basis_GT = _dot(splines_GR, d_phi_RT, (((1,), (0,)), ((), ())))
      (d_u_scratch[pl.ds(c, 1)],) = basis_pull(d_basis_GT)
      return after_RT * _phi(basis_GT, splines_GR)

    ones_RT = jnp.ones((R, BLOCK), jnp.float32)
    jax.lax.fori_loop(0, C, up, ones_RT)
    jax.lax.fori_loop(0, C, down, ones_RT)
    for sum_, value in zip(
      (d_rows, d_scale, d_bias), pull(d_u_scratch[...]), strict=True
    ):
      sum_[0] += value
