"""A narrow table and an MLP: V x E, then E -> M -> D, non-linear.

What continuity brings, without composition: a token's row is its own.
"""

import dataclasses

from flax import linen as nn
import jax

from leviathan.embed import api
from leviathan.embed import matched

# Of the budget, at most, for the table; the rest is the MLP's. An even split
# would leave rows of 3 numbers at 200,019 tokens.
TABLE_SHARE = 0.75


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlatMlpConfig(matched.MatchedConfig):
  """E is the largest whose table keeps to its share; M takes what is left."""

  def make(
    self, *, vocab_size: int, padded_vocab_size: int, width: int
  ) -> 'FlatMlp':
    """See the base class."""
    inner, hidden = self.sizes(vocab_size, width)
    return FlatMlp(
      rows=padded_vocab_size, inner=inner, hidden=hidden, width=width
    )

  def sizes(self, vocab_size: int, width: int) -> tuple[int, int]:
    """(E, M)."""
    budget = self.budget(vocab_size, width)
    inner = max(1, int(TABLE_SHARE * budget / vocab_size))
    table_and_norm = inner * (vocab_size + 1)
    hidden = max(1, round((budget - table_and_norm) / (inner + width)))
    count = table_and_norm + hidden * (inner + width)
    self.check(count, vocab_size, width)
    return inner, hidden

  def flops(self, vocab_size: int, width: int) -> int:
    """See the base class."""
    inner, hidden = self.sizes(vocab_size, width)
    return 2 * hidden * (inner + width)


class FlatMlp(api.Embedder):
  """A narrow row a token, and one MLP for all."""

  rows: int
  inner: int  # E
  hidden: int  # M
  width: int

  @nn.compact
  def __call__(self, ids_BL: jax.Array) -> jax.Array:
    """See the base class."""
    x_BLE = matched.narrow_table(self, ids_BL, self.rows, self.inner)
    return matched.hidden_layer(self, x_BLE, self.hidden, self.width)
