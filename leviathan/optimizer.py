"""AdamW with warm-up and cosine decay; weight decay is decided by name."""

import dataclasses
from typing import Any

import jax
import optax

from leviathan import errors

# Not decayed, by how the name begins: gains and shifts, and LEV's splines,
# which live around 1: pulled to 0, a product of C factors would vanish.
NOT_DECAYED = ('scale_', 'bias_', 'splines_')


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
  """AdamW (Loshchilov & Hutter, arXiv 1711.05101)."""

  learning_rate: float  # peak
  final_fraction: float  # of the peak, at the horizon
  warmup_steps: int
  horizon: int | None  # step at which the cosine ends; None: train.steps
  b1: float
  b2: float
  epsilon: float
  weight_decay: float
  clip_norm: float  # global gradient norm, inf for none

  def __post_init__(self):
    ranges = {
      'learning_rate': self.learning_rate > 0,
      'final_fraction': 0 <= self.final_fraction <= 1,
      'b1': 0 <= self.b1 < 1,
      'b2': 0 <= self.b2 < 1,
      'epsilon': self.epsilon > 0,
      'weight_decay': self.weight_decay >= 0,
      'clip_norm': self.clip_norm > 0,
    }
    for name, in_range in ranges.items():
      if not in_range:  # So nan is out of every range.
        raise errors.ConfigError(
          f'config.optimizer.{name}={getattr(self, name)} is out of range; see '
          'configs/base.py for what is usual'
        )
    if self.horizon is not None and not (0 <= self.warmup_steps < self.horizon):
      raise errors.ConfigError(
        f'config.optimizer.warmup_steps={self.warmup_steps} must be at least '
        f'0 and below the horizon of {self.horizon} steps'
      )

  def schedule(self) -> optax.Schedule:
    """Learning rate by step: linear from 0, then cosine, then constant."""
    assert self.horizon is not None
    return optax.warmup_cosine_decay_schedule(
      init_value=0.0,
      peak_value=self.learning_rate,
      warmup_steps=self.warmup_steps,
      decay_steps=self.horizon,
      end_value=self.learning_rate * self.final_fraction,
    )

  def make(self) -> optax.GradientTransformation:
    """The transformation; its state mirrors the parameters' tree."""
    return optax.chain(
      optax.clip_by_global_norm(self.clip_norm),
      optax.adamw(
        self.schedule(),
        b1=self.b1,
        b2=self.b2,
        eps=self.epsilon,
        weight_decay=self.weight_decay,
        mask=decay_mask,
      ),
    )


def decay_mask(params: Any) -> Any:
  """True for each parameter that decays, by the last name of its path."""

  def decays(path, _):
    names = [k.key for k in path if isinstance(k, jax.tree_util.DictKey)]
    return not names[-1].startswith(NOT_DECAYED)

  return jax.tree_util.tree_map_with_path(decays, params)
