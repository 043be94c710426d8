"""LEV: a learned continuous function of the token id in place of a table.

Batley & Saha, arXiv 2601.22040 v2. Digits of the id pick rows of shared
codebooks; their sum, the seed, is projected for each head to coordinates in
[0, 1]; on each coordinate lie R splines; their product over the coordinates is
the head's mode; modes are mapped to the model's width and summed over heads.
"""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import functools
import logging
import math
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from leviathan import digits
from leviathan import errors
from leviathan import sharding
from leviathan.embed import api
from leviathan.embed import distinct
from leviathan.embed import lev_chunked
from leviathan.embed import lev_pallas
from leviathan.embed import modes
from leviathan.embed import splines
from leviathan.nn import initializers

Params = Mapping[str, jax.Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LevConfig(api.EmbedderConfig):
  """Sizes of the layer; the letters are those of `leviathan.arrays`."""

  reads_digits = True
  num_digits: int  # J, digits of a token id
  seed_width: int  # C, coordinates of a seed
  heads: int  # S
  knots: int  # G, of each spline
  rank: int  # R, splines on a coordinate of a head
  implementation: str  # one of IMPLEMENTATIONS, or 'auto'

  def __post_init__(self):
    for name in ('num_digits', 'seed_width', 'heads', 'rank'):
      if getattr(self, name) < 1:
        raise errors.ConfigError(
          f'config.model.embedder: {name}={getattr(self, name)}; give 1 or more'
        )
    # Many digits of a small base overshoot V: 3**16 is 43 M.
    if self.num_digits > 8:
      raise errors.ConfigError(
        f'config.model.embedder: num_digits={self.num_digits}; give 8 or '
        'fewer, 3 is usual'
      )
    if self.knots < 3:
      raise errors.ConfigError(
        f'config.model.embedder: knots={self.knots}; a quadratic spline needs '
        '3 or more'
      )
    if self.implementation != 'auto':
      _check(self.implementation)

  def make(
    self, *, vocab_size: int, padded_vocab_size: int, width: int
  ) -> 'Lev':
    """See the base class; LEV has no rows, so none to pad."""
    del padded_vocab_size
    return Lev(config=self, vocab_size=vocab_size, width=width)

  def parameters(
    self, vocab_size: int, width: int
  ) -> dict[str, tuple[tuple[int, ...], Callable]]:
    """{name: (shape, initializer)} for V tokens and width D."""
    J, C, S = self.num_digits, self.seed_width, self.heads
    N, G, R, D = digits.base(vocab_size, J), self.knots, self.rank, width

    # Replicated, the output map too: the whole layer is 2 M parameters.
    return {
      'codebooks_JNC': ((J, N, C), initializers.normal((None,) * 3)),
      'seed_SCC': ((S, C, C), initializers.normal((None,) * 3)),
      'scale_SC': ((S, C), initializers.ones((None,) * 2)),
      'bias_SC': ((S, C), initializers.zeros((None,) * 2)),
      'splines_SCGR': ((S, C, G, R), initializers.near_one((None,) * 4)),
      'out_SRD': (
        (S, R, D),
        initializers.normal((None,) * 3, initializers.STD / S**0.5),
      ),
    }

  def count(self, vocab_size: int, width: int) -> int:
    """How many parameters the layer has for V tokens and width D."""
    shapes = [s for s, _ in self.parameters(vocab_size, width).values()]
    return sum(map(math.prod, shapes))

  def flops(self, vocab_size: int, width: int) -> int:
    """See the base class; the plain equations, but for knots of weight 0."""
    del vocab_size
    S, C, R = self.heads, self.seed_width, self.rank
    coordinates = 2 * S * C * C
    phi = 2 * 3 * S * C * R  # At most three functions of the basis are not 0.
    product = S * C * R
    return coordinates + phi + product + 2 * S * R * width

  def curves(self, params: Params) -> tuple[np.ndarray, np.ndarray]:
    """See the base class: the splines of each head, C * R of them."""
    u_P = np.linspace(0, 1, 8 * self.knots + 1, dtype=np.float32)
    basis_PG = splines.basis(jnp.asarray(u_P), self.knots)
    phi_SCRP = jnp.einsum('PG,SCGR->SCRP', basis_PG, params['splines_SCGR'])
    return u_P, np.asarray(phi_SCRP).reshape(self.heads, -1, len(u_P))


class Lev(api.Embedder):
  """The layer as a Linen module; the parameters are named as in lev_embed."""

  config: LevConfig
  vocab_size: int
  width: int

  @nn.compact
  def __call__(self, ids_BL: jax.Array) -> jax.Array:
    """See the base class."""
    params = {
      name: self.param(name, init, shape, jnp.float32)
      for name, (shape, init) in self.config.parameters(
        self.vocab_size, self.width
      ).items()
    }

    def embed(params, ids_BL):
      x_TD = lev_embed(params, ids_BL.reshape(-1), self.config.implementation)
      return x_TD.reshape(*ids_BL.shape, self.width)

    return sharding.by_rows(embed, params, ids_BL)


def lev_embed(
  params: Params, ids_T: jax.Array, implementation: str = 'auto'
) -> jax.Array:
  """LEV as a pure function (arXiv 2601.22040 v2).

  Args:
    params: codebooks_JNC, seed_SCC, scale_SC, bias_SC, splines_SCGR, out_SRD.
    ids_T: integer ids in [0, V). What an id of N**J or more gives is not
      defined: data, prompts and configs are checked where they enter.
    implementation: 'reference', the equations as they stand; 'chunked', for
      XLA; 'pallas', a TPU kernel, interpreted elsewhere and so very slow; or
      'auto' for the fastest on the mesh in force.

  Returns:
    x_TD, in the parameters' type; computed in float32 if that is narrower.

  Raises:
    ConfigError: `implementation` is unknown, or cannot take such parameters.
  """
  dtype = jnp.result_type(*params.values())
  wide = jnp.promote_types(dtype, jnp.float32)
  params = {name: jnp.asarray(x, wide) for name, x in params.items()}
  if implementation == 'auto':
    operands = jax.eval_shape(modes.operands, params)
    refused = lev_pallas.refusal(operands) is not None
    implementation = _fastest(sharding.platform(), refused)
  _check(implementation)
  return IMPLEMENTATIONS[implementation](params, ids_T).astype(dtype)


def _reference(params: Params, ids_T: jax.Array) -> jax.Array:
  """The plain form: one token and one head at a time, as the equations read."""
  num_knots = params['splines_SCGR'].shape[2]

  def head(z_C, seed_CC, scale_C, bias_C, splines_CGR, out_RD):
    u_C = splines.coordinates(z_C @ seed_CC, scale_C, bias_C)
    basis_CG = splines.basis(u_C, num_knots)
    phi_CR = jnp.einsum('CG,CGR->CR', basis_CG, splines_CGR)
    mode_R = jnp.prod(phi_CR, axis=0)
    return mode_R @ out_RD

  def token(id_):
    z_C = digits.seed(params['codebooks_JNC'], id_)
    heads = [
      params[name]
      for name in ('seed_SCC', 'scale_SC', 'bias_SC', 'splines_SCGR', 'out_SRD')
    ]
    return jax.vmap(head, in_axes=(None, 0, 0, 0, 0, 0))(z_C, *heads).sum(0)

  with jax.default_matmul_precision('highest'):
    return jax.vmap(token)(ids_T)


def _on_distinct_ids(kernel: modes.Kernel) -> Callable:
  """LEV by a kernel, which sees each distinct id of the batch once."""

  def embed(params: Params, ids_T: jax.Array) -> jax.Array:
    num_digits, base, _ = params['codebooks_JNC'].shape
    width = params['out_SRD'].shape[-1]
    if not ids_T.size:
      return jnp.zeros((0, width), params['out_SRD'].dtype)
    found = distinct.find(ids_T, base**num_digits)
    # `custom_vjp` has no type of its own for what it returns.
    mode_TM: Any = modes.modes(
      kernel, modes.operands(params), found.ids_T, found.count
    )
    mode_TM = jnp.take(mode_TM, found.inverse_T, axis=0)
    x_TD: Any = modes.project(
      kernel, mode_TM, params['out_SRD'].reshape(-1, width)
    )
    return x_TD

  return embed


IMPLEMENTATIONS = {
  'reference': _reference,
  'chunked': _on_distinct_ids(lev_chunked),
  'pallas': _on_distinct_ids(lev_pallas),
}


def _check(implementation: str) -> None:
  """Refuses a name that is not there."""
  if implementation not in IMPLEMENTATIONS:
    raise errors.ConfigError(
      f'config.model.embedder.implementation={implementation!r} is unknown; '
      f'choose auto or one of {", ".join(IMPLEMENTATIONS)}'
    )


@functools.cache
def _fastest(platform: str, kernel_refused: bool) -> str:
  """What 'auto' means on a platform; said once."""
  name = 'pallas' if platform == 'tpu' and not kernel_refused else 'chunked'
  logging.getLogger(__name__).info('LEV runs as %r on %s', name, platform)
  return name
