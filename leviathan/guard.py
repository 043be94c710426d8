"""Which steps to skip: those that are not finite, and those that spike.

Judged inside the jitted step from the loss and the gradient norm of the whole
batch, so that all devices and processes decide alike.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

WINDOW = 128  # good steps that a spike stands out from
ENOUGH = WINDOW // 2  # of them, before anything counts as a spike


class Guard(NamedTuple):
  """What the guard remembers.

  Attributes:
    skipped: int32, steps skipped in all.
    in_a_row: int32, of those, the ones since the last good step.
    good: int32, good steps in all.
    recent_W2: float32, loss in nats per token and gradient norm of the last
      WINDOW good steps, in no order; 0 where there was none yet.
  """

  skipped: jax.Array
  in_a_row: jax.Array
  good: jax.Array
  recent_W2: jax.Array


def fresh() -> Guard:
  """Before the first step."""
  return Guard(
    skipped=jnp.zeros((), jnp.int32),
    in_a_row=jnp.zeros((), jnp.int32),
    good=jnp.zeros((), jnp.int32),
    recent_W2=jnp.zeros((WINDOW, 2), jnp.float32),
  )


def judge(
  guard: Guard, loss: jax.Array, grad_norm: jax.Array, deviations: float
) -> tuple[jax.Array, Guard]:
  """Whether a step may be taken, and the guard after it.

  A finite norm also means that no square of a gradient overflows, so that the
  moments made of it are finite.

  Args:
    guard: before the step.
    loss: float32, nats per token.
    grad_norm: float32, global, before clipping.
    deviations: a step spikes when one of the two exceeds its mean in the window
      by more than so many standard deviations; inf: nothing spikes.
  """
  now_2 = jnp.stack([loss, grad_norm]).astype(jnp.float32)
  seen_W1 = jnp.arange(WINDOW)[:, None] < guard.good
  mean_2 = jnp.mean(guard.recent_W2, 0, where=seen_W1)
  deviation_2 = jnp.std(guard.recent_W2, 0, where=seen_W1)
  # With nothing in the window these are nan, and with `deviations` inf they may
  # be: no number is above nan.
  spikes = jnp.any(now_2 > mean_2 + deviations * deviation_2)
  good = jnp.all(jnp.isfinite(now_2)) & ~(spikes & (guard.good >= ENOUGH))
  skipped = (~good).astype(jnp.int32)
  recent_W2 = guard.recent_W2.at[guard.good % WINDOW].set(now_2)
  return good, Guard(
    skipped=guard.skipped + skipped,
    in_a_row=(guard.in_a_row + 1) * skipped,
    good=guard.good + 1 - skipped,
    recent_W2=jnp.where(good, recent_W2, guard.recent_W2),
  )
