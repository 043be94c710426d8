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
  def __call__(self, x_BLD: jax.Array, positions_L: jax.Array) -> jax.Array:
    """x_BLD -> x_BLD; position i sees positions 0..i only."""
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

    q_BLHK = rope.rotate(project('query_DHK'), positions_L)
    k_BLHK = rope.rotate(project('key_DHK'), positions_L)
    v_BLHK = project('value_DHK')
    y_BLHK = jax.nn.dot_product_attention(
      q_BLHK, k_BLHK, v_BLHK, is_causal=True
    )
    out_HKD = self.param(
      'out_HKD',
      initializers.residual(('heads', None, 'embed'), self.layers),
      (heads, self.head_width, width),
      jnp.float32,
    ).astype(self.dtype)
    return jnp.einsum('BLHK,HKD->BLD', y_BLHK, out_HKD)
