"""The output head: x_BLD to logits over the vocabulary, tied or untied.

The vocabulary is padded to a multiple of 128 rows, the same on every mesh, so
that a checkpoint fits any of them. Padded logits are set to the lowest finite
number: they take no probability, so no gradient, and are never sampled.
"""

import dataclasses

from flax import linen as nn
import jax
import jax.numpy as jnp

from leviathan import sharding
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
    """The matrix w_VD, with padded rows."""
    raise NotImplementedError

  @nn.compact
  def __call__(self, x_BLD: jax.Array, embedder: api.Embedder) -> jax.Array:
    """x_BLD -> float32 logits_BLV over the padded rows."""
    w_VD = self.weight(embedder, x_BLD.shape[-1]).astype(self.dtype)
    logits_BLV = jnp.einsum(
      'BLD,VD->BLV', x_BLD, w_VD, preferred_element_type=jnp.float32
    )
    logits_BLV = sharding.constrain(logits_BLV, 'batch', None, 'vocab')
    if w_VD.shape[0] == self.vocab_size:
      return logits_BLV  # A fifth of a step's time on a CPU, at V = 16,384.
    is_token_V = jnp.arange(w_VD.shape[0]) < self.vocab_size
    return jnp.where(is_token_V, logits_BLV, jnp.finfo(jnp.float32).min)


class TiedHead(Head):
  """logits = x @ table.T."""

  def weight(self, embedder: api.Embedder, width: int) -> jax.Array:
    """See the base class."""
    del width
    return embedder.table()


class UntiedHead(Head):
  """logits = x @ out.T, with `out_VD` of its own."""

  @nn.nowrap
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
