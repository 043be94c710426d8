"""LEV's digits and codebooks, then an MLP in place of its splines.

What composition brings, without separable splines.
"""

import dataclasses

from flax import linen as nn
import jax
import jax.numpy as jnp

from leviathan import digits
from leviathan.embed import api
from leviathan.embed import matched
from leviathan.nn import initializers


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactorizedMlpConfig(matched.MatchedConfig):
  """Digits and seed width are LEV's; M takes what is left."""

  reads_digits = True

  def make(
    self, *, vocab_size: int, padded_vocab_size: int, width: int
  ) -> 'FactorizedMlp':
    """See the base class; there are no rows to pad."""
    del padded_vocab_size
    num_digits = self.matched_to.num_digits
    return FactorizedMlp(
      num_digits=num_digits,
      base=digits.base(vocab_size, num_digits),
      inner=self.matched_to.seed_width,
      hidden=self.hidden(vocab_size, width),
      width=width,
    )

  def hidden(self, vocab_size: int, width: int) -> int:
    """M."""
    num_digits, inner = self.matched_to.num_digits, self.matched_to.seed_width
    base = digits.base(vocab_size, num_digits)
    budget = self.budget(vocab_size, width)
    codebooks_and_norm = inner * (num_digits * base + 1)
    hidden = max(1, round((budget - codebooks_and_norm) / (inner + width)))
    count = codebooks_and_norm + hidden * (inner + width)
    self.check(count, vocab_size, width)
    return hidden

  def flops(self, vocab_size: int, width: int) -> int:
    """See the base class."""
    inner = self.matched_to.seed_width
    return 2 * self.hidden(vocab_size, width) * (inner + width)


class FactorizedMlp(api.Embedder):
  """A sum of one codebook row a digit, and one MLP for all."""

  num_digits: int  # J
  base: int  # N
  inner: int  # C
  hidden: int  # M
  width: int

  @nn.compact
  def __call__(self, ids_BL: jax.Array) -> jax.Array:
    """See the base class."""
    codebooks_JNC = self.param(
      'codebooks_JNC',
      initializers.normal((None,) * 3),
      (self.num_digits, self.base, self.inner),
      jnp.float32,
    )
    z_BLC = digits.seed(codebooks_JNC, ids_BL)
    return matched.hidden_layer(self, z_BLC, self.hidden, self.width)
