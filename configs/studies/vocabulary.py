r"""Whether the gain depends on the vocabulary: 50,257, 100,277 or 200,019.

  for name in gpt2:r50k_base cl100k:cl100k_base o200k:o200k_base; do
    leviathan prepare --input='pile/*.jsonl.zst' \
        --output=data/pile-${name%:*} --validation_fraction=0.001 \
        --tokenizer=tiktoken:${name#*:}.tiktoken
  done
  leviathan study --study=configs/studies/vocabulary.py \
      --workdir=runs/vocabulary

Here at 200m. 4.1 B tokens a run, of whatever length. 36 runs, 282 hours of a
TPU v5e chip, at 40 % of its peak: 35 hours of a host with 8. Computed, not
measured: no TPU has run it.

Batley & Saha (arXiv 2601.22040 v2) find about 2 % with each. Losses of
different vocabularies are of different tokens and are not compared.
"""

from configs import base as configs
from configs.studies import base


def get_config():
  """See configs/studies/base.py."""
  return base.paper(
    '200m',
    {
      f'{arm}_{name}': _variant(arm, name)
      for name in configs.VOCABULARIES
      for arm in ('tied', 'lev')
    },
    contrasts=tuple(f'lev_{n} - tied_{n}' for n in configs.VOCABULARIES),
    seeds=(0, 1, 2),
  )


def _variant(arm: str, vocabulary: str):
  """An arm with a vocabulary of the paper, on data of those tokens."""
  data = f'data/pile-{vocabulary}'
  return base.variant(
    f'{arm}:200m-{vocabulary}',
    dataset=f'{data}/train',
    overrides=(f"evaluate.datasets=('pile={data}/validation',)",),
  )
