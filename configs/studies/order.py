r"""Whether LEV gains when tokens that share digits are alike.

  make quickstart
  leviathan study --study=configs/studies/order.py --workdir=runs/order

Eight inputs on the quickstart's data and backbone, 369 thousand tokens each,
the learning rate chosen for each from three values, then three seeds. 40 runs
of some three and a half minutes on one CPU core. Results: docs/token_order.md.
"""

import ml_collections


def get_config():
  """See leviathan.study.Study for each key."""
  study = ml_collections.ConfigDict()
  study.variants = ml_collections.ConfigDict(
    {
      'tied': variant('tied'),
      'untied': variant('untied'),
      'lev': variant('lev'),
      'lev_random': variant('lev', 'random'),
      'lev_bytes': variant('lev', 'bytes'),
      'lev_distributional': variant('lev', 'distributional'),
      'factorized_mlp': variant('factorized_mlp'),
      'factorized_mlp_distributional': variant(
        'factorized_mlp', 'distributional'
      ),
    }
  )
  study.learning_rates = (2e-3, 4e-3, 8e-3)
  study.seeds = (0, 1, 2)
  study.dataset = 'runs/quickstart/data/train'
  # Evaluated once, at the end.
  study.overrides = ('evaluate.interval=360', 'checkpoint.interval=360')
  study.contrasts = (
    'lev_distributional - lev',
    'lev_bytes - lev',
    'lev_random - lev',
    'lev_distributional - lev_bytes',
    'factorized_mlp_distributional - factorized_mlp',
    'lev_distributional - factorized_mlp_distributional',
    'lev - tied',
    'lev_distributional - tied',
    'factorized_mlp_distributional - tied',
    'untied - tied',
    'lev_distributional - untied',
  )
  return study


def variant(arm: str, token_order: str = ''):
  """An arm at `smoke`, and how its tokens are ordered."""
  return ml_collections.ConfigDict(
    {'config': f'configs/{arm}.py:smoke', 'token_order': token_order}
  )
