"""ALBERT's factorized table (arXiv 1909.11942): V x E, then E x D, linear."""

import dataclasses

from flax import linen as nn
import jax
import jax.numpy as jnp

from leviathan.embed import api
from leviathan.embed import matched
from leviathan.nn import initializers


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlbertConfig(matched.MatchedConfig):
  """E is chosen so that E * (V + D) comes nearest to LEV's parameters."""

  def make(
    self, *, vocab_size: int, padded_vocab_size: int, width: int
  ) -> 'Albert':
    """See the base class."""
    inner = self.inner(vocab_size, width)
    return Albert(rows=padded_vocab_size, inner=inner, width=width)

  def inner(self, vocab_size: int, width: int) -> int:
    """E."""
    rows = vocab_size + width
    inner = max(1, round(self.budget(vocab_size, width) / rows))
    self.check(inner * rows, vocab_size, width)
    return inner

  def flops(self, vocab_size: int, width: int) -> int:
    """See the base class."""
    return 2 * self.inner(vocab_size, width) * width


class Albert(api.Embedder):
  """A narrow row a token, and one matrix for all."""

  rows: int
  inner: int  # E
  width: int

  @nn.compact
  def __call__(self, ids_BL: jax.Array) -> jax.Array:
    """See the base class."""
    x_BLE = matched.narrow_table(self, ids_BL, self.rows, self.inner)
    out_ED = self.param(
      'out_ED',
      # A table's scale for the product: 0.02 in, 0.02 out.
      initializers.normal((None, None), self.inner**-0.5),
      (self.inner, self.width),
      jnp.float32,
    )
    return x_BLE @ out_ED
