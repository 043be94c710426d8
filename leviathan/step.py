"""The training step: forward, loss, update; pure, and it donates its state."""

from collections.abc import Callable
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
import optax

from leviathan import arrays
from leviathan import guard as guard_lib
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
  optimizer: optax.GradientTransformation,
  learning_rate: jax.Array,
  state: state_lib.State,
  grads: Any,
  good: jax.Array,
  guard: guard_lib.Guard,
) -> state_lib.State:
  """The state after one step, with `guard` in it.

  Unless the step is `good`, parameters, moments and their count stay as they
  are, to the bit.
  """
  before = (state.params, state.opt_state.optimizer)
  directions, moments = optimizer.update(
    grads, state.opt_state.optimizer, state.params
  )
  updates = optax.tree.scale(-learning_rate, directions)
  after = (optax.apply_updates(state.params, updates), moments)
  # A select, not a branch: it is fused into the update and made in place.
  params, moments = jax.tree.map(
    lambda new, old: jnp.where(good, new, old), after, before
  )
  return state_lib.State(
    step=state.step + 1,
    params=params,
    opt_state=state_lib.OptState(optimizer=moments, guard=guard),
  )


def make(
  model: nn.Module,
  optimizer: optax.GradientTransformation,
  schedule: optax.Schedule,
  spike_deviations: float,
) -> Callable:
  """The jitted (state, batch) -> (state, metrics), on the mesh in force."""

  def train_step(state, batch):
    (mean, sums), grads = jax.value_and_grad(
      lambda params: loss(model, params, batch), has_aux=True
    )(state.params)
    grad_norm = optax.tree.norm(grads)
    rate = jnp.asarray(schedule(state.step))
    good, guard = guard_lib.judge(
      state.opt_state.guard, mean, grad_norm, spike_deviations
    )
    row = {
      'nats_per_token': mean,
      'batch_tokens': sums.tokens,
      'grad_norm': grad_norm,
      'learning_rate': rate,
      'skipped': (~good).astype(jnp.int32),
      'skipped_in_a_row': guard.in_a_row,
    }
    return update(optimizer, rate, state, grads, good, guard), row

  return jax.jit(train_step, donate_argnums=0)
