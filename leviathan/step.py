"""The training step: forward, loss, update; pure, and it donates its state."""

from collections.abc import Callable
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from leviathan import arrays
from leviathan import guard as guard_lib
from leviathan import losses
from leviathan import metrics
from leviathan import model as model_lib
from leviathan import sharding
from leviathan import state as state_lib


def forward(
  model: model_lib.Transformer,
  params: Any,
  batch: arrays.Batch,
  *,
  z_loss: float,
  chunks: int,
) -> losses.Loss:
  """The loss of the batch's targets, in nats; see `losses.loss`."""
  features: Any = model.apply(
    {'params': params}, batch.inputs_BL, batch.segments_BL, method='features'
  )
  x_BLD, w_VD = features
  return losses.loss(
    x_BLD,
    w_VD,
    batch.targets_BL,
    batch.weights_BL,
    vocab_size=model.config.vocab_size,
    z_loss=z_loss,
    chunks=chunks,
  )


def loss(
  model: model_lib.Transformer,
  params: Any,
  batch: arrays.Batch,
  *,
  z_loss: float,
  chunks: int,
) -> tuple[jax.Array, metrics.Sums]:
  """What is minimised, summed over the tokens that count, and its parts.

  Args:
    model: with its head.
    params: its parameters, float32.
    batch: B sequences of L tokens; those of weight 0 do not count.
    z_loss: coefficient of the z-loss.
    chunks: parts of L of which only one has logits at a time.

  Returns:
    A float32 scalar, in nats and not divided by tokens, to be differentiated;
    and the sums that metrics are made of, where the z-loss stands apart.
  """
  found = forward(model, params, batch, z_loss=z_loss, chunks=chunks)
  sums = metrics.Sums(
    nll=jnp.sum(found.nll_BL * batch.weights_BL),
    tokens=jnp.sum(batch.weights_BL),
    z_loss=jnp.sum(found.z_loss_BL * batch.weights_BL),
  )
  return found.objective, sums


def micro_batches(batch: arrays.Batch, count: int) -> arrays.Batch:
  """`batch` in `count` parts, stacked; each device cuts its own rows."""

  def cut(x_BL):
    # Had the first part the first rows, they would lie on a few devices alone.
    x_BAL = x_BL.reshape(-1, count, x_BL.shape[1])
    return sharding.constrain(jnp.moveaxis(x_BAL, 1, 0), None, 'batch', None)

  return jax.tree.map(cut, batch)


def gradients(
  loss_of: Callable[[Any, arrays.Batch], tuple[jax.Array, metrics.Sums]],
  params: Any,
  batch: arrays.Batch,
  accumulation: int,
) -> tuple[Any, metrics.Sums]:
  """The gradient of the mean loss over a batch's tokens, and the sums.

  Args:
    loss_of: (params, batch) -> what `loss` gives.
    params: to differentiate by.
    batch: all rows of a step.
    accumulation: micro-batches that go through the model one after another;
      only sums are carried on, so that each token counts the same.
  """

  def micro_step(total, micro):
    (_, sums), grads = jax.value_and_grad(loss_of, has_aux=True)(params, micro)
    return jax.tree.map(jnp.add, total, (grads, sums)), None

  total = jax.tree.map(jnp.zeros_like, params), metrics.Sums(*jnp.zeros(3))
  if accumulation == 1:
    total, _ = micro_step(total, batch)
  else:
    micros = micro_batches(batch, accumulation)
    total, _ = jax.lax.scan(micro_step, total, micros)
  grads, sums = total
  tokens = jnp.maximum(sums.tokens, 1)
  return jax.tree.map(lambda g: g / tokens, grads), sums


def update(
  optimizer: optax.GradientTransformation,
  learning_rate: jax.Array,
  state: state_lib.State,
  grads: Any,
  good: jax.Array,
  guard: guard_lib.Guard,
) -> state_lib.State:
  """The state after one step, with `guard` in it.

  Args:
    optimizer: whose directions are still without the learning rate.
    learning_rate: of this step, a scalar.
    state: before the step.
    grads: like the parameters, of the mean over tokens.
    good: bool scalar; if False, parameters, moments and their count stay as
      they are, to the bit, and the step counts all the same.
    guard: what is remembered of the last steps' losses.
  """

  # A branch, not a select: taken, it is made in place, with no copy of moments.
  def take(params, moments, grads):
    directions, moments = optimizer.update(grads, moments, params)
    updates = optax.tree.scale(-learning_rate, directions)
    return optax.apply_updates(params, updates), moments

  params, moments = jax.lax.cond(
    good,
    take,
    lambda params, moments, grads: (params, moments),
    state.params,
    state.opt_state.optimizer,
    grads,
  )
  return state_lib.State(
    step=state.step + 1,
    params=params,
    opt_state=state_lib.OptState(optimizer=moments, guard=guard),
  )


def fingerprint(batch: arrays.Batch) -> jax.Array:
  """uint32 that tells whether two steps saw the same rows, on any mesh.

  A sum that wraps around does not depend on the order of its terms.
  """
  ids_BL = batch.inputs_BL.astype(jnp.uint32) + 1
  place_BL = jnp.arange(ids_BL.size, dtype=jnp.uint32).reshape(ids_BL.shape)
  # Odd numbers, so that no bit is lost; Knuth's, so that they differ in all.
  mixed_BL = ids_BL * (2 * place_BL + 1) * jnp.uint32(2654435761)
  return jnp.sum(mixed_BL ^ (mixed_BL >> 15), dtype=jnp.uint32)


def make(
  model: model_lib.Transformer,
  optimizer: optax.GradientTransformation,
  schedule: optax.Schedule,
  *,
  spike_deviations: float,
  z_loss: float,
  loss_chunks: int,
  accumulation: int,
) -> Callable:
  """The jitted (state, batch) -> (state, metrics), on the mesh in force.

  See configs/base.py for the settings.

  Returns:
    A function that donates its state: the one that went in is gone. Metrics are
    scalars on the device, of this batch; reading one waits for the step.
  """
  loss_of = functools.partial(loss, model, z_loss=z_loss, chunks=loss_chunks)

  def train_step(state, batch):
    grads, sums = gradients(loss_of, state.params, batch, accumulation)
    tokens = jnp.maximum(sums.tokens, 1)
    mean, grad_norm = sums.nll / tokens, optax.tree.norm(grads)
    good, guard = guard_lib.judge(
      state.opt_state.guard, mean, grad_norm, spike_deviations
    )
    learning_rate = jnp.asarray(schedule(state.step))
    row = {
      'nats_per_token': mean,
      'z_loss': sums.z_loss / tokens,
      'batch_tokens': sums.tokens,
      'batch_hash': fingerprint(batch),
      'grad_norm': grad_norm,
      'learning_rate': learning_rate,
      'skipped': (~good).astype(jnp.int32),
      'skipped_in_a_row': guard.in_a_row,
    }
    return update(optimizer, learning_rate, state, grads, good, guard), row

  return jax.jit(train_step, donate_argnums=0)
