"""RMSNorm (Zhang & Sennrich, arXiv 1910.07467), as in Llama."""

from flax import linen as nn
import jax
import jax.numpy as jnp

from leviathan.nn import initializers

EPSILON = 1e-5


class RMSNorm(nn.Module):
  """x / rms(x) * scale over the last axis, computed in float32."""

  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x_BLD: jax.Array) -> jax.Array:
    """Shape in, shape out; the result has the compute type."""
    scale_D = self.param(
      'scale_D', initializers.ones(('norm',)), x_BLD.shape[-1:], jnp.float32
    )
    x_BLD = x_BLD.astype(jnp.float32)
    variance_BL1 = jnp.mean(jnp.square(x_BLD), axis=-1, keepdims=True)
    x_BLD = x_BLD * jax.lax.rsqrt(variance_BL1 + EPSILON)
    return (x_BLD * scale_D).astype(self.dtype)
