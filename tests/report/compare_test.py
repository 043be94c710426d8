"""Gains, tokens to match, ablation and strata of runs with known answers."""

import json
import math
import re

import numpy as np
import pytest

from leviathan import errors
from leviathan.report import compare
from leviathan.report import groups
from leviathan.report import sections

NATS = compare.nats('a')


def read(*paths):
  return groups.read([str(path) for path in paths])


def seeds(make_run, arm, values, **kwargs):
  """A run a seed."""
  return [
    make_run(f'{arm}{seed}', arm, nats, seed=seed, **kwargs)
    for seed, nats in enumerate(values)
  ]


def test_a_gain_is_by_how_much_the_perplexity_is_lower():
  assert compare.gain(math.log(0.908)) == pytest.approx(9.2)
  assert compare.gain(math.log(1.1)) == pytest.approx(-10)
  assert compare.gain(0.0) == 0


def test_differences_and_gains_have_the_spread_of_their_pairs(make_run):
  found = read(
    *seeds(make_run, 'tied', [2.0, 3.0, 4.0]),
    *seeds(make_run, 'lev', [1.9, 2.8, 3.7]),
  )
  lev, tied = reversed(found.variants)
  # Of -0.1, -0.2 and -0.3: s = 0.1, t(0.975, 2) = 4.303, over sqrt(3).
  difference = compare.difference(lev, tied, NATS)
  assert difference.mean == pytest.approx(-0.2)
  assert difference.half_width == pytest.approx(0.2484, abs=5e-5)
  # Of 9.516, 18.127 and 25.918 %: their mean and s = 8.206.
  gains = compare.gains(lev, tied, NATS)
  assert gains.mean == pytest.approx(17.854, abs=5e-4)
  assert gains.half_width == pytest.approx(20.385, abs=5e-3)


def test_only_seeds_that_both_have_are_paired(make_run):
  found = read(
    *seeds(make_run, 'tied', [2.0, 3.0, 9.0]),
    *seeds(make_run, 'lev', [1.9, 2.8]),
  )
  lev, tied = reversed(found.variants)
  assert compare.difference(lev, tied, NATS).mean == pytest.approx(-0.15)


def test_without_a_seed_in_common_means_are_compared_unsure(make_run):
  found = read(
    make_run('a', nats=2.0, seed=0),
    make_run('b', nats=3.0, seed=1),
    make_run('c', 'lev', nats=2.25, seed=2),
  )
  tied, lev = found.variants
  assert compare.difference(lev, tied, NATS) == (-0.25, None)
  assert compare.gains(lev, tied, NATS) == (compare.gain(-0.25), None)
  assert compare.races(lev, tied, 'a') == []


def test_a_loss_is_reached_between_two_evaluations():
  tokens, nats = [100, 200, 400, 800], [5.0, 4.0, 3.0, 2.0]
  assert compare.tokens_to(tokens, nats, 3.25) == (350, False)
  assert compare.tokens_to(tokens, nats, 2.5) == (600, False)
  assert compare.tokens_to(tokens, nats, 3.0) == (400, False)
  assert compare.tokens_to(tokens, nats, 2.0) == (800, False)


def test_what_is_not_reached_is_not_guessed():
  tokens, nats = [100, 200, 400], [5.0, 4.0, 3.0]
  assert compare.tokens_to(tokens, nats, 2.999) == (None, False)
  assert compare.tokens_to([], [], 2.0) == (None, False)
  # It was there before the first evaluation; who knows when.
  assert compare.tokens_to(tokens, nats, 6.0) == (100, True)


def test_smoothing_never_rises_and_keeps_what_falls():
  assert compare.smoothed([5.0, 4.0, 3.5]).tolist() == [5, 4, 3.5]
  assert compare.smoothed([5.0, 3.0, 4.0, 2.0]).tolist() == [5, 3.5, 3.5, 2]
  noisy = np.random.default_rng(0).normal(size=50) - np.arange(50) / 10
  smooth = compare.smoothed(noisy.tolist())
  assert np.all(np.diff(smooth) <= 0)
  assert smooth.mean() == pytest.approx(noisy.mean())


def test_a_lucky_dip_does_not_reach_a_loss():
  tokens, nats = [100, 200, 300, 400], [5.0, 2.9, 4.1, 2.0]
  # Smoothed it is 5, 3.5, 3.5 and 2.
  match = compare.tokens_to(tokens, nats, 3.0)
  assert match.tokens == pytest.approx(333.333, abs=5e-4)


def test_the_factor_of_curves_that_cross_at_a_known_token(make_run):
  found = read(
    make_run('a', nats=3.0, curve={1: 6.0, 2: 5.0, 4: 3.0}),
    # It passes 3.0 a quarter of the way from 200 to 400 tokens.
    make_run('b', 'lev', nats=2.0, curve={1: 7.0, 2: 10 / 3, 4: 2.0}),
    make_run('c', 'albert', nats=3.5, curve={1: 7.0, 2: 5.0, 4: 3.5}),
  )
  tied, lev, albert = found.variants
  (race,) = compare.races(lev, tied, 'a')
  assert race.match.tokens == pytest.approx(250)
  assert race.factor == pytest.approx(1.6)
  (race,) = compare.races(tied, tied, 'a')
  assert race.factor == 1
  (race,) = compare.races(albert, tied, 'a')
  assert race.match.tokens is None and math.isnan(race.factor)
  section = sections.tokens_to_match(found, 'a')
  assert section is not None
  (table,) = section.parts
  assert table.rows == [
    ['lev', 'tied', '1 seed', '250', '1.60', '400'],
    ['albert', 'tied', '1 seed', 'not reached', '-', '400'],
  ]


def test_tokens_to_match_are_those_of_every_seed_or_of_none(make_run, numbers):
  def run(name, arm, seed, curve):
    return make_run(name, arm, seed=seed, curve=curve)

  found = read(
    run('a', 'tied', 0, {1: 6.0, 4: 3.0}),
    run('b', 'tied', 1, {1: 6.0, 4: 3.0}),
    run('c', 'lev', 0, {1: 5.0, 3: 3.0, 4: 2.0}),
    run('d', 'lev', 1, {1: 5.0, 2: 3.0, 4: 2.0}),
    run('e', 'untied', 0, {1: 5.0, 2: 3.0, 4: 2.0}),
    run('f', 'untied', 1, {1: 5.0, 2: 4.0, 4: 3.1}),
    run('g', 'albert', 0, {2: 2.0, 4: 1.0}),
    run('h', 'albert', 1, {2: 2.0, 4: 1.0}),
  )
  section = sections.tokens_to_match(found, 'a')
  assert section is not None
  (table,) = section.parts
  # Factors 4/3 and 2: mean 5/3, s = 0.4714, t(0.975, 1) = 12.706.
  assert table.rows == [
    ['lev', 'tied', '2 seeds', '250', '1.67 +- 4.24', '400'],
    ['untied', 'tied', '2 seeds', 'not reached by 1 of 2 seeds', '-', '400'],
    ['albert', 'tied', '2 seeds', 'at most 200', 'at least 2.00', '400'],
  ]
  rows = numbers(table)
  lev, untied, albert = rows
  assert [lev[k] for k in ('pairs', 'reached', 'tokens')] == [2, 2, 250]
  factor = [lev[k] for k in ('factor', 'factor_low', 'factor_high')]
  assert factor == pytest.approx(
    [5 / 3, 5 / 3 - 4.235, 5 / 3 + 4.235], abs=1e-3
  )
  assert (untied['reached'], lev['bound']) == (1, '')
  assert math.isnan(untied['tokens']) and math.isnan(untied['factor'])
  assert (albert['bound'], albert['tokens'], albert['factor']) == (
    'at most', 200, 2,
  )  # fmt: skip
  assert math.isnan(albert['factor_low'])
  assert [row['baseline_tokens'] for row in rows] == [400] * 3


def test_a_curve_matches_itself_with_as_many_tokens(make_run):
  # Smoothed it ends with 2.55, which it comes to at 200 tokens.
  curve = {1: 3.0, 2: 2.5, 4: 2.6}
  found = read(make_run('a', curve=curve), make_run('b', 'lev', curve=curve))
  (race,) = compare.races(found.variants[1], found.variants[0], 'a')
  assert race.factor == 1
  assert race.baseline_tokens == race.match.tokens == pytest.approx(200)


LOST = float('nan')


@pytest.mark.parametrize(
  'tied, lev',
  [
    ({1: 3.0, 2: 2.9, 4: LOST}, {1: 2.8, 4: 2.0}),
    ({1: 3.0, 4: 2.5}, {1: 2.8, 2: 2.0, 4: LOST}),
    ({1: 3.0, 2: 2.5}, {1: 2.8, 4: 2.0}),  # Not evaluated when it ended.
    ({4: 3.0}, {4: 2.5}),
    ({1: 5.0, 4: 3.0}, {4: 2.5}),
    ({1: 3.0, 4: 3.5}, {1: 2.8, 4: 2.0}),
  ],
)
def test_curves_that_cannot_tell_run_no_race(make_run, tied, lev):
  found = read(make_run('a', curve=tied), make_run('b', 'lev', curve=lev))
  assert compare.races(found.variants[1], found.variants[0], 'a') == []


def test_a_run_that_goes_on_races_no_further_than_it_is_shown(make_run):
  found = read(
    make_run('a', curve={1: 6.0, 4: 3.0}),
    make_run('b', 'lev', curve={1: 5.0, 4: 4.0, 8: 1.0}, steps=8),
  )
  (race,) = compare.races(found.variants[1], found.variants[0], 'a')
  assert race.match.tokens is None


ARMS = {'tied': 3.0, 'flat_mlp': 2.98, 'factorized_mlp': 2.9, 'lev': 2.85}


def test_the_parts_of_the_ablation_sum_to_the_whole(make_run):
  paths = []
  for i, (arm, nats) in enumerate(ARMS.items()):
    # A fourth seed of two arms must not count, nor a rate with one seed alone.
    values = [
      nats,
      nats + 0.1 * i**2,
      nats - 0.05 * i,
      *[9.0 + i] * (i in (1, 2)),
    ]
    paths += seeds(make_run, arm, values)
  other = {'optimizer.learning_rate': 0.1}
  paths.append(make_run('other', 'lev', 1.0, changes=other))
  parts = compare.ablation(read(*paths).variants, 'a')
  assert [(p.name, p.ours, p.theirs) for p in parts] == [
    ('continuity', 'flat_mlp', 'tied'),
    ('composition', 'factorized_mlp', 'flat_mlp'),
    ('splines', 'lev, rate 0.002', 'factorized_mlp'),
    ('whole', 'lev, rate 0.002', 'tied'),
  ]
  *steps, whole = [part.nats.mean for part in parts]
  # Of lev: -0.15, +0.75 and -0.3.
  assert whole == pytest.approx(0.1)
  assert sum(steps) == pytest.approx(whole, abs=1e-12)


def test_the_ablation_says_percent_of_perplexity_as_the_paper(make_run):
  # Its +1.13, +0.37 and +0.62 %, each over the arm before.
  nats, paths = 3.0, []
  for arm, gain in zip(ARMS, (0, 1.13, 0.37, 0.62), strict=True):
    nats += math.log(1 - gain / 100)
    paths.append(make_run(arm, arm, nats))
  found = read(*paths)
  section = sections.ablation(found, 'a')
  assert section is not None
  (table,) = section.parts
  assert [row[4] for row in table.rows] == ['+1.13', '+0.37', '+0.62', '+2.11']
  assert [row[2] for row in table.rows] == ['1 seed'] * 4
  assert [row[3] for row in table.rows] == [
    '-0.0114', '-0.0037', '-0.0062', '-0.0213',
  ]  # fmt: skip
  less = read(*paths[:3])
  assert compare.ablation(less.variants, 'a') == []
  assert sections.ablation(less, 'a') is None


def test_without_a_common_seed_there_is_no_ablation(make_run):
  paths = [
    make_run(arm, arm, nats, seed=seed)
    for seed, (arm, nats) in enumerate(ARMS.items())
  ]
  assert compare.ablation(read(*paths).variants, 'a') == []


def test_the_ablation_is_of_one_budget(make_run):
  paths = [make_run(arm, arm, nats) for arm, nats in ARMS.items()]
  longer = make_run('longer', nats=2.0, steps=8, evaluated=(8,))
  other = sections.ablation(read(*paths[1:], longer), 'a')
  assert other is None
  section = sections.ablation(read(*paths, longer), 'a')
  assert section is not None
  assert [row[3] for row in section.parts[0].rows][-1] == '-0.1500'


def test_strata_of_several_seeds_are_paired_by_seed(make_run):
  paths = []
  for seed, (theirs, ours) in enumerate([(8.0, 7.0), (9.0, 7.6)]):
    for arm, nats in (('tied', theirs), ('lev', ours)):
      strata = {1: (nats, 20), 6: (2.0, 900)}
      paths.append(make_run(f'{arm}{seed}', arm, seed=seed, strata=strata))
  tied, lev = read(*paths).variants
  found = compare.strata(lev, tied, 'a', 'bins')
  # Of -1.0 and -1.4: s = 0.2828, t(0.975, 1) = 12.706, over sqrt(2).
  rare = found[1]
  assert (rare.frequency, rare.tokens) == ('below 1e-07', 20)
  assert rare.nats == pytest.approx(-1.2)
  assert (rare.low, rare.high) == pytest.approx((-3.741, 1.341), abs=5e-4)
  assert found[6][1:] == (900, 0, 0, 0)
  assert found[2].tokens == 0 and math.isnan(found[2].nats)


def write_samples(path, nats, tokens=5):
  """Of ten sequences: bin 2 costs so much more in each, bin 3 always 9."""
  lines = []
  for i in range(10):
    part = {'nats': [0.0] * 7, 'tokens': [0] * 7}
    part['tokens'][2:4] = tokens, 1
    part['nats'][2:4] = tokens * (nats + i), 9.0
    line = {'dataset': 'a', 'sequence': i, 'predicted': part, 'input': part}
    lines += [line, line | {'dataset': 'another'}]
  file = path / 'eval' / '4' / 'frequency.samples.jsonl'
  file.write_text(''.join(json.dumps(line) + '\n' for line in lines))
  return path


def test_strata_of_one_seed_are_paired_by_sequence(make_run):
  paths = [
    write_samples(make_run('a', nats=2.0), 2.0),
    write_samples(make_run('b', 'lev', nats=1.5), 1.5),
  ]
  tied, lev = read(*paths).variants
  # Half a nat of 50 tokens in 60, in each sequence; not the mean of the file.
  assert compare.loss(lev, tied, 'a') == pytest.approx([-25 / 60] * 3)
  for side in ('bins', 'input_bins'):
    found = compare.strata(lev, tied, 'a', side)
    # Sequences differ by nats, the runs by the same in each: no doubt is left.
    assert found[2][1:] == pytest.approx((50, -0.5, -0.5, -0.5))
    assert found[3][1:] == pytest.approx((10, 0, 0, 0))
    assert found[0].tokens == 0


def test_losses_say_what_they_are_paired_by(make_run):
  def said(*paths):
    table = sections.losses(read(*paths), 'a').parts[1]
    assert table.header[6:] == ['over', 'pairs', 'difference, nats', 'gain, %']
    return [row[7:] for row in table.rows if row[6] == 'tied']

  tied = write_samples(make_run('a', nats=2.0), 2.0)
  lev = make_run('b', 'lev', nats=2.1)
  # Of 10 sequences 9 are as in the other run; the last costs 10 nats more.
  write_samples(lev, 2.0)
  file = lev / 'eval' / '4' / 'frequency.samples.jsonl'
  lines = [json.loads(line) for line in file.read_text().splitlines()]
  for line in lines[-2:]:
    line['predicted']['nats'][2] += 10
  file.write_text(''.join(json.dumps(line) + '\n' for line in lines))
  ((pairs, nats, gain),) = said(tied, lev)
  assert pairs == 'sequences'
  mean, low, high = map(float, re.findall('[-+][0-9.]+', nats))
  assert nats == f'{mean:+.4f} [{low:+.4f}, {high:+.4f}]'
  assert mean == pytest.approx(10 / 60, abs=5e-5)
  assert low == 0 and high - mean > 1.5 * (mean - low)
  ends = [float(x) for x in re.findall('[-+][0-9.]+', gain)]
  assert ends == pytest.approx(
    [compare.gain(x) for x in (mean, high, low)], abs=0.02
  )
  assert said(tied, make_run('c', 'lev', seed=1)) == [
    ['unpaired', '+0.0000', '+0.00']
  ]
  several = [
    make_run(f'{arm}{seed}', arm, seed=seed)
    for arm in ('tied', 'lev')
    for seed in range(3)
  ]
  assert said(*several) == [['3 seeds', '+0.0000 +- 0.0000', '+0.00 +- 0.00']]
  assert said(*several[::3]) == [['1 seed', '+0.0000', '+0.00']]


def test_strata_without_samples_have_no_interval(make_run):
  paths = [
    write_samples(make_run('a', nats=2.0), 2.0),
    make_run('b', 'lev', nats=1.5),
  ]
  tied, lev = read(*paths).variants
  rare = compare.strata(lev, tied, 'a', 'bins')[2]
  assert rare.nats == -0.5 and math.isnan(rare.low) and math.isnan(rare.high)


def test_samples_of_other_tokens_are_not_compared(make_run):
  paths = [
    write_samples(make_run('a', nats=2.0), 2.0),
    write_samples(make_run('b', 'lev', nats=1.5), 1.5, tokens=4),
  ]
  tied, lev = read(*paths).variants
  with pytest.raises(errors.CheckpointError, match='b, a: sequence 0 has'):
    compare.strata(lev, tied, 'a', 'bins')


def test_curves_have_a_line_a_seed(make_run):
  found = read(
    make_run('a', curve={2: 4.0, 4: 3.0}),
    make_run('b', seed=1, curve={2: 4.5, 4: 3.5}, seconds=2.0),
  )
  curves = compare.curves(found.variants, 'validation/a', 'seconds')
  assert curves == {
    'tied': [([2.0, 4.0], [4.0, 3.0]), ([4.0, 8.0], [4.5, 3.5])]
  }
