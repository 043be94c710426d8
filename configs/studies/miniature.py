r"""The paper's comparison in miniature, on two CPU cores.

  make miniature

which makes runs/miniature/data of the Python standard library and the texts of
TEXTS, and then runs

  leviathan study --study=configs/studies/miniature.py \
      --workdir=runs/miniature --jobs=2

All six arms, and LEV on ordered tokens, at `smoke`: V = 16,384, 573 thousand
tokens each, the learning rate chosen for each from four values in a fifth of
that, then three seeds. 49 runs; some 90 minutes of two CPU cores by the time
that a step takes on one, 0.28 to 0.55 s by arm. What came of it: README.md and
docs/miniature/.
"""

from configs.studies import base

STEPS = 560  # Of 1024 tokens.
TRIAL = 112
POINTS = 8  # Of a validation curve.
DATA = 'runs/miniature/data'


def get_config():
  """See configs/studies/base.py."""
  return base.study(
    {
      'tied': base.variant('tied:smoke'),
      'untied': base.variant('untied:smoke'),
      'albert': base.variant('albert:smoke'),
      'flat_mlp': base.variant('flat_mlp:smoke'),
      'factorized_mlp': base.variant('factorized_mlp:smoke'),
      'lev': base.variant('lev:smoke'),
      'lev_ordered': base.variant('lev:smoke', token_order='distributional'),
    },
    learning_rates=(1e-3, 2e-3, 4e-3, 8e-3),
    dataset=f'{DATA}/train',
    overrides=(
      f"evaluate.datasets=('held_out={DATA}/validation',)",
      f'train.steps={STEPS}',
      f'evaluate.interval={STEPS // POINTS}',
      f'checkpoint.interval={STEPS // POINTS * 2}',
    ),
    # Evaluated once, at the end.
    search_overrides=(
      f'train.steps={TRIAL}',
      f'evaluate.interval={TRIAL}',
      f'checkpoint.interval={TRIAL}',
    ),
    contrasts=(
      'lev - tied',
      'flat_mlp - tied',
      'factorized_mlp - flat_mlp',
      'lev - factorized_mlp',
      'untied - tied',
      'albert - tied',
      'lev_ordered - lev',
      'lev_ordered - tied',
    ),
  )
