"""How two variants are paired, and what a caption says of it."""

import pytest

from leviathan.report import groups
from leviathan.report import pairing
from leviathan.report import strata
from leviathan.report import tasks


def read(*paths):
  return groups.read([str(path) for path in paths])


@pytest.mark.parametrize(
  'seeds, by, count, said',
  [
    ((0, 1, 2), 'seed', 2, '2 seeds'),
    ((1, 2), 'seed', 1, '1 seed'),
    ((2, 3), '', 0, 'unpaired'),
  ],
)
def test_runs_of_one_seed_are_pairs(make_run, seeds, by, count, said):
  theirs = [make_run(f't{seed}', seed=seed) for seed in (0, 1)]
  ours = [make_run(f'l{seed}', 'lev', seed=seed) for seed in seeds]
  tied, lev = read(*theirs, *ours).variants
  how = pairing.of(lev, tied, 'a')
  assert (how.by, how.count, str(how)) == (by, count, said)


def test_a_sentence_names_what_is_paired_only_where_ways_differ():
  three, one = pairing.Pairing('seed', 3), pairing.Pairing('seed', 1)
  alike = pairing.sentence([('lev', three), ('albert', three)])
  assert 'over the 3 seeds' in alike and 'lev' not in alike
  several = pairing.sentence(
    [('lev', three), ('a', one), ('b', one), ('c', pairing.Pairing('', 0))]
  )
  assert 'over the 3 seeds (lev); ' in several
  assert 'without an interval (a; b); ' in several
  assert several.endswith('unpaired, without an interval (c).')
  many = [(f'v{i}', three) for i in range(20)]
  assert '(20 of them)' in pairing.sentence([*many, ('a', one)])


def figures(acc):
  return {'piqa': {'test': {'acc': acc, 'acc_stderr': 0.1, 'items': 9}}}


def captions(make_run, seeds):
  """Of strata and of tasks: tied with seeds 0 and 1, lev with some."""
  paths = [make_run(f't{i}', tasks=figures(0.4), seed=i) for i in (0, 1)] + [
    make_run(f'l{i}', 'lev', tasks=figures(0.5), seed=i) for i in seeds
  ]
  found = read(*paths)
  (section,) = strata.sections(found, 'a')
  of_tasks = tasks.section(found)
  assert of_tasks is not None
  return [section.parts[2].caption, of_tasks.parts[1].caption]


@pytest.mark.parametrize(
  'seeds, says',
  [
    (
      (0, 1),
      "paired by seed, with the 95 % interval of Student's t over the 2",
    ),
    ((1,), 'of one pair of runs of one seed, without an interval.'),
    ((2, 3), 'without a seed in common: unpaired, without an interval.'),
  ],
)
def test_captions_of_strata_and_tasks_say_what_is_paired(make_run, seeds, says):
  for caption in captions(make_run, seeds):
    assert says in caption
    assert ('paired by seed' in caption) == (len(seeds) == 2 and seeds[0] == 0)
