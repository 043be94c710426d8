"""What a study's file is made of; this file is no study."""

from collections.abc import Mapping
from collections.abc import Sequence

import ml_collections

from configs import base

# The texts of the paper.
TASKS = (
  'wikitext',
  'lambada',
  'hellaswag',
  'arc_easy',
  'arc_challenge',
  'piqa',
  'winogrande',
)


def study(
  variants: Mapping[str, ml_collections.ConfigDict],
  *,
  learning_rates: Sequence[float],
  dataset: str,
  contrasts: Sequence[str],
  seeds: Sequence[int] = (0, 1, 2),
  overrides: Sequence[str] = (),
  search_overrides: Sequence[str] = (),
  tasks: Sequence[str] = (),
) -> ml_collections.ConfigDict:
  """See leviathan.study.Study for each key."""
  config = ml_collections.ConfigDict()
  config.variants = ml_collections.ConfigDict(variants)
  config.learning_rates = learning_rates
  config.seeds = seeds
  config.dataset = dataset
  config.overrides = overrides
  config.search_overrides = search_overrides
  config.tasks = tasks
  config.task_data = ''
  config.contrasts = contrasts
  return config


def variant(
  config: str,
  *,
  token_order: str = '',
  dataset: str = '',
  overrides: Sequence[str] = (),
) -> ml_collections.ConfigDict:
  """See leviathan.study.Variant; `config` is ARM:SCALE."""
  arm, _, scale = config.partition(':')
  return ml_collections.ConfigDict(
    {
      'config': f'configs/{arm}.py:{scale}',
      'token_order': token_order,
      'dataset': dataset,
      'overrides': overrides,
    }
  )


def paper(
  scale: str,
  variants: Mapping[str, ml_collections.ConfigDict],
  *,
  contrasts: Sequence[str],
  seeds: Sequence[int],
) -> ml_collections.ConfigDict:
  """A study at a scale of the paper, on the Pile.

  The paper's learning rates are not known to us: half, once and twice that of
  configs/base.py are tried for a tenth of the budget.
  """
  rate = base.SCALES[scale]['learning_rate']
  steps = base.get_config(scale).train.steps
  return study(
    variants,
    learning_rates=(rate / 2, rate, rate * 2),
    seeds=seeds,
    dataset='data/pile/train',
    search_overrides=(f'train.steps={steps // 10}',),
    tasks=TASKS,
    contrasts=contrasts,
  )
