"""The output head: x_BLD to logits over the vocabulary, tied or untied.

The vocabulary is padded to a multiple of 128 rows, the same on every mesh, so
that a checkpoint fits any of them. Padded logits are set to the lowest finite
number: they take no probability, so no gradient, and are never sampled.
"""

import dataclasses

from flax import linen as nn
import jax
import jax.numpy as jnp

from leviathan import losses
from leviathan.embed import api
from leviathan.nn import initializers

ROW_MULTIPLE = 128


def padded_rows(vocab_size: int) -> int:
  """V rounded up to what meshes divide and matrix units like."""
  return -(-vocab_size // ROW_MULTIPLE) * ROW_MULTIPLE


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadConfig:
  """Base of the heads' configs; `name` is the key in `HEADS`."""

  name: str

  def make(self, *, vocab_size: int, dtype: jnp.dtype) -> 'Head':
    """The module for V tokens."""
    raise NotImplementedError


@dataclasses.dataclass(frozen=True, kw_only=True)
class TiedConfig(HeadConfig):
  """The embedder's table serves as the head."""

  def make(self, *, vocab_size: int, dtype: jnp.dtype) -> 'Head':
    """See the base class."""
    return TiedHead(vocab_size=vocab_size, dtype=dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UntiedConfig(HeadConfig):
  """The head has a matrix of its own."""

  def make(self, *, vocab_size: int, dtype: jnp.dtype) -> 'Head':
    """See the base class."""
    return UntiedHead(vocab_size=vocab_size, dtype=dtype)


class Head(nn.Module):
  """Base of the heads."""

  vocab_size: int
  dtype: jnp.dtype

  def weight(self, embedder: api.Embedder, width: int) -> jax.Array:
    """The matrix w_VD, in float32, with padded rows."""
    raise NotImplementedError

  def logits(self, x_BLD: jax.Array, w_VD: jax.Array) -> jax.Array:
    """x_BLD and the matrix -> float32 logits_BLV over the padded rows."""
    return losses.logits(x_BLD, w_VD.astype(self.dtype), self.vocab_size)

  def __call__(self, x_BLD: jax.Array, embedder: api.Embedder) -> jax.Array:
    """x_BLD -> float32 logits_BLV over the padded rows."""
    return self.logits(x_BLD, self.weight(embedder, x_BLD.shape[-1]))


class TiedHead(Head):
  """logits = x @ table.T."""

  def weight(self, embedder: api.Embedder, width: int) -> jax.Array:
    """See the base class."""
    del width
    return embedder.table()


class UntiedHead(Head):
  """logits = x @ out.T, with `out_VD` of its own."""

  @nn.compact
  def weight(self, embedder: api.Embedder, width: int) -> jax.Array:
    """See the base class."""
    del embedder
    return self.param(
      'out_VD',
      initializers.normal(('vocab', 'embed')),
      (padded_rows(self.vocab_size), width),
      jnp.float32,
    )


HEADS = {
  'tied': TiedConfig,
  'untied': UntiedConfig,
}
