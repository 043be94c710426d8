r"""What of LEV's gain is continuity, composition, splines.

  leviathan study --study=configs/studies/ablation.py --workdir=runs/ablation

Here at 200m; data: paper_200m.py. 4.1 B tokens a run. 24 runs, 250 hours of a
TPU v5e chip, at 40 % of its peak: 31 hours of a host with 8. Computed, not
measured: no TPU has run it.

Batley & Saha (arXiv 2601.22040 v2) read off validation perplexity: continuity,
`flat_mlp` over `tied`, 1.13 %; composition, `factorized_mlp` over `flat_mlp`,
0.37 %; separable splines, `lev` over `factorized_mlp`, 0.62 %.
"""

from configs.studies import base


def get_config():
  """See configs/studies/base.py."""
  return base.paper(
    '200m',
    {
      'tied': base.variant('tied:200m'),
      'flat_mlp': base.variant('flat_mlp:200m'),
      'factorized_mlp': base.variant('factorized_mlp:200m'),
      'lev': base.variant('lev:200m'),
    },
    contrasts=(
      'flat_mlp - tied',
      'factorized_mlp - flat_mlp',
      'lev - factorized_mlp',
      'lev - tied',
    ),
    seeds=(0, 1, 2),
  )
