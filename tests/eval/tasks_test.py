"""Items by hand, and all six tasks against lm-evaluation-harness."""

import json
import pathlib
import random

import pytest

from leviathan.eval import downstream
from leviathan.eval import pairs as pairs_lib
from leviathan.eval import requests
from leviathan.eval import task_files
from leviathan.eval import tasks


def item(task, row, number=7):
  return tasks.TASKS[task].item(row, number)


def arc(labels, answer, **changes):
  choices = [{'text': f'text {label}', 'label': label} for label in labels]
  question = {'stem': 'Which?', 'choices': choices} | changes
  return {'id': 'Q1', 'question': question, 'answerKey': answer}


@pytest.mark.parametrize('name', ['arc_easy', 'arc_challenge'])
@pytest.mark.parametrize(
  'labels, answer, gold', [('ABC', 'A', 0), ('1234', '3', 2), ('ABCDE', 'E', 4)]
)
def test_arc(name, labels, answer, gold):
  assert item(name, arc(labels, answer)) == tasks.Item(
    id='Q1',
    pairs=tuple(
      ('Question: Which?\nAnswer:', f' text {label}') for label in labels
    ),
    gold=gold,
    lengths=(6,) * len(labels),
  )


def hellaswag(**changes):
  return {
    'activity_label': 'Baking',
    'ctx_a': 'A man is here.',
    'ctx_b': 'he Then',
    'ctx': 'unused',
    'endings': ['sits.', ' stands [x] up. ', 'goes.', 'comes  back.'],
    'label': 1,
  } | changes


def test_hellaswag():
  found = item('hellaswag', hellaswag())
  assert found.pairs == tuple(
    ('Baking: A man is here. He then', ending)
    for ending in (' sits.', ' stands up.', ' goes.', ' comes back.')
  )
  assert found.gold == 1
  assert found.lengths == (5, 10, 5, 11)
  assert found.id == '7'


def test_markers_of_hellaswag_go():
  text = '[header] How to bake [title] Heat the oven. [step] Set it  to 200.'
  assert tasks.hellaswag_text(text) == (
    ' How to bake. Heat the oven. Set it to 200.'
  )
  row = hellaswag(ctx_a=text, ctx_b='')
  assert item('hellaswag', row).pairs[0][0] == (
    'Baking: How to bake. Heat the oven. Set it to 200.'
  )


def test_piqa():
  row = {'goal': 'Boil?', 'sol1': 'heat', 'sol2': 'cool it', 'label': 0}
  assert item('piqa', row) == tasks.Item(
    id='7',
    pairs=(
      ('Question: Boil?\nAnswer:', ' heat'),
      ('Question: Boil?\nAnswer:', ' cool it'),
    ),
    gold=0,
    lengths=(4, 7),
  )


def test_winogrande_scores_what_follows_the_first_blank():
  row = {
    'qID': 'X-1',
    'sentence': 'Ann thanked Bea as _ had helped with a_b. ',
    'option1': 'Ann',
    'option2': 'Bea',
    'answer': '2',
  }
  assert item('winogrande', row) == tasks.Item(
    id='7',
    pairs=(
      ('Ann thanked Bea as Ann', ' had helped with a_b.'),
      ('Ann thanked Bea as Bea', ' had helped with a_b.'),
    ),
    gold=1,
  )


def test_lambada_asks_for_the_last_word():
  row = {'text': 'He said\n\n"Hi  to you,\tAnn'}
  assert item('lambada', row).pairs == (('He said\n\n"Hi  to', ' you,\tAnn'),)
  assert item('lambada', row).gold is None


@pytest.mark.parametrize(
  'task, row, said',
  [
    ('arc_easy', arc('ABCD', 'E'), "has 'E' under 'answerKey'; one of 'A', "),
    ('arc_easy', arc('AAB', 'A'), 'has a label twice: A, A, B'),
    ('arc_easy', arc('A', 'A'), 'two or more are wanted'),
    ('arc_easy', arc('ABC', 'A', stem=''), "has '' under 'stem'"),
    ('arc_easy', {'question': 'Which?'}, "has 'Which?' for an object with"),
    ('hellaswag', hellaswag(label=4), "has 4 under 'label'; one of 0, 1, 2, 3"),
    ('hellaswag', hellaswag(label=True), "has True under 'label'"),
    ('hellaswag', hellaswag(label='1'), "has '1' under 'label'"),
    ('hellaswag', hellaswag(endings=['[x]', 'a']), "has '' under 'endings'"),
    ('hellaswag', hellaswag(ctx_a=3), "has 3 under 'ctx_a'; text is wanted"),
    ('hellaswag', hellaswag(ctx_a='\ud800'), 'half a surrogate pair'),
    (
      'piqa',
      {'goal': 'a', 'sol1': 'b', 'label': 0},
      "no key 'sol2', only goal",
    ),
    ('winogrande', {'sentence': 'No blank.'}, 'no blank `_` with text after'),
    ('winogrande', {'sentence': 'At the end _ '}, 'no blank `_` with text'),
    ('lambada', {'text': 'word'}, "no last word after a space under 'text'"),
    ('lambada', {'text': 'word '}, "no last word after a space under 'text'"),
  ],
)
def test_a_bad_row_says_what_is_wrong(task, row, said):
  with pytest.raises(tasks.BadRow) as e:
    item(task, row)
  assert said in str(e.value)
  assert '\n' not in str(e.value)


@pytest.fixture(scope='module')
def harness_task(tmp_path_factory):
  """(one of our tasks, rows) -> the harness's own, with its own files."""
  lm_eval = pytest.importorskip('lm_eval', reason="it is in the extra 'eval'")
  from lm_eval import tasks as library

  definitions = pathlib.Path(lm_eval.__file__).parent / 'tasks'

  def make(task, rows):
    directory = tmp_path_factory.mktemp(task.name)
    file, split = directory / 'rows.jsonl', task.source.hub.split
    file.write_text(task_files.hub_rows(task, rows))
    (own,) = (
      path
      for path in definitions.rglob('*.yaml')
      if f'\ntask: {task.harness_name}\n' in '\n' + path.read_text()
    )
    changes = {
      'include': str(own),
      'task': 'local',
      'dataset_path': 'json',
      'dataset_name': None,
      'dataset_kwargs': {
        'data_files': {split: str(file)},
        'cache_dir': str(directory / 'cache'),
      },
      'training_split': None,
      'fewshot_split': None,
      'validation_split': None,
      'test_split': None,
      f'{split}_split': split,
    }
    (directory / 'local.yaml').write_text(json.dumps(changes))
    manager = library.TaskManager(
      include_path=str(directory), include_defaults=False
    )
    found = manager.load(['local'])['tasks']['local']
    found.build_all_requests()
    return found

  return make


@pytest.mark.parametrize('name', tasks.TASKS)
def test_items_and_figures_are_the_harnesss(shared, harness_task, name):
  from lm_eval.api import metrics

  task = tasks.TASKS[name]
  data = task_files.read(task, shared / 'data')
  step = len(data.rows) // 150
  rows, items = data.rows[::step], data.items[::step]
  harness = harness_task(task, rows)
  assert harness.VERSION == task.version
  assert set(harness._metric_fn_list) == set(task.metrics)
  rng = random.Random(0)
  results = []
  for i, one in enumerate(items):
    mine = [r for r in harness.instances if r.doc_id == i]
    mine.sort(key=lambda request: request.idx)
    assert tuple(request.args for request in mine) == one.pairs
    # Few values, so that some are equal.
    results.append([(-rng.randint(1, 4), rng.random() < 0.5) for _ in mine])
  docs = dict(harness.doc_iterator())
  theirs = [
    harness.process_results(docs[i], result) for i, result in enumerate(results)
  ]
  found, samples = downstream.figures(
    task, items, *scores([r for result in results for r in result])
  )
  for metric in ('acc', 'acc_norm'):
    if metric in task.metrics:
      values = [row[metric] for row in theirs]
      assert [sample[metric] for sample in samples] == values
      assert 0 < sum(values) < len(values)
      assert found[metric] == pytest.approx(metrics.mean(values))
      stderr = metrics.mean_stderr(values)
      assert found[f'{metric}_stderr'] == pytest.approx(stderr)
  if 'perplexity' in task.metrics:
    values = [row['perplexity'] for row in theirs]
    assert found['perplexity'] == pytest.approx(metrics.perplexity(values))


def scores(results):
  """Pairs and scores of which only log-likelihood and greedy count."""
  pairs = [pairs_lib.Pair([0, 1], 1, False)] * len(results)
  return pairs, [
    requests.Scored(-nats, 1, greedy, 1, False) for nats, greedy in results
  ]
