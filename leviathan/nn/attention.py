"""Causal multi-head self-attention with rotary positions, no biases."""

from flax import linen as nn
import jax
import jax.numpy as jnp

from leviathan.nn import initializers
from leviathan.nn import rope


class Attention(nn.Module):
  """Full multi-head attention; heads of width `head_width` fill the model's."""

  head_width: int
  layers: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(
    self,
    x_BLD: jax.Array,
    positions: jax.Array,
    segments_BL: jax.Array | None = None,
  ) -> jax.Array:
    """x_BLD -> x_BLD; input i sees inputs 0..i, those of its segment if given.

    Args:
      x_BLD: the stream.
      positions: int32, (L,) or (B, L).
      segments_BL: int32, or None where a row is one segment.
    """
    width = x_BLD.shape[-1]
    heads = width // self.head_width

    def project(name):
      w_DHK = self.param(
        name,
        initializers.normal(('embed', 'heads', None)),
        (width, heads, self.head_width),
        jnp.float32,
      ).astype(self.dtype)
      return jnp.einsum('BLD,DHK->BLHK', x_BLD, w_DHK)

    q_BLHK = rope.rotate(project('query_DHK'), positions)
    k_BLHK = rope.rotate(project('key_DHK'), positions)
    v_BLHK = project('value_DHK')
    y_BLHK = jax.nn.dot_product_attention(
      q_BLHK, k_BLHK, v_BLHK, mask=_within(segments_BL), is_causal=True
    )
    out_HKD = self.param(
      'out_HKD',
      initializers.residual(('heads', None, 'embed'), self.layers),
      (heads, self.head_width, width),
      jnp.float32,
    ).astype(self.dtype)
    return jnp.einsum('BLHK,HKD->BLD', y_BLHK, out_HKD)


def _within(segments_BL: jax.Array | None) -> jax.Array | None:
  """mask_B1LL, true where query and key are of one segment.

  `is_causal` is and-ed to it. It takes B L**2 bytes, 1 / 4H of the float32
  scores that are held in any case, and saves no work: the scores of the other
  segments are computed, then masked.
  """
  if segments_BL is None:
    return None
  return (segments_BL[:, :, None] == segments_BL[:, None, :])[:, None]
