"""Sections of a report: losses, tokens to match, ablation, sizes, cost.

Each takes groups of runs and returns a section, or None where there is nothing
to say.
"""

from collections.abc import Sequence
import math
import statistics

from leviathan import metrics
from leviathan.report import compare
from leviathan.report import document
from leviathan.report import groups as groups_lib
from leviathan.report import replicates
from leviathan.report import runs
from leviathan.report import tables

PARTS = ('input', 'backbone', 'head', 'total')


def losses(groups: groups_lib.Groups, dataset: str) -> document.Section:
  """Final loss, perplexity and bits per byte, and what is gained."""
  value = compare.nats(dataset)
  rows = []
  for variant in groups.variants:
    nats = replicates.estimate([value(run) for run in variant.runs])
    rows.append(
      [
        variant.label,
        _numbers(variant.seeds),
        f'{variant.first.tokens:,}',
        tables.said(nats, '.4f'),
        f'{metrics.from_mean(nats.mean)["perplexity"]:.2f}',
        f'{compare.mean(variant, _bits(dataset)):.4f}',
        *_over_baseline(groups, variant, dataset),
      ]
    )
  header = [
      'arm', 'seeds', 'tokens trained on', 'nats per token', 'perplexity',
      'bits per byte', 'over', 'pairs', 'difference, nats', 'gain, %',
  ]  # yapf: disable
  caption = (
    'Held out, at the last evaluated step: means over seeds, with the 95 % '
    "interval of Student's t over them; the perplexity is that of the mean. "
    'Of differences, below 0 is better; a gain is by how much the perplexity '
    'is lower. After +- is half of such an interval of pairs of one seed each; '
    'in brackets is that of the bootstrap over the sequences of a single pair, '
    'which says nothing of other seeds; of what is unpaired none is known.'
  )
  table = document.Table(tables.name('loss', dataset), caption, header, rows)
  entropies = {
    # Of the text alone, so of each vocabulary.
    v.setting.vocab_size: v.first.results['perplexity'][dataset][
      'unigram_entropy_nats'
    ]
    for v in groups.variants
  }
  text = '; '.join(
    f'{entropy:.4f} nats per token'
    + (f' with {size:,} tokens' if len(entropies) > 1 else '')
    for size, entropy in entropies.items()
  )
  return document.Section(
    f'Loss on {dataset}',
    [
      f'Unigram entropy: {text}. A model below it has learned more than how '
      'frequent each token is.',
      table,
    ],
  )


def _bits(dataset: str) -> compare.Value:
  return lambda run: run.results['perplexity'][dataset]['bits_per_byte']


def _over_baseline(
  groups: groups_lib.Groups,
  variant: groups_lib.Variant,
  dataset: str,
) -> list[str]:
  """[the baseline, pairs, difference in nats, gain in %]."""
  baseline = groups.baseline(variant)
  if baseline is None or baseline is variant:
    return [tables.NONE] * 4
  rivals = variant, baseline
  return [
    baseline.label,
    compare.paired_by(*rivals, dataset),
    _said(compare.loss(*rivals, dataset), '+.4f'),
    _said(compare.loss_gain(*rivals, dataset), '+.2f'),
  ]


def _said(found: replicates.Estimate | compare.Interval, form: str) -> str:
  """'-0.0312 +- 0.0024', or '-0.0312 [-0.0401, -0.0223]'."""
  if isinstance(found, compare.Interval):
    mean, low, high = (format(value, form) for value in found)
    return f'{mean} [{low}, {high}]'
  return tables.said(found, form)


def subsets(groups: groups_lib.Groups, dataset: str) -> document.Section | None:
  """Losses and gains by subset."""
  names = groups.subsets(dataset)
  if not names:
    return None
  values = {name.rpartition('/')[2]: compare.nats(name) for name in names}
  rows = [
    [name, *(f'{compare.mean(v, value):.4f}' for v in groups.variants)]
    for name, value in values.items()
  ]
  header = ['subset', *(variant.label for variant in groups.variants)]
  caption = 'Nats per token by subset, means over seeds.'
  file = tables.name('subsets', dataset)
  parts = [document.Table(file, caption, header, rows)]
  rivals = groups.rivals()
  if rivals:
    rows = [
      [name, *(tables.said(compare.gains(*r, value), '+.2f') for r in rivals)]
      for name, value in values.items()
    ]
    header = ['subset', *(variant.label for variant, _ in rivals)]
    caption = 'Gain in perplexity over the baseline by subset, %.'
    parts.append(document.Table(f'{file}_gain', caption, header, rows))
  return document.Section(f'Subsets of {dataset}', parts)


def tokens_to_match(
  groups: groups_lib.Groups, dataset: str
) -> document.Section | None:
  """How many tokens each needs to come to its baseline's final loss."""
  rows = []
  for variant, baseline in groups.rivals():
    races = compare.races(variant, baseline, dataset)
    if races:
      rows.append([variant.label, baseline.label, *_raced(races)])
  if not rows:
    return None
  header = ['arm', 'over', 'tokens to match', 'factor', "baseline's tokens"]
  caption = (
    "Tokens until the baseline's final loss is reached, and by what factor "
    'they are fewer than those after which the baseline itself is there; '
    'paired by seed, means over seeds. The validation curves are smoothed into '
    'ones that never rise (isotonic regression) and read by straight lines '
    'between evaluations, never beyond the last one.'
  )
  table = document.Table(
    tables.name('tokens_to_match', dataset), caption, header, rows
  )
  return document.Section(f'Tokens to match on {dataset}', [table])


def _raced(races: Sequence[compare.Race]) -> list[str]:
  """[tokens, factor, tokens of the baseline]."""
  baseline = f'{statistics.fmean(r.baseline_tokens for r in races):,.0f}'
  failed = sum(race.match.tokens is None for race in races)
  if failed:
    some = f' by {failed} of {len(races)} seeds' if len(races) > 1 else ''
    return [f'not reached{some}', tables.NONE, baseline]
  tokens = statistics.fmean(race.match.tokens or math.nan for race in races)
  factor = replicates.estimate([race.factor for race in races])
  if any(race.match.at_most for race in races):  # A bound has no interval.
    return [f'at most {tokens:,.0f}', f'at least {factor.mean:.2f}', baseline]
  return [f'{tokens:,.0f}', tables.said(factor, '.2f'), baseline]


def ablation(
  groups: groups_lib.Groups, dataset: str
) -> document.Section | None:
  """What the gain is made of, at each scale and budget with all arms."""
  rows = [
    [
      part.name,
      f'{part.ours} over {part.theirs}',
      compare.counted(part.seeds),
      tables.said(part.nats, '+.4f'),
      tables.said(part.gain, '+.2f'),
    ]
    for variants in groups.comparable()
    for part in compare.ablation(variants, dataset)
  ]
  if not rows:
    return None
  header = ['part', 'arms', 'pairs', 'difference, nats', 'gain, %']
  caption = (
    'A part is what one arm has over another. Differences in nats sum to that '
    'of the whole; the gains in perplexity multiply, so their percentages sum '
    'to it only nearly. Seeds are those that all four arms have.'
  )
  table = document.Table(
    tables.name('ablation', dataset), caption, header, rows
  )
  return document.Section(f'Ablation on {dataset}', [table])


def parameters(groups: groups_lib.Groups) -> document.Section:
  """What each arm consists of."""
  rows = []
  for variant in groups.variants:
    counts = variant.first.parameters
    baseline = groups.baseline(variant)
    total = baseline.first.parameters['total'] if baseline else 0
    rows.append(
      [
        variant.label,
        *(f'{counts[part]:,}' for part in PARTS),
        tables.change(counts['total'], total),
      ]
    )
  header = ['arm', *PARTS, f'over {_names(groups)}']
  caption = 'Parameters of the models as defined, without rows that only pad.'
  table = document.Table('parameters', caption, header, rows)
  return document.Section('Parameters', [table])


def cost(groups: groups_lib.Groups) -> document.Section:
  """Throughput, time and FLOPs, and what they are over the baseline's."""
  rows = []
  for variant in groups.variants:
    baseline = groups.baseline(variant)
    speed = compare.mean(variant, _speed)
    of_token = variant.first.flops
    changes = [tables.NONE] * 2
    if baseline is not None:
      changes = [
        tables.change(speed, compare.mean(baseline, _speed)),
        tables.change(of_token['total'], baseline.first.flops['total']),
      ]
    rows.append(
      [
        variant.label,
        f'{speed:,.0f}',
        changes[0],
        f'{compare.mean(variant, lambda run: run.seconds):,.0f}',
        f'{of_token["total"]:.4g}',
        changes[1],
        f'{of_token["embedder"]:.4g}',
        f'{of_token["total"] * variant.first.tokens:.4g}',
      ]
    )
  names = _names(groups)
  header = [
      'arm', 'tokens per second', f'speed over {names}', 'seconds',
      'FLOPs per token', f'FLOPs over {names}', 'of the input', 'FLOPs in all',
  ]  # yapf: disable
  caption = (
    'Tokens per second are the median over the steps, then the mean over '
    'seeds; they compare runs on one machine alone. Seconds are those of the '
    'training steps, without evaluation, saving and compiling. FLOPs are '
    "counted from the model's sizes, forward and backward."
  )
  table = document.Table('cost', caption, header, rows)
  return document.Section('Cost', [table])


def _speed(run: runs.Run) -> float:
  return run.tokens_per_second


def _names(groups: groups_lib.Groups) -> str:
  """Of the baselines."""
  if len(groups.baselines) == 1:
    return groups.baselines[0].label
  return groups.baselines[0].first.label


def _numbers(values: Sequence[int]) -> str:
  return ', '.join(map(str, values))
