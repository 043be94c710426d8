"""Runs that differ in more than the arm are shown with a warning."""

import json

import pytest

from leviathan.report import groups
from leviathan.report import provenance


def warned(*paths):
  """The rows of the one table of what differs."""
  section = provenance.warnings(groups.read([str(path) for path in paths]))
  if section is None:
    return []
  (table,) = section.parts
  assert table.header[:3] == ['what differs', 'of', 'value']
  assert table.header[3:] == ['compared with', 'its value', 'what follows']
  return table.rows


def test_arms_and_places_are_no_difference(make_run):
  changes = {
    'model.head.name': 'untied',
    'data.train': 'moved',
    'evaluate.interval': 7,
    'mesh.data': 2,
  }
  shapes = {'head/table_VD': [128, 2]}
  assert not warned(
    make_run('a'), make_run('b', 'lev', changes=changes, shapes=shapes)
  )


@pytest.mark.parametrize(
  'changes, field, value, other',
  [
    ({'data.batch_size': 16}, 'config.data.batch_size', '16', '8'),
    (
      {'optimizer.learning_rate': 0.1},
      'config.optimizer.learning_rate',
      '0.1',
      '0.002',
    ),
    ({'optimizer.b2': 0.99}, 'config.optimizer.b2', '0.99', '0.95'),
  ],
)
def test_what_else_differs_is_named_with_both_values(
  make_run, changes, field, value, other
):
  said = warned(make_run('a'), make_run('b', 'lev', changes=changes))
  assert said == [[field, 'lev', value, 'tied', other, '-']]


def test_one_difference_of_several_is_one_row(make_run):
  rate = {'optimizer.learning_rate': 0.1}
  said = warned(
    make_run('a'),
    make_run('b', 'lev', changes=rate),
    make_run('c', 'untied', changes={'optimizer.learning_rate': 0.2}),
    make_run('d', 'albert', changes=rate),
  )
  field = 'config.optimizer.learning_rate'
  assert said == [
    [field, 'lev; albert', '0.1', 'tied', '0.002', '-'],
    [field, 'untied', '0.2', 'tied', '0.002', '-'],
  ]


def edit(path, change):
  """Changes the run's manifest."""
  file = path / 'run.json'
  file.write_text(json.dumps(change(json.loads(file.read_text()))))
  return path


def test_other_versions_and_other_items_are_named(make_run):
  tasks = [
    {'piqa': {'test': {'protocol': {'step': i, 'items': 10 + i}, 'acc': 0.5}}}
    for i in range(2)
  ]
  first = make_run('a', tasks=tasks[0])
  second = make_run('b', 'lev', tasks=tasks[1])
  edit(second, lambda m: m | {'versions': {'jax': '1.2.4'}})
  assert warned(first, second) == [
    ['manifest.versions.jax', 'lev', '1.2.4', 'tied', '1.2.3', '-'],
    ['piqa test.items', 'lev', '11', 'tied', '10', '-'],
  ]


@pytest.mark.parametrize('whose', [0, 1])
def test_a_version_that_one_run_does_not_state_is_no_difference(
  make_run, whose
):
  paths = make_run('a'), make_run('b', 'lev')
  more = {'jax': '1.2.3', 'new': '1'}
  edit(paths[whose], lambda m: m | {'versions': more})
  assert not warned(*paths)


def test_every_pair_of_runs_is_compared(make_run):
  def protocol(items):
    return {'piqa': {'test': {'protocol': {'items': items}, 'acc': 0.5}}}

  paths = [
    make_run('a', seed=0, tasks=protocol(10)),
    make_run('b', seed=1, tasks=protocol(10)),
    make_run('c', 'lev', seed=0, tasks=protocol(10)),
    make_run('d', 'lev', seed=1, tasks=protocol(11)),
  ]
  edit(paths[3], lambda m: m | {'versions': {'jax': '1.2.4'}})
  assert warned(*paths) == [
    ['manifest.versions.jax', 'lev', '1.2.4', 'its first run', '1.2.3', '-'],
    ['manifest.versions.jax', 'lev', '1.2.4', 'tied', '1.2.3', '-'],
    ['piqa test.items', 'lev', '11', 'its first run', '10', '-'],
    ['piqa test.items', 'lev', '11', 'tied', '10', '-'],
  ]


def test_the_version_of_the_files_is_no_difference(make_run):
  old, new = (make_run(f'lev{i}', 'lev', seed=i) for i in range(2))
  tied = [make_run('a'), make_run('b', seed=1)]
  edit(new, lambda manifest: manifest | {'format_version': 2})
  assert not warned(*tied, old, new)


def test_a_run_that_goes_on_is_shown_with_a_note(make_run):
  running = make_run('b', 'lev', steps=9, evaluated=(3,))
  assert warned(make_run('a'), running) == [
    ['steps', str(running), '3', 'the config', '9', 'compared with none']
  ]


@pytest.mark.parametrize(
  'ours, follows',
  [
    ((1,), 'unpaired, without an interval'),
    ((1, 0), 'paired by the 1 seed in common'),
  ],
)
def test_what_follows_of_other_seeds_is_said(make_run, ours, follows):
  paths = [make_run(f'l{seed}', 'lev', seed=seed) for seed in ours]
  seeds = ', '.join(map(str, sorted(ours)))
  assert warned(make_run('a'), *paths) == [
    ['seeds', 'lev', seeds, 'tied', '0', follows]
  ]


def test_a_variant_without_a_baseline_is_named(make_run):
  (row,) = warned(
    make_run('a'), make_run('b', 'lev', changes={'model.layers': 8})
  )
  assert row[1:4] == ['lev', '128x8, V=100, 400', 'any baseline']
  assert row[-1] == 'compared with none'


def test_the_runs_and_their_fields_are_listed(make_run, numbers):
  found = groups.read(
    [
      str(make_run('a')),
      str(make_run('b', 'lev', changes={'optimizer.b1': 0.8})),
      str(make_run('c', 'lev', seed=1, changes={'optimizer.b1': 0.8})),
    ]
  )
  runs, fields = provenance.compared(found).parts
  assert [row[:6] for row in runs.rows] == [
    ['tied', '0', '4', '400', '2.0000', 'd1'],
    ['lev', '0', '4', '400', '2.0000', 'd1'],
    ['lev', '1', '4', '400', '2.0000', 'd1'],
  ]
  assert runs.header[4] == 'nats per token on a'
  # What is alike in all stands above them.
  assert runs.caption.endswith(' All by jax 1.2.3.')
  assert 'jax 1.2.3' not in runs.rows[0]
  row = numbers(runs)[2]
  assert (row['seed'], row['tokens'], row['nats_per_token_on_a']) == (1, 400, 2)
  assert row['versions'] == 'jax 1.2.3'
  assert fields.header == ['field', 'tied', 'lev']
  assert fields.rows == [
    ['config.arm', 'tied', 'lev'],
    ['config.optimizer.b1', '0.9', '0.8'],
    ['config.train.seed', '0', '0, 1'],
  ]


def test_versions_that_differ_have_a_column(make_run):
  paths = make_run('a'), make_run('b', 'lev')
  edit(paths[1], lambda m: m | {'versions': {'jax': '1.2.4'}})
  found = groups.read([str(path) for path in paths])
  table = provenance.compared(found).parts[0]
  assert [row[-1] for row in table.rows] == ['jax 1.2.3', 'jax 1.2.4']
