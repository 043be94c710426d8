"""Sections of a report: losses, tokens to match, ablation.

Each takes groups of runs and returns a section, or None where there is nothing
to say.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import math
import statistics

from leviathan import metrics
from leviathan.report import compare
from leviathan.report import document
from leviathan.report import groups as groups_lib
from leviathan.report import pairing
from leviathan.report import replicates
from leviathan.report import tables

# Of a difference in nats and the gain in perplexity, as numbers.
DIFFERENCE = (
  'difference_nats', 'difference_low', 'difference_high',
  'gain_percent', 'gain_low', 'gain_high',
)  # fmt: skip


def losses(groups: groups_lib.Groups, dataset: str) -> document.Section:
  """Final loss, perplexity and bits per byte, and what is gained."""
  value = compare.nats(dataset)
  rows = []
  values: list[list] = [
    [
      'arm', 'seeds', 'runs', 'tokens', 'nats_per_token', 'nats_low',
      'nats_high', 'perplexity', 'bits_per_byte', 'over', 'paired_by', 'pairs',
      *DIFFERENCE,
    ]
  ]  # fmt: skip
  for variant in groups.variants:
    nats = replicates.estimate([value(run) for run in variant.runs])
    perplexity = metrics.from_mean(nats.mean)['perplexity']
    bits = compare.mean(variant, _bits(dataset))
    tokens, seeds = variant.first.tokens, ', '.join(map(str, variant.seeds))
    cells, numbers = _over_baseline(groups, variant, dataset)
    rows.append(
      [
        variant.label,
        seeds,
        f'{tokens:,}',
        tables.said(nats, '.4f'),
        f'{perplexity:.2f}',
        f'{bits:.4f}',
        *cells,
      ]
    )
    values.append(
      [variant.label, seeds, len(variant.runs), tokens]
      + [*tables.ends(nats), perplexity, bits, *numbers]
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
  table = document.Table(
    tables.name('loss', dataset), caption, header, rows, values
  )
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
) -> tuple[list[str], list]:
  """[the baseline, pairs, difference in nats, gain in %], and as numbers."""
  baseline = groups.baseline(variant)
  if baseline is None or baseline is variant:
    return [tables.NONE] * 4, ['', '', *[math.nan] * (1 + len(DIFFERENCE))]
  cells, numbers = against(variant, baseline, dataset)
  return [baseline.label, *cells], [baseline.label, *numbers]


def against(
  ours: groups_lib.Variant, theirs: groups_lib.Variant, dataset: str
) -> tuple[list[str], list]:
  """What one has over another.

  Returns:
    [pairs, difference in nats, gain in %], and as numbers what the pairs are,
    their count and DIFFERENCE.
  """
  how = pairing.of(ours, theirs, dataset)
  nats = compare.loss(ours, theirs, dataset)
  gain = compare.loss_gain(ours, theirs, dataset)
  return (
    [str(how), tables.said(nats, '+.4f'), tables.said(gain, '+.2f')],
    [*how, *tables.ends(nats), *tables.ends(gain)],
  )


def subsets(groups: groups_lib.Groups, dataset: str) -> document.Section | None:
  """Losses and gains by subset."""
  names = groups.subsets(dataset)
  if not names:
    return None
  of_subset = {name.rpartition('/')[2]: compare.nats(name) for name in names}
  file = tables.name('subsets', dataset)
  parts = [
    _by_subset(
      file,
      'Nats per token by subset, means over seeds.',
      ['nats_per_token', 'low', 'high'],
      '.4f',
      {
        (name, v.label): replicates.estimate([value(run) for run in v.runs])
        for name, value in of_subset.items()
        for v in groups.variants
      },
    )
  ]
  if rivals := groups.rivals():
    parts.append(
      _by_subset(
        f'{file}_gain',
        'Gain in perplexity over the baseline by subset, %. '
        + pairing.of_rivals(rivals),
        ['gain_percent', 'low', 'high'],
        '+.2f',
        {
          (name, rival[0].label): compare.gains(*rival, value)
          for name, value in of_subset.items()
          for rival in rivals
        },
      )
    )
  return document.Section(f'Subsets of {dataset}', parts)


def _by_subset(
  file: str,
  caption: str,
  unit: Sequence[str],
  form: str,
  found: Mapping[tuple[str, str], replicates.Estimate],
) -> document.Table:
  """A row a subset, a column a variant; of {(subset, label): estimate}."""
  subsets_, labels = (dict.fromkeys(key) for key in zip(*found, strict=True))
  rows = [
    [name, *(tables.said(found[name, label], form) for label in labels)]
    for name in subsets_
  ]
  values = [['subset', 'arm', *unit]] + [
    [*key, *tables.ends(estimate)] for key, estimate in found.items()
  ]
  return document.Table(file, caption, ['subset', *labels], rows, values)


def tokens_to_match(
  groups: groups_lib.Groups, dataset: str
) -> document.Section | None:
  """How many tokens each needs to come to its baseline's final loss."""
  rows = []
  values: list[list] = [
    [
      'arm', 'over', 'pairs', 'reached', 'tokens', 'factor', 'factor_low',
      'factor_high', 'bound', 'baseline_tokens',
    ]
  ]  # fmt: skip
  for variant, baseline in groups.rivals():
    races = compare.races(variant, baseline, dataset)
    if races:
      cells, numbers = _raced(races)
      rows.append([variant.label, baseline.label, *cells])
      values.append([variant.label, baseline.label, *numbers])
  if not rows:
    return None
  header = [
    'arm', 'over', 'pairs', 'tokens to match', 'factor', "baseline's tokens",
  ]  # fmt: skip
  caption = (
    "Tokens until the baseline's final loss is reached, and by what factor "
    'they are fewer than those after which the baseline itself is there; means '
    "over pairs of runs of one seed, with the 95 % interval of Student's t "
    'where there are several. The validation curves are smoothed into ones '
    'that never rise (isotonic regression) and read by straight lines between '
    'evaluations, never beyond the last one.'
  )
  table = document.Table(
    tables.name('tokens_to_match', dataset), caption, header, rows, values
  )
  return document.Section(f'Tokens to match on {dataset}', [table])


def _raced(races: Sequence[compare.Race]) -> tuple[list[str], list]:
  """[pairs, tokens, factor, tokens of the baseline], and as numbers.

  Of these a bound says that as many tokens or fewer were needed, and the factor
  is as much or more.
  """
  seeds = len(races)
  pairs = str(pairing.Pairing('seed', seeds))
  needed = statistics.fmean(r.baseline_tokens for r in races)
  reached = sum(race.match.tokens is not None for race in races)
  if reached < seeds:
    some = f' by {seeds - reached} of {seeds} seeds' if seeds > 1 else ''
    return (
      [pairs, f'not reached{some}', tables.NONE, f'{needed:,.0f}'],
      [seeds, reached, *[math.nan] * 4, '', needed],
    )
  tokens = statistics.fmean(race.match.tokens or math.nan for race in races)
  factor = replicates.estimate([race.factor for race in races])
  bound = any(race.match.at_most for race in races)
  if bound:  # It has no interval.
    factor = replicates.Estimate(factor.mean, None)
  words = ('at most ', 'at least ') if bound else ('', '')
  return (
    [
      pairs,
      f'{words[0]}{tokens:,.0f}',
      f'{words[1]}{tables.said(factor, ".2f")}',
      f'{needed:,.0f}',
    ],
    [seeds, reached, tokens, *tables.ends(factor)]
    + ['at most' if bound else '', needed],
  )


def ablation(
  groups: groups_lib.Groups, dataset: str
) -> document.Section | None:
  """What the gain is made of, at each scale and budget with all arms."""
  parts = [
    part
    for variants in groups.comparable()
    for part in compare.ablation(variants, dataset)
  ]
  if not parts:
    return None
  rows = [
    [
      part.name,
      f'{part.ours} over {part.theirs}',
      str(pairing.Pairing('seed', part.seeds)),
      tables.said(part.nats, '+.4f'),
      tables.said(part.gain, '+.2f'),
    ]
    for part in parts
  ]
  values = [['part', 'arm', 'over', 'pairs', *DIFFERENCE]] + [
    [*part[:4], *tables.ends(part.nats), *tables.ends(part.gain)]
    for part in parts
  ]
  header = ['part', 'arms', 'pairs', 'difference, nats', 'gain, %']
  caption = (
    'A part is what one arm has over another. Differences in nats sum to that '
    'of the whole; the gains in perplexity multiply, so their percentages sum '
    'to it only nearly. Seeds are those that all four arms have.'
  )
  table = document.Table(
    tables.name('ablation', dataset), caption, header, rows, values
  )
  return document.Section(f'Ablation on {dataset}', [table])
