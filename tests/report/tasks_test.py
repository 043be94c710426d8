"""Tasks: values with their errors, and what is gained over the baseline."""

import math

import pytest

from leviathan.report import document
from leviathan.report import groups
from leviathan.report import tasks


def figures(acc, stderr, perplexity):
  piqa = {'acc': acc, 'acc_stderr': stderr, 'items': 9}
  lambada = {'perplexity': perplexity, 'perplexity_stderr': 2.0}
  return {'piqa': {'test': piqa}, 'lambada': {'test': lambada}}


def test_figures_have_their_errors_and_are_paired_by_seed(make_run):
  found = groups.read(
    [
      str(make_run('a', tasks=figures(0.4, 0.02, 100.0))),
      str(make_run('b', 'lev', tasks=figures(0.5, 0.01, 70.0))),
      str(make_run('c', 'lev', seed=1, tasks=figures(0.6, 0.03, 90.0))),
      str(make_run('d', 'albert')),
    ]
  )
  section = tasks.section(found)
  assert section is not None
  values, gains = section.parts
  assert isinstance(values, document.Table)
  assert isinstance(gains, document.Table)
  assert values.header == ['task', 'tied', 'lev', 'albert']
  assert values.rows == [
    ['lambada test perplexity', '100.0000 +- 2.0000', '80.0000 +- 2.0000', '-'],
    ['piqa test acc', '0.4000 +- 0.0200', '0.5500 +- 0.0200', '-'],
  ]
  assert gains.header == ['task', 'lev', 'albert']
  # Of the seed that both have: 70 and 100, 0.5 and 0.4.
  assert gains.rows == [
    ['lambada test perplexity', '+30.00 %', '-'],
    ['piqa test acc', '+0.1000', '-'],
  ]
  header, *rows = values.values
  assert header == ['task', 'set', 'metric', 'arm', 'value', 'standard_error']
  assert rows[0] == ['lambada', 'test', 'perplexity', 'tied', 100.0, 2.0]
  assert len(rows) == 4  # None of albert.
  header, *rows = gains.values
  assert header == [
    'task', 'set', 'metric', 'arm', 'unit', 'mean', 'low', 'high',
  ]  # fmt: skip
  assert [row[3:5] for row in rows] == [['lev', 'percent'], ['lev', 'acc']]
  assert [row[5] for row in rows] == pytest.approx([30, 0.1])
  assert all(map(math.isnan, rows[0][6:]))  # Of one pair.


def test_no_tasks_have_no_section(make_run):
  assert tasks.section(groups.read([str(make_run('a'))])) is None


def test_gains_say_what_is_better_and_are_left_out_where_there_are_none(
  make_run,
):
  a = str(make_run('a', tasks=figures(0.4, 0.02, 100.0)))
  b = str(make_run('b', 'lev', tasks=figures(0.5, 0.01, 70.0)))
  section = tasks.section(groups.read([a, b]))
  assert section is not None and len(section.parts) == 2
  assert isinstance(gains := section.parts[1], document.Table)
  assert 'above 0 is better' in gains.caption
  section = tasks.section(groups.read([a, str(make_run('c', 'lev'))]))
  assert section is not None and len(section.parts) == 1
