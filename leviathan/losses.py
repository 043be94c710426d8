"""The one loss; training and every evaluation reduce it."""

import jax
import jax.numpy as jnp
import optax


def token_nll(logits_BLV: jax.Array, targets_BL: jax.Array) -> jax.Array:
  """Negative log-likelihood of each target, in nats, in float32.

  Args:
    logits_BLV: scores; padded columns hold the lowest finite number.
    targets_BL: int32 ids in [0, V); checked where data enter, not here.

  Returns:
    nll_BL.
  """
  return optax.softmax_cross_entropy_with_integer_labels(
    logits_BLV.astype(jnp.float32), targets_BL
  )
