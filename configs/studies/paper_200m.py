r"""The paper's 200m: which arms stay behind `tied`, and how far `lev` gets.

  leviathan prepare --input='pile/*.jsonl.zst' --output=data/pile \
      --tokenizer=tiktoken:o200k_base.tiktoken --validation_fraction=0.001
  leviathan study --study=configs/studies/paper_200m.py \
      --workdir=runs/paper_200m

4.1 B tokens a run. 24 runs, 250 hours of a TPU v5e chip, at 40 % of its peak:
31 hours of a host with 8. Computed, not measured: no TPU has run it.

Batley & Saha (arXiv 2601.22040 v2) find Wikitext-103, zero shot, 2.4 % below
that of `tied`; `lev` begins behind `tied` and overtakes it, `untied` and
`albert` stay behind throughout.
"""

from configs.studies import base


def get_config():
  """See configs/studies/base.py."""
  return base.paper(
    '200m',
    {
      'tied': base.variant('tied:200m'),
      'untied': base.variant('untied:200m'),
      'albert': base.variant('albert:200m'),
      'lev': base.variant('lev:200m'),
    },
    contrasts=('lev - tied', 'untied - tied', 'albert - tied'),
    seeds=(0, 1, 2),
  )
