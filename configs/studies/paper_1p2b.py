r"""The paper's 1p2b: the figures of its abstract.

  leviathan study --study=configs/studies/paper_1p2b.py \
      --workdir=runs/paper_1p2b --dry_run

prints commands for a pod, where each host runs `train` and `evaluate` with
--coordinator=auto; once more, and it prints the next. Data: paper_200m.py.

24.1 B tokens a run. 8 runs of one seed, 1660 hours of a TPU v5e chip, at 40 %
of its peak: 6.5 hours of a v5e-256. Computed, not measured: no TPU has run it.

Batley & Saha (arXiv 2601.22040 v2) find, against `tied`: validation perplexity
-9.2 % (0.087 nats is printed beside it); 2.1 x fewer tokens to its final loss;
LAMBADA perplexity -30 %, Wikitext-103 -12.3 %; all six tasks better; perplexity
-81 % on tokens below 1 in 10 million, near 0 (slightly worse) above 1 in 10
thousand.
"""

from configs.studies import base


def get_config():
  """See configs/studies/base.py."""
  return base.paper(
    '1p2b',
    {
      'tied': base.variant('tied:1p2b'),
      'lev': base.variant('lev:1p2b'),
    },
    contrasts=('lev - tied',),
    seeds=(0,),
  )
