"""Rivals of LEV with as many input parameters, and how they are matched.

The inner sizes follow from (V, D) alone, so that a changed vocabulary or width
stays matched. Both MLPs have one hidden layer, SiLU as in the backbone, and no
biases: the least depth that is non-linear, and the whole budget goes to width.
An RMSNorm stands before the hidden layer. Without it the inputs, which start at
0.02, would leave SiLU in its linear part, and the arm would start out as a
linear one.
"""

import dataclasses

import jax
import jax.numpy as jnp

from leviathan import errors
from leviathan.embed import api
from leviathan.embed import lev
from leviathan.nn import initializers
from leviathan.nn import norms

SILU_MEAN_SQUARE = 0.356  # Of SiLU(x), x from N(0, 1).
TOLERANCE = 0.05  # Of LEV's parameters; the comparison's own rule.


@dataclasses.dataclass(frozen=True, kw_only=True)
class MatchedConfig(api.EmbedderConfig):
  """Base of the rivals' configs: all they have is the LEV they are held to."""

  matched_to: lev.LevConfig  # whose parameters it comes to within 5 %

  def __post_init__(self):
    if self.matched_to.name != 'lev':
      raise errors.ConfigError(
        f'config.model.embedder.matched_to.name={self.matched_to.name!r}; give '
        "'lev'"
      )

  def budget(self, vocab_size: int, width: int) -> int:
    """Parameters of the LEV at this V and D."""
    return self.matched_to.count(vocab_size, width)

  def check(self, count: int, vocab_size: int, width: int) -> None:
    """Raises ConfigError when `count` parameters are not LEV's to 5 %."""
    ratio = count / self.budget(vocab_size, width)
    if abs(ratio - 1) > TOLERANCE:
      raise errors.ConfigError(
        f'config.model.embedder.name={self.name!r} has {ratio:.3f} times '
        f"LEV's parameters at vocab_size={vocab_size}, width={width}, not "
        f'within {TOLERANCE:.0%}; change config.model.embedder.matched_to, or '
        'the sizes'
      )


def narrow_table(
  module: api.Embedder, ids_BL: jax.Array, rows: int, inner: int
) -> jax.Array:
  """x_BLE, float32, from a table V x E.

  Args:
    module: whose parameter `table_VE` it is; called within its `nn.compact`.
    ids_BL: integer ids in [0, rows).
    rows: V, padded for the mesh.
    inner: E.
  """
  table_VE = module.param(
    'table_VE', initializers.normal(('vocab', None)), (rows, inner), jnp.float32
  )
  return jnp.take(table_VE, ids_BL, axis=0)


def hidden_layer(
  module: api.Embedder, x_BLC: jax.Array, hidden: int, width: int
) -> jax.Array:
  """RMSNorm, then x_BLC -> SiLU(x_BLM) -> x_BLD.

  Args:
    module: whose parameters `norm`, `hidden_CM` and `out_MD` these are; called
      within its `nn.compact`.
    x_BLC: float32.
    hidden: M.
    width: D.
  """
  inner = x_BLC.shape[-1]
  x_BLC = norms.RMSNorm(jnp.dtype('float32'), name='norm')(x_BLC)
  hidden_CM = module.param(
    'hidden_CM',
    # Normed inputs have a mean square of 1; so have the hidden units' inputs.
    initializers.normal((None, None), inner**-0.5),
    (inner, hidden),
    jnp.float32,
  )
  out_MD = module.param(
    'out_MD',
    # Embeddings start at a table's 0.02, whatever M is.
    initializers.normal(
      (None, None), initializers.STD * (SILU_MEAN_SQUARE * hidden) ** -0.5
    ),
    (hidden, width),
    jnp.float32,
  )
  return jax.nn.silu(x_BLC @ hidden_CM) @ out_MD
