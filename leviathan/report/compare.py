"""What runs say of one another: gains, tokens to match, ablation, strata.

Differences are ours less theirs in nats per token, so below 0 is better; a gain
is by how many percent the perplexity is lower, so above 0 is better. Both are
paired by seed, where there is one in common: runs of one seed saw the same
batches.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import NamedTuple

import numpy as np
from scipy import optimize

from leviathan import errors
from leviathan import metrics
from leviathan.eval import frequency
from leviathan.report import groups
from leviathan.report import pairing
from leviathan.report import replicates
from leviathan.report import runs

Value = Callable[[runs.Run], float]
# What the paper's gain is made of: (step, ours, theirs). The parts telescope.
ABLATION = (
  ('continuity', 'flat_mlp', 'tied'),
  ('composition', 'factorized_mlp', 'flat_mlp'),
  ('splines', 'lev', 'factorized_mlp'),
  ('whole', 'lev', 'tied'),
)


def nats(dataset: str) -> Value:
  """Of a run: nats per token of a dataset."""
  return lambda run: run.results['perplexity'][dataset]['nats_per_token']


def gain(difference: float) -> float:
  """Percent by which the perplexity is lower, of a difference in nats."""
  return 100 * (1 - metrics.from_mean(difference)['perplexity'])


def difference(
  ours: groups.Variant, theirs: groups.Variant, value: Value
) -> replicates.Estimate:
  """Ours less theirs, paired by seed.

  Without a seed in common it is the difference of the means, and has no
  interval.
  """
  if paired := pairing.pairs(ours, theirs):
    return replicates.difference(
      [value(a) for a, _ in paired], [value(b) for _, b in paired]
    )
  return replicates.Estimate(mean(ours, value) - mean(theirs, value), None)


def loss(
  ours: groups.Variant, theirs: groups.Variant, dataset: str
) -> replicates.Estimate | replicates.Interval:
  """The difference in nats per token; of a single pair, paired by sequence.

  Raises:
    CheckpointError: samples of the pair are of different tokens.
  """
  if pair := pairing.by_sequence(ours, theirs, dataset):
    (row,) = _by_sequence(*pair, dataset, 'total')
    return row.difference
  return difference(ours, theirs, nats(dataset))


def loss_gain(
  ours: groups.Variant, theirs: groups.Variant, dataset: str
) -> replicates.Estimate | replicates.Interval:
  """As `loss`, in percent of the perplexity."""
  found = loss(ours, theirs, dataset)
  if isinstance(found, replicates.Interval):
    return interval_gain(found)
  return gains(ours, theirs, nats(dataset))


def interval_gain(difference: replicates.Interval) -> replicates.Interval:
  """The gain of a difference in nats, whose low end is a high one of it."""
  return replicates.Interval(
    *map(gain, (difference.mean, difference.high, difference.low))
  )


def gains(
  ours: groups.Variant, theirs: groups.Variant, value: Value
) -> replicates.Estimate:
  """As `difference`, of a value in nats, in percent of the perplexity."""
  if paired := pairing.pairs(ours, theirs):
    return replicates.estimate([gain(value(a) - value(b)) for a, b in paired])
  return replicates.Estimate(gain(difference(ours, theirs, value).mean), None)


def mean(variant: groups.Variant, value: Value) -> float:
  """Over its runs."""
  return replicates.estimate([value(run) for run in variant.runs]).mean


class Match(NamedTuple):
  """Tokens that were needed to come to a loss.

  Attributes:
    tokens: how many; None if the loss was not reached.
    at_most: whether the first evaluation was there already, so that it took as
      many or fewer.
  """

  tokens: float | None
  at_most: bool


def smoothed(nats_P: Sequence[float]) -> np.ndarray:
  """The falling curve that is nearest to a curve in squares.

  Isotonic regression has nothing to be chosen, and leaves what falls as it is;
  a lucky dip does not count for more than the rise after it.
  """
  if not len(nats_P):
    return np.zeros(0)
  return optimize.isotonic_regression(nats_P, increasing=False).x


def tokens_to(
  tokens_P: Sequence[float], nats_P: Sequence[float], target: float
) -> Match:
  """Where a curve comes to a loss: between two points, never beyond the last.

  Args:
    tokens_P: seen at each evaluation, rising.
    nats_P: the loss then, smoothed here.
    target: nats per token.
  """
  smooth_P = smoothed(nats_P)
  reached = np.flatnonzero(smooth_P <= target)
  if not len(reached):
    return Match(None, False)
  i = int(reached[0])
  if i == 0:
    return Match(float(tokens_P[0]), True)
  high, low = smooth_P[i - 1], smooth_P[i]
  share = (high - target) / (high - low)
  start, end = tokens_P[i - 1], tokens_P[i]
  return Match(float(start + share * (end - start)), False)


class Race(NamedTuple):
  """A run and its baseline: tokens of each to the baseline's final loss."""

  match: Match
  baseline_tokens: float

  @property
  def factor(self) -> float:
    """By how much fewer; at least so much for a match that is at most."""
    return self.baseline_tokens / (self.match.tokens or math.nan)


def races(
  ours: groups.Variant, theirs: groups.Variant, dataset: str
) -> list[Race]:
  """A pair of one seed each, of those whose curves can tell.

  Both curves are smoothed. The baseline's final loss is where its own ends, and
  its tokens those at which its own comes to that, so that a curve needs as many
  as itself. Both must end with a finite loss at the step that is shown, and
  more than the first evaluation must be known of what is there already.
  """
  found = []
  for run, baseline in pairing.pairs(ours, theirs):
    (tokens_P, nats_P), (end_P, target_P) = (
      r.curve(f'validation/{dataset}') for r in (run, baseline)
    )
    if tokens_P[-1:] != [run.tokens] or end_P[-1:] != [baseline.tokens]:
      continue
    target = smoothed(target_P)[-1]
    match = tokens_to(tokens_P, nats_P, target)
    own = tokens_to(end_P, target_P, target)
    if own.tokens is None or own.at_most or (match.at_most and len(nats_P) < 2):
      continue
    found.append(Race(match, own.tokens))
  return found


def curves(
  variants: Sequence[groups.Variant], split: str, by: str
) -> dict[str, list[tuple[list[float], list[float]]]]:
  """{label: (x, nats per token) of each seed}; see `runs.Run.curve`."""
  return {v.label: [r.curve(split, by) for r in v.runs] for v in variants}


class Part(NamedTuple):
  """A part of the gain: what one arm has over another."""

  name: str
  ours: str
  theirs: str
  seeds: int
  nats: replicates.Estimate
  gain: replicates.Estimate


def ablation(variants: Sequence[groups.Variant], dataset: str) -> list[Part]:
  """The parts of ABLATION; the nats of all but the last sum to the last's.

  Args:
    variants: of one scale, vocabulary and budget. Of several of an arm,
      `groups.best` counts.
    dataset: that is compared.

  Returns:
    Nothing if an arm is missing, or no seed is one that all the arms have: only
    these count, or the parts would not sum.
  """
  value = nats(dataset)
  of_arm: dict[str, list[groups.Variant]] = {}
  for variant in variants:
    of_arm.setdefault(variant.first.label, []).append(variant)
  names = dict.fromkeys(n for _, *pair in ABLATION for n in pair)
  if not names.keys() <= of_arm.keys():
    return []
  used = _with_common_seeds({name: groups.best(of_arm[name]) for name in names})
  if not all(variant.runs for variant in used.values()):
    return []
  parts = []
  for part, a, b in ABLATION:
    ours, theirs = used[a], used[b]
    parts.append(
      Part(
        part,
        ours.label,
        theirs.label,
        len(ours.runs),
        difference(ours, theirs, value),
        gains(ours, theirs, value),
      )
    )
  return parts


def _with_common_seeds(
  variants: Mapping[str, groups.Variant],
) -> dict[str, groups.Variant]:
  common = set.intersection(*(set(v.seeds) for v in variants.values()))
  kept = {}
  for name, variant in variants.items():
    runs_ = tuple(r for r in variant.runs if r.seed in common)
    kept[name] = dataclasses.replace(variant, runs=runs_)
  return kept


class Stratum(NamedTuple):
  """A variant less its baseline, in one bin of frequency.

  Attributes:
    frequency: name of the bin.
    tokens: that were scored; 0 leaves the others nan.
    nats: the difference per token.
    low: end of its 95 % interval, or nan.
    high: its other end.
  """

  frequency: str
  tokens: int
  nats: float
  low: float
  high: float

  @property
  def difference(self) -> replicates.Interval:
    """In nats per token."""
    return replicates.Interval(self.nats, self.low, self.high)

  @property
  def gain(self) -> replicates.Interval:
    """In percent of the perplexity."""
    return interval_gain(self.difference)


def strata(
  ours: groups.Variant, theirs: groups.Variant, dataset: str, side: str
) -> list[Stratum]:
  """The difference by frequency.

  Args:
    ours: the variant.
    theirs: its baseline.
    dataset: that was evaluated.
    side: of `eval.frequency.SIDES`.

  Returns:
    A stratum a bin. The interval is Student's over the seeds, or of the
    bootstrap over sequences where there is one pair, and its samples.

  Raises:
    CheckpointError: samples of the pair are of different tokens.
  """
  if pair := pairing.by_sequence(ours, theirs, dataset):
    return _by_sequence(*pair, dataset, side)
  found = []
  for i, row in enumerate(theirs.first.results['frequency'][dataset][side]):
    low = high = value = math.nan
    if row['tokens']:
      value, half = difference(ours, theirs, in_bin(dataset, side, i))
      if half is not None:
        low, high = value - half, value + half
    found.append(Stratum(row['frequency'], row['tokens'], value, low, high))
  return found


def in_bin(dataset: str, side: str, i: int) -> Value:
  """Of a run: nats per token of a bin, nan if it has no tokens."""
  return lambda run: run.results['frequency'][dataset][side][i].get(
    'nats_per_token', math.nan
  )


def _by_sequence(
  run: runs.Run, baseline: runs.Run, dataset: str, side: str
) -> list[Stratum]:
  try:
    compared = frequency.compare(
      baseline.samples[dataset], run.samples[dataset]
    )
  except errors.DataError as e:
    raise errors.CheckpointError(
      f'{baseline.path} and {run.path}, {dataset}: {e}'
    ) from e
  return [
    Stratum(
      row['frequency'],
      row['tokens'],
      row.get('nats_per_token_difference', math.nan),
      *row.get('nats_per_token_difference_interval', (math.nan, math.nan)),
    )
    for row in compared[side]
  ]
