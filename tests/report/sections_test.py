"""Files of losses hold plain numbers; their tables: see compare_test.py."""

import json
import math

import pytest

from leviathan.report import compare
from leviathan.report import groups
from leviathan.report import sections


def read(make_run, **losses):
  """Runs of arms, a seed a loss."""
  return groups.read(
    [
      str(make_run(f'{arm}{seed}', arm, nats, seed=seed))
      for arm, values in losses.items()
      for seed, nats in enumerate(values)
    ]
  )


def ends(row, *names):
  return [row[name] for name in names]


def test_losses_are_numbers_in_columns_of_their_own(make_run, numbers):
  found = read(make_run, tied=(2.0, 3.0), lev=(1.8, 2.9), albert=(2.5,))
  tied, lev, albert = numbers(sections.losses(found, 'a').parts[1])
  # s = 0.7071 and 0.0707, t(0.975, 1) = 12.706, over sqrt(2).
  assert ends(tied, 'nats_per_token', 'nats_low', 'nats_high') == pytest.approx(
    [2.5, 2.5 - 6.3531, 2.5 + 6.3531], abs=1e-4
  )
  assert (tied['runs'], tied['tokens'], tied['over']) == (2, 400, '')
  assert math.isnan(tied['difference_nats']) and math.isnan(tied['pairs'])
  assert ends(lev, 'over', 'paired_by', 'pairs') == ['tied', 'seed', 2]
  assert ends(
    lev, 'difference_nats', 'difference_low', 'difference_high'
  ) == pytest.approx([-0.15, -0.15 - 0.6353, -0.15 + 0.6353], abs=1e-4)
  gain = lev['gain_percent']
  assert lev['gain_low'] < gain < lev['gain_high']
  of_pairs = [compare.gain(-0.2), compare.gain(-0.1)]
  assert gain == pytest.approx(sum(of_pairs) / 2)
  assert albert['difference_nats'] == 0.5 and albert['pairs'] == 1
  assert math.isnan(albert['nats_low']) and math.isnan(albert['gain_high'])
  assert albert['perplexity'] == pytest.approx(math.exp(2.5))


def test_subsets_are_a_row_a_number_and_say_how_they_are_paired(
  make_run, numbers
):
  found = read(make_run, tied=(2.0, 2.0), lev=(1.9, 1.8))
  for variant in found.variants:
    for run in variant.runs:
      for file in (run.path / 'eval' / '4').glob('*.json'):
        document = json.loads(file.read_text())
        sets = document['datasets']
        document['datasets'] |= {'a/code': sets['a'], 'a/web': sets['a']}
        file.write_text(json.dumps(document))
  found = groups.read([str(r.path) for v in found.variants for r in v.runs])
  section = sections.subsets(found, 'a')
  assert section is not None
  nats, gains = section.parts
  rows = numbers(nats)
  assert [ends(row, 'subset', 'arm') for row in rows] == [
    ['code', 'tied'], ['code', 'lev'], ['web', 'tied'], ['web', 'lev'],
  ]  # fmt: skip
  assert rows[1]['nats_per_token'] == pytest.approx(1.85)
  row, _ = numbers(gains)
  assert row['low'] < row['gain_percent'] < row['high']
  assert gains.caption.endswith('over the 2 seeds.')


def test_the_ablation_is_numbers(make_run, numbers):
  arms = {'tied': 3.0, 'flat_mlp': 2.9, 'factorized_mlp': 2.85, 'lev': 2.7}
  found = read(make_run, **{arm: (nats, nats) for arm, nats in arms.items()})
  section = sections.ablation(found, 'a')
  assert section is not None
  whole = numbers(section.parts[0])[-1]
  assert ends(whole, 'part', 'arm', 'over', 'pairs') == [
    'whole', 'lev', 'tied', 2,
  ]  # fmt: skip
  assert ends(
    whole, 'difference_nats', 'difference_low', 'difference_high'
  ) == pytest.approx([-0.3] * 3)
  assert whole['gain_low'] == pytest.approx(compare.gain(-0.3))
