"""SwiGLU (Shazeer, arXiv 2002.05202), no biases."""

from flax import linen as nn
import jax
import jax.numpy as jnp

from leviathan.nn import initializers


class SwiGLU(nn.Module):
  """down(silu(gate(x)) * up(x)), of inner width F = `width`."""

  width: int
  layers: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x_BLD: jax.Array) -> jax.Array:
    """x_BLD -> x_BLD."""
    D, F = x_BLD.shape[-1], self.width

    def weight(name, init, shape):
      return self.param(name, init, shape, jnp.float32).astype(self.dtype)

    inward = initializers.normal(('embed', 'mlp'))
    outward = initializers.residual(('mlp', 'embed'), self.layers)
    gate_BLF = x_BLD @ weight('gate_DF', inward, (D, F))
    up_BLF = x_BLD @ weight('up_DF', inward, (D, F))
    return (jax.nn.silu(gate_BLF) * up_BLF) @ weight('down_FD', outward, (F, D))
