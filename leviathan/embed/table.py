"""The ordinary embedding table, V x D."""

import dataclasses

import jax
import jax.numpy as jnp

from leviathan.embed import api
from leviathan.nn import initializers


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableConfig(api.EmbedderConfig):
  """The table has no sizes of its own."""

  def make(
    self, *, vocab_size: int, padded_vocab_size: int, width: int
  ) -> 'Table':
    """See the base class."""
    del vocab_size
    return Table(rows=padded_vocab_size, width=width)

  def flops(self, vocab_size: int, width: int) -> int:
    """See the base class: a lookup is none."""
    del vocab_size, width
    return 0


class Table(api.Embedder):
  """One learned row a token."""

  rows: int
  width: int

  def setup(self):
    self.table_VD = self.param(
      'table_VD',
      initializers.normal(('vocab', 'embed')),
      (self.rows, self.width),
      jnp.float32,
    )

  def __call__(self, ids_BL: jax.Array) -> jax.Array:
    """See the base class."""
    return jnp.take(self.table_VD, ids_BL, axis=0)

  def table(self) -> jax.Array:
    """See the base class."""
    return self.table_VD
