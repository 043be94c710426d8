"""Seeds make a variant; what cannot be compared is named and left out."""

import json
import pathlib

import pytest

from leviathan import errors
from leviathan.report import groups

RATE = 'optimizer.learning_rate'


def read(*paths, baseline=None):
  return groups.read([str(path) for path in paths], baseline)


def labels(found):
  return [variant.label for variant in found.variants]


def test_runs_that_differ_in_seed_and_place_are_one_variant(make_run):
  # Also in what is no part of the learning, as how often it was evaluated.
  found = read(
    make_run('b', 'lev', seed=1, changes={'evaluate.interval': 7}),
    make_run('t', seed=0),
    make_run('a', 'lev', seed=0, changes={'data.train': 'moved'}),
  )
  assert labels(found) == ['lev', 'tied']
  assert found.variants[0].seeds == [0, 1]
  assert [run.path.name for run in found.variants[0].runs] == ['a', 'b']


@pytest.mark.parametrize(
  'changes, says',
  [
    ({RATE: 0.008}, 'rate 0.008'),
    ({'model.width': 256}, '256x4'),
    ({'model.layers': 8}, '128x8'),
    ({'model.vocab_size': 50_257}, 'V=50257'),
    ({'optimizer.b2': 0.99}, '(b)'),
    ({'train.steps': 9}, '(b)'),  # A budget: never a replicate.
    ({'data.batch_size': 16}, '(b)'),
  ],
)
def test_a_label_says_what_tells_variants_apart(make_run, changes, says):
  found = read(
    make_run('a', 'lev'),
    make_run('b', 'lev', seed=1, changes=changes),
    make_run('c', 'albert', changes=changes),
  )
  _, changed, alone = labels(found)
  assert changed.startswith('lev') and changed.endswith(says)
  assert alone == 'albert'


def test_of_two_runs_of_one_seed_the_first_counts(make_run):
  paths = [make_run(f'lev{seed}', 'lev', seed=seed) for seed in range(3)]
  found = read(*paths, make_run('again', 'lev', nats=1.0))
  assert labels(found) == ['lev']
  assert [run.path for run in found.variants[0].runs] == paths
  ((path, reason),) = found.left_out
  assert path.endswith('again')
  assert reason.startswith(f'is seed 0 of the same config as {paths[0]}')


def test_a_rerun_does_not_part_the_baseline(make_run):
  found = read(
    make_run('a', nats=2.0),
    make_run('b', nats=2.4, seed=1),
    make_run('lucky', nats=1.0, seed=1),
    make_run('c', 'lev', nats=1.9),
  )
  assert [b.seeds for _, b in found.rivals()] == [[0, 1]]


def test_directories_of_one_name_are_told_apart_by_their_paths(make_run):
  other = {'optimizer.b2': 0.9}
  again = read(
    make_run('x/run', 'lev'), make_run('y/run', 'lev', changes=other)
  )
  assert len(set(labels(again))) == 2
  assert all('run' in label for label in labels(again))


def test_a_run_that_goes_on_is_no_replicate_of_one_at_its_end(make_run):
  found = read(
    make_run('a', 'lev', evaluated=(4,)),
    make_run('b', 'lev', seed=1, evaluated=(2,)),
  )
  assert labels(found) == ['lev (a)', 'lev (b)']


def test_a_run_that_is_named_twice_counts_once(make_run):
  path = make_run('a', 'lev')
  assert labels(read(path, path, f'{path}/checkpoints')) == ['lev']


def test_of_two_steps_of_a_run_the_first_is_shown(make_run):
  path = make_run('a', evaluated=(2, 4))
  found = read(f'{path}/checkpoints/2', path)
  assert [run.step for v in found.variants for run in v.runs] == [2]
  ((named, reason),) = found.left_out
  assert named == str(path) and reason.startswith('is shown at step 2')


def test_tied_is_the_baseline_or_else_the_first(make_run):
  paths = make_run('a', 'lev'), make_run('b'), make_run('c', 'albert')
  assert [b.label for b in read(*paths).baselines] == ['tied']
  assert [b.label for b in read(*paths[::2]).baselines] == ['lev']
  other = read(*paths, baseline='albert')
  assert [b.label for b in other.baselines] == ['albert']
  assert [(v.label, b.label) for v, b in other.rivals()] == [
    ('lev', 'albert'),
    ('tied', 'albert'),
  ]


def test_an_unknown_baseline_is_refused_with_the_nearest(make_run):
  paths = make_run('a', 'lev'), make_run('b')
  with pytest.raises(errors.ConfigError, match='did you mean tied'):
    read(*paths, baseline='tide')
  with pytest.raises(errors.ConfigError, match='gone was left out: '):
    read(*paths, paths[0].parent / 'gone', baseline='gone')


def test_each_scale_and_vocabulary_has_its_own_baseline(make_run):
  wide, many = {'model.width': 256}, {'model.vocab_size': 50_257}
  data = {'trained_on': 'd2', 'evaluated_on': 'e2'}
  found = read(
    make_run('a'),
    make_run('b', changes=wide),
    make_run('c', changes=many, **data),
    make_run('d', 'lev'),
    make_run('e', 'lev', changes=wide),
    make_run('f', 'lev', changes=many, **data),
    make_run('g', 'lev', changes={'model.layers': 8}),
  )
  assert not found.left_out
  bases = [found.baseline(variant) for variant in found.variants]
  assert bases[:3] == bases[3:6] == list(found.baselines)
  assert bases[6] is None
  assert list(found.vocabularies()) == [100, 50_257]
  assert [len(g.variants) for g in found.vocabularies().values()] == [5, 2]


def test_of_several_baselines_the_one_of_most_seeds_then_the_best(make_run):
  paths = [
    make_run('a', nats=2.0, changes={RATE: 0.004}),
    make_run('b', nats=1.5, changes={RATE: 0.008}),
    make_run('c', nats=float('nan'), changes={RATE: 0.016}),
    make_run('d', 'lev', changes={RATE: 0.004}),
  ]
  found = read(*paths)
  assert found.rivals()[0][1].label == 'tied, rate 0.008'
  more = read(*paths, make_run('e', nats=3.0, seed=1, changes={RATE: 0.004}))
  assert more.rivals()[0][1].label == 'tied, rate 0.004'
  one = read(*paths, baseline='tied, rate 0.016')
  assert one.rivals()[-1][1].label == 'tied, rate 0.016'


def test_a_baseline_of_another_budget_is_none(make_run):
  short = {'steps': 2, 'evaluated': (2,)}
  paths = [
    make_run('a', nats=2.2, **short),
    make_run('b', nats=1.8),
    make_run('c', 'lev', nats=2.0, **short),
  ]
  found = read(*paths)
  assert [(v.label, b.label) for v, b in found.rivals()] == [
    ('lev', 'tied (a)')
  ]
  assert read(*paths[1:]).rivals() == []


def test_a_run_that_goes_on_is_compared_with_none(make_run):
  paths = [
    make_run('a', nats=3.0, evaluated=(1,)),
    make_run('b', 'lev', nats=2.5),
    make_run('c', 'albert', nats=2.5, evaluated=(1,)),
  ]
  found = read(*paths)
  assert found.rivals() == []
  assert [[v.label for v in peers] for peers in found.comparable()] == [['lev']]
  # When all go on, they are at least at the same step of one schedule.
  found = read(*paths[::2])
  assert [(v.label, b.label) for v, b in found.rivals()] == [('albert', 'tied')]


def test_what_is_no_run_is_left_out_with_the_reason(make_run, tmp_path):
  broken, running = make_run('broken'), make_run('running', evaluated=())
  (broken / 'run.json').write_text('{')
  (tmp_path / 'empty').mkdir()
  (tmp_path / 'foreign').mkdir()
  (tmp_path / 'foreign' / 'model.bin').write_text('x')
  bad = [tmp_path / 'empty', broken, running, tmp_path / 'foreign']
  found = read(make_run('good'), *bad, tmp_path / 'missing')
  assert labels(found) == ['tied']
  reasons = {entry.path: entry.reason for entry in found.left_out}
  assert list(reasons) == [str(p) for p in [*bad, tmp_path / 'missing']]
  for path, reason in zip(
    bad,
    ('found: nothing', 'is not JSON', 'not evaluated yet', 'found: model.bin'),
    strict=True,
  ):
    assert reason in reasons[str(path)]


def test_nothing_that_can_be_shown_is_refused(make_run, tmp_path):
  path = make_run('run', evaluated=())
  with pytest.raises(errors.CheckpointError, match='leviathan evaluate.*gone'):
    read(path, tmp_path / 'gone')


@pytest.mark.parametrize('field', ['trained_on', 'evaluated_on'])
def test_runs_of_other_data_than_the_baseline_s_are_left_out(make_run, field):
  found = read(
    make_run('a', 'lev', **{field: 'another'}),
    make_run('b', 'lev', seed=1, **{field: 'another'}),
    make_run('c'),
    make_run('d', 'lev'),
  )
  # The one of the baseline's data needs no directory to be told apart.
  assert labels(found) == ['tied', 'lev']
  assert [path[-1] for path, _ in found.left_out] == ['a', 'b']
  assert all('another' in reason for _, reason in found.left_out)


@pytest.mark.parametrize('change', ['sha', 'tokens'])
def test_strata_of_other_counts_are_left_out(make_run, change):
  paths = [make_run('a'), make_run('b', seed=1), make_run('c', 'lev')]
  for i, path in enumerate(paths):
    file = path / 'eval' / '4' / 'frequency.json'
    document = json.loads(file.read_text())
    figures = document['datasets']['a']
    figures['trained_on_counts_sha256'] = 'ab'
    if i == 1 and change == 'sha':
      figures['trained_on_counts_sha256'] = 'cd'
    if i == 1 and change == 'tokens':
      figures['bins'][2]['tokens'] = 49
    file.write_text(json.dumps(document))
  found = read(*paths)
  assert [v.seeds for v in found.variants] == [[0], [0]]
  ((path, reason),) = found.left_out
  assert path.endswith('b') and 'with other counts by frequency' in reason


def test_sets_that_not_all_were_evaluated_on_are_named(make_run):
  paths = make_run('t'), make_run('l', 'lev')
  for task in ('perplexity', 'frequency'):
    file = pathlib.Path(paths[0]) / 'eval' / '4' / f'{task}.json'
    document = json.loads(file.read_text())
    document['datasets']['more'] = document['datasets']['a']
    file.write_text(json.dumps(document))
  found = read(*paths)
  assert [v.label for v in found.variants] == ['tied', 'lev']
  assert found.datasets == ['a'] and found.other_sets == ('more',)
  assert not found.left_out


def test_of_too_many_variants_pictures_show_the_best_of_each_arm(make_run):
  def paths(arms, rates):
    return [
      make_run(f'{arm}-{rate}', arm, 2 + abs(rate - 3), changes={RATE: rate})
      for arm in arms
      for rate in rates
    ]

  arms, rates = ('tied', 'lev', 'albert'), (1.0, 2.0, 3.0, 4.0)
  found = read(*paths(arms, rates))
  assert len(found.drawn()) == groups.DRAWN == 12
  assert not groups.said_of_drawn(found.drawn(), found.variants)
  found = read(*paths(arms, (*rates, 5.0)))
  drawn = found.drawn()
  assert [v.label for v in drawn] == [f'{arm}, rate 3' for arm in arms]
  assert 'most seeds the best' in groups.said_of_drawn(drawn, found.variants)
  # The one of most seeds counts, as for a baseline.
  more = make_run('more', 'lev', 9.0, seed=1, changes={RATE: 1.0})
  again = read(*paths(arms, (*rates, 5.0)), more).drawn()
  assert [v.learning_rate for v in again] == [3, 1, 3]
