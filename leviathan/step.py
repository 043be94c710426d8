"""The training step: forward, loss, update; pure, and it donates its state."""

from collections.abc import Callable
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
import optax

from leviathan import arrays
from leviathan import losses
from leviathan import metrics
from leviathan import state as state_lib


def forward(model: nn.Module, params: Any, batch: arrays.Batch) -> jax.Array:
  """nll_BL of the batch's targets, in nats."""
  logits_BLV: Any = model.apply(
    {'params': params}, batch.inputs_BL, batch.segments_BL
  )
  return losses.token_nll(logits_BLV, batch.targets_BL)


def loss(
  model: nn.Module, params: Any, batch: arrays.Batch
) -> tuple[jax.Array, metrics.Sums]:
  """Mean nll over the tokens that count, and the sums it comes from."""
  nll_BL = forward(model, params, batch)
  sums = metrics.Sums(
    nll=jnp.sum(nll_BL * batch.weights_BL),
    tokens=jnp.sum(batch.weights_BL),
  )
  return sums.nll / jnp.maximum(sums.tokens, 1), sums


def update(
  optimizer: optax.GradientTransformation, state: state_lib.State, grads: Any
) -> state_lib.State:
  """The state after one step of the optimizer."""
  updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
  return state_lib.State(
    step=state.step + 1,
    params=optax.apply_updates(state.params, updates),
    opt_state=opt_state,
  )


def make(
  model: nn.Module,
  optimizer: optax.GradientTransformation,
  schedule: optax.Schedule,
) -> Callable:
  """The jitted (state, batch) -> (state, metrics), on the mesh in force."""

  def train_step(state, batch):
    (mean, sums), grads = jax.value_and_grad(
      lambda params: loss(model, params, batch), has_aux=True
    )(state.params)
    row = {
      'nats_per_token': mean,
      'batch_tokens': sums.tokens,
      'grad_norm': optax.tree.norm(grads),
      'learning_rate': schedule(state.step),
    }
    return update(optimizer, state, grads), row

  return jax.jit(train_step, donate_argnums=0)
