r"""The paper's 400m.

  leviathan study --study=configs/studies/paper_400m.py \
      --workdir=runs/paper_400m --dry_run

prints commands for a pod, where each host runs `train` and `evaluate` with
--coordinator=auto; once more, and it prints the next. Data: paper_200m.py.

8.1 B tokens a run. 12 runs of one seed, 283 hours of a TPU v5e chip, at 40 % of
its peak: 4.4 hours of a v5e-64. Computed, not measured: no TPU has run it.

Batley & Saha (arXiv 2601.22040 v2) count 611 M parameters for `untied`; `tied`
has 406 M, `lev` 408 M.
"""

from configs.studies import base


def get_config():
  """See configs/studies/base.py."""
  return base.paper(
    '400m',
    {
      'tied': base.variant('tied:400m'),
      'untied': base.variant('untied:400m'),
      'lev': base.variant('lev:400m'),
    },
    contrasts=('lev - tied', 'untied - tied'),
    seeds=(0,),
  )
