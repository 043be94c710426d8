"""Continuing a prompt, one token at a time."""

from collections.abc import Callable
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp

from leviathan import prng


def make(model: nn.Module, length: int) -> Callable:
  """A jitted sampler over a buffer of `length` tokens.

  Returns:
    (params, ids_BL, filled, key, temperature) -> ids_BL. The first `filled`
    positions are the prompt; the rest are overwritten one after another, each
    drawn given all before it. Temperature 0 takes the likeliest.
  """

  @jax.jit
  def sample(params: Any, ids_BL, filled, key, temperature):
    def one(position, ids_BL):
      logits_BLV = model.apply({'params': params}, ids_BL)
      logits_BV = jax.lax.dynamic_index_in_dim(
        logits_BLV, position - 1, axis=1, keepdims=False
      )
      drawn_B = jax.random.categorical(
        prng.stream(key, 'sample', position),
        logits_BV / jnp.maximum(temperature, 1e-6),
      )
      likeliest_B = jnp.argmax(logits_BV, axis=-1)
      next_B = jnp.where(temperature > 0, drawn_B, likeliest_B)
      return ids_BL.at[:, position].set(next_B.astype(ids_BL.dtype))

    return jax.lax.fori_loop(filled, length, one, ids_BL)

  return sample
