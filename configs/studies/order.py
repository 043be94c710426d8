r"""Whether LEV gains when tokens that share digits are alike.

  make quickstart
  leviathan study --study=configs/studies/order.py --workdir=runs/order

Eight inputs on the quickstart's data and backbone, 369 thousand tokens each,
the learning rate chosen for each from three values, then three seeds. 40 runs
of some three and a half minutes on one CPU core. Results: docs/token_order.md.
"""

from configs.studies import base


def get_config():
  """See configs/studies/base.py."""
  return base.study(
    {
      'tied': base.variant('tied:smoke'),
      'untied': base.variant('untied:smoke'),
      'lev': base.variant('lev:smoke'),
      'lev_random': base.variant('lev:smoke', token_order='random'),
      'lev_bytes': base.variant('lev:smoke', token_order='bytes'),
      'lev_distributional': base.variant(
        'lev:smoke', token_order='distributional'
      ),
      'factorized_mlp': base.variant('factorized_mlp:smoke'),
      'factorized_mlp_distributional': base.variant(
        'factorized_mlp:smoke', token_order='distributional'
      ),
    },
    learning_rates=(2e-3, 4e-3, 8e-3),
    dataset='runs/quickstart/data/train',
    # Evaluated once, at the end.
    overrides=('evaluate.interval=360', 'checkpoint.interval=360'),
    contrasts=(
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
    ),
  )
