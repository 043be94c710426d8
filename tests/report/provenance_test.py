"""Runs that differ in more than the arm are shown with a warning."""

import json

import pytest

from leviathan.report import groups
from leviathan.report import provenance


def warned(*paths):
  section = provenance.warnings(groups.read([str(path) for path in paths]))
  return [] if section is None else list(section.parts)


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
  'changes, says',
  [
    ({'changes': {'data.batch_size': 16}}, 'config.data.batch_size: 16 and 8'),
    ({'seed': 3}, 'seeds: [3] and [0]'),
    (
      {'changes': {'optimizer.learning_rate': 0.1}},
      'config.optimizer.learning_rate: 0.1 and 0.002',
    ),
    ({'changes': {'optimizer.b2': 0.99}}, 'config.optimizer.b2: 0.99 and 0.95'),
  ],
)
def test_what_else_differs_is_named_with_both_values(make_run, changes, says):
  said = warned(make_run('a'), make_run('b', 'lev', **changes))
  assert f'lev and tied differ in {says}.' in said


def test_other_versions_and_other_items_are_named(make_run):
  tasks = [
    {'piqa': {'test': {'protocol': {'step': i, 'items': 10 + i}, 'acc': 0.5}}}
    for i in range(2)
  ]
  first = make_run('a', tasks=tasks[0])
  second = make_run('b', 'lev', tasks=tasks[1])
  manifest = second / 'run.json'
  manifest.write_text(manifest.read_text().replace('1.2.3', '1.2.4'))
  assert warned(first, second) == [
    "lev and tied differ in manifest.versions.jax: '1.2.4' and '1.2.3'.",
    'lev and tied differ in piqa test.items: 11 and 10.',
  ]


def edit(path, change):
  """Changes the run's manifest."""
  file = path / 'run.json'
  file.write_text(json.dumps(change(json.loads(file.read_text()))))
  return path


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
    "runs of lev differ in manifest.versions.jax: '1.2.3' and '1.2.4'.",
    'runs of lev differ in piqa test.items: 10 and 11.',
    "lev and tied differ in manifest.versions.jax: '1.2.4' and '1.2.3'.",
    'lev and tied differ in piqa test.items: 11 and 10.',
  ]


def test_the_version_of_the_files_is_no_difference(make_run):
  old, new = (make_run(f'lev{i}', 'lev', seed=i) for i in range(2))
  tied = [make_run('a'), make_run('b', seed=1)]
  edit(new, lambda manifest: manifest | {'format_version': 2})
  assert not warned(*tied, old, new)


def test_a_run_that_goes_on_is_shown_with_a_note(make_run):
  running = make_run('b', 'lev', steps=9, evaluated=(3,))
  said = warned(make_run('a'), running)
  assert said == [
    f'{running} is not at its end: it is shown at step 3 of 9, and compared '
    'with none.'
  ]


def test_without_a_common_seed_it_is_said_once(make_run):
  said = warned(make_run('a'), make_run('b', 'lev', seed=1))
  assert said == [
    'lev and tied have no seed in common: what is said of their difference is '
    'unpaired, and has no interval.',
    'lev and tied differ in seeds: [1] and [0].',
  ]


def test_a_variant_without_a_baseline_is_named(make_run):
  said = warned(
    make_run('a'), make_run('b', 'lev', changes={'model.layers': 8})
  )
  assert said == [
    'lev has no baseline of its scale, vocabulary and budget, and is compared '
    'with none.'
  ]


def test_the_runs_and_their_fields_are_listed(make_run):
  found = groups.read(
    [
      str(make_run('a')),
      str(make_run('b', 'lev', changes={'optimizer.b1': 0.8})),
      str(make_run('c', 'lev', seed=1, changes={'optimizer.b1': 0.8})),
    ]
  )
  runs, fields = provenance.compared(found).parts
  assert [row[:6] for row in runs.rows] == [
    ['tied', '0', '4', '400', 'd1', 'jax 1.2.3'],
    ['lev', '0', '4', '400', 'd1', 'jax 1.2.3'],
    ['lev', '1', '4', '400', 'd1', 'jax 1.2.3'],
  ]
  assert fields.header == ['field', 'tied', 'lev']
  assert fields.rows == [
    ['config.arm', 'tied', 'lev'],
    ['config.optimizer.b1', '0.9', '0.8'],
    ['config.train.seed', '0', '0, 1'],
  ]
