"""Sizes and cost over the baseline."""

import pytest

from leviathan.report import groups
from leviathan.report import sizes


def test_parameters_are_set_against_the_baseline_s(make_run, numbers):
  head = {'head/table_VD': [128, 2]}
  found = groups.read(
    [str(make_run('a')), str(make_run('b', 'lev', shapes=head))]
  )
  (table,) = sizes.parameters(found).parts
  assert table.header[-1] == 'over tied'
  assert table.rows == [
    ['tied', '200', '32', '0', '232', '+0.00 %'],
    ['lev', '200', '32', '200', '432', '+86.21 %'],
  ]
  lev = numbers(table)[1]
  assert (lev['head'], lev['total']) == (200, 432)
  assert lev['total_over_percent'] == pytest.approx(100 * 200 / 232)


def test_cost_is_set_against_the_baseline_s(make_run, numbers):
  embedder = {
    'name': 'albert', 'matched_to': {
      'name': 'lev', 'num_digits': 3, 'seed_width': 8, 'heads': 2, 'knots': 8,
      'rank': 4, 'implementation': 'auto',
    },
  }  # fmt: skip
  path = make_run('c', 'lev', seconds=2.0, embedder=embedder)
  found = groups.read(
    [
      str(make_run('a', seconds=1.0)),
      str(make_run('b', seconds=1.5, seed=1)),
      str(path),
    ]
  )
  (table,) = sizes.cost(found).parts
  tied, lev = table.rows
  flops = found.variants[0].first.flops['total']
  added = found.variants[1].first.flops['embedder']
  assert added > 0
  # Of 100 and 66.67 tokens a second; 4 steps of 1, 1.5 and 2 seconds.
  assert tied[:4] == ['tied', '83', '+0.00 %', '5']
  assert lev[:4] == ['lev', '50', '-40.00 %', '8']
  assert tied[4:] == [f'{flops:.4g}', '+0.00 %', '0', f'{400 * flops:.4g}']
  assert lev[4:7] == [
    f'{flops + added:.4g}',
    f'{100 * added / flops:+.2f} %',
    f'{added:.4g}',
  ]
  found = numbers(table)[1]
  assert found['tokens_per_second'] == 50 and found['seconds'] == 8
  assert found['speed_over_percent'] == pytest.approx(-40)
  assert found['flops_of_input'] == added
  assert found['flops'] == 400 * (flops + added)
