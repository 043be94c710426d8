"""AdamW and its schedules; weight decay is decided by name.

The learning rate is a function of the step alone: the optimizer's state holds
no count for it, so a step that is skipped moves no later rate.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from leviathan import errors

# Not decayed, by how the name begins: gains and shifts, and LEV's splines,
# which live around 1: pulled to 0, a product of C factors would vanish.
NOT_DECAYED = ('scale_', 'bias_', 'splines_')

# After the warm-up: 'cosine' falls from the peak all the way to the horizon,
# 'wsd' stays at the peak and falls by a straight line over its last steps.
SCHEDULES = ('cosine', 'wsd')
MOMENT_TYPES = {'float32': jnp.float32, 'bfloat16': jnp.bfloat16}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
  """AdamW (Loshchilov & Hutter, arXiv 1711.05101).

  `wsd` is warm-up, stable, decay (Hu et al., arXiv 2404.06395).
  """

  schedule: str  # one of SCHEDULES
  learning_rate: float  # peak
  final_fraction: float  # of the peak, at the horizon
  warmup_steps: int
  decay_steps: int | None  # of wsd, the last before the horizon
  horizon: int | None  # step at which the decay ends; None: train.steps
  b1: float
  b2: float
  epsilon: float
  moment_type: str  # of the first moment, one of MOMENT_TYPES
  weight_decay: float
  clip_norm: float  # global gradient norm, inf for none
  spike_deviations: float | None  # see guard.py; None: nothing spikes
  skip_limit: int  # steps in a row; one more ends the run

  def __post_init__(self):
    ranges = {
      'learning_rate': 0 < self.learning_rate < math.inf,
      'final_fraction': 0 <= self.final_fraction <= 1,
      'b1': 0 <= self.b1 < 1,
      'b2': 0 <= self.b2 < 1,
      'epsilon': self.epsilon > 0,
      'weight_decay': self.weight_decay >= 0,
      'clip_norm': self.clip_norm > 0,
      'spike_deviations': (
        self.spike_deviations is None or self.spike_deviations > 0
      ),
      'skip_limit': self.skip_limit >= 0,
    }
    for name, in_range in ranges.items():
      if not in_range:  # So nan is out of every range.
        raise errors.ConfigError(
          f'config.optimizer.{name}={getattr(self, name)} is out of range; see '
          'configs/base.py for what is usual'
        )
    for name, choices in (
      ('schedule', SCHEDULES),
      ('moment_type', MOMENT_TYPES),
    ):
      if getattr(self, name) not in choices:
        raise errors.ConfigError(
          f'config.optimizer.{name}={getattr(self, name)!r}; choose one of '
          f'{", ".join(choices)}'
        )
    # Beyond 1 a step would turn a weight's sign and, from 2 on, make it grow.
    if not self.learning_rate * self.weight_decay <= 1:
      raise errors.ConfigError(
        f'config.optimizer.weight_decay={self.weight_decay} times '
        f'learning_rate={self.learning_rate} must be at most 1; lower one'
      )
    self._check_lengths()

  def _check_lengths(self):
    """The parts of the schedule fit into it."""
    horizon, warmup, decay = self.horizon, self.warmup_steps, self.decay_steps
    if self.schedule != 'wsd' and decay is not None:
      raise errors.ConfigError(
        f'config.optimizer.decay_steps={decay} is for schedule=wsd, but '
        f'schedule={self.schedule}; leave it out'
      )
    if self.schedule == 'wsd' and (decay is None or decay < 1):
      raise errors.ConfigError(
        f'config.optimizer.decay_steps={decay}; give 1 or more steps to '
        'schedule=wsd'
      )
    if horizon is not None and not 0 <= warmup < horizon:
      raise errors.ConfigError(
        f'config.optimizer.warmup_steps={warmup} must be at least 0 and below '
        f'the horizon of {horizon} steps'
      )
    if horizon is not None and warmup + (decay or 0) > horizon:
      raise errors.ConfigError(
        f'config.optimizer.decay_steps={decay} and warmup_steps={warmup} are '
        f'more than the horizon of {horizon} steps; lower one'
      )

  def make_schedule(self) -> optax.Schedule:
    """Learning rate by step: linear from 0, see SCHEDULES, then constant."""
    assert self.horizon is not None
    peak, final = self.learning_rate, self.learning_rate * self.final_fraction
    if self.schedule == 'cosine':
      return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=peak,
        warmup_steps=self.warmup_steps,
        decay_steps=self.horizon,
        end_value=final,
      )
    assert self.decay_steps is not None
    return optax.join_schedules(
      [
        optax.linear_schedule(0.0, peak, self.warmup_steps),
        optax.constant_schedule(peak),
        optax.linear_schedule(peak, final, self.decay_steps),
      ],
      [self.warmup_steps, self.horizon - self.decay_steps],
    )

  def make(self) -> optax.GradientTransformation:
    """What a step goes along, downwards; the learning rate is still missing.

    Its state mirrors the parameters' tree. A new weight is at most
    |w| + learning rate * |Adam's direction|, so what is finite stays finite.
    """
    return optax.chain(
      optax.clip_by_global_norm(self.clip_norm),
      optax.scale_by_adam(
        b1=self.b1,
        b2=self.b2,
        eps=self.epsilon,
        mu_dtype=MOMENT_TYPES[self.moment_type],
      ),
      optax.add_decayed_weights(self.weight_decay, decay_mask),
    )


def decay_mask(params: Any) -> Any:
  """True for each parameter that decays, by the last name of its path."""

  def decays(path, _):
    names = [k.key for k in path if isinstance(k, jax.tree_util.DictKey)]
    return not names[-1].startswith(NOT_DECAYED)

  return jax.tree_util.tree_map_with_path(decays, params)


def sizes_by_decay(params: Any) -> dict[bool, dict[str, int]]:
  """{whether they decay: {'blocks/mlp/gate_DF': parameters}}, all of a tree.

  Rows that only pad the vocabulary are counted too, for they decay as others.

  Args:
    params: arrays or their shapes; layers may be stacked or not.
  """
  sizes: dict[bool, dict[str, int]] = {True: {}, False: {}}
  leaves, _ = jax.tree_util.tree_flatten_with_path(params)
  decays = jax.tree.leaves(decay_mask(params))
  for (path, leaf), decayed in zip(leaves, decays, strict=True):
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    sizes[decayed][name] = math.prod(leaf.shape)
  return sizes
