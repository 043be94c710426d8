"""Figures by arithmetic; against the harness they are in tasks_test."""

import json
import math

import pytest

from leviathan.data import tokenizer as tokenizers
from leviathan.eval import downstream
from leviathan.eval import pairs as pairs_lib
from leviathan.eval import requests
from leviathan.eval import task_files
from leviathan.eval import tasks


def scored(*nats, greedy=True, truncated=False):
  return [requests.Scored(n, 3, greedy, 1, truncated) for n in nats]


def encoded(count, merged=False):
  return [pairs_lib.Pair([0, 1, 2, 3], 1, merged)] * count


def question(gold, *lengths):
  pairs = tuple(('Q', ' ' + n * 'x') for n in lengths)
  return tasks.Item(id='a', pairs=pairs, gold=gold, lengths=lengths)


def word():
  return tasks.Item(id='a', pairs=(('Q', ' x'),), gold=None)


@pytest.mark.parametrize('gold', [0, 1])
def test_acc_takes_the_likelier_and_acc_norm_the_likelier_per_character(gold):
  found, (sample,) = downstream.figures(
    tasks.TASKS['piqa'], [question(gold, 10, 20)], encoded(2), scored(5.0, 9.0)
  )
  assert (sample['prediction'], sample['prediction_norm']) == (0, 1)
  assert (found['acc'], found['acc_norm']) == (1 - gold, gold)


def test_the_first_of_equals_is_taken():
  found, (sample,) = downstream.figures(
    tasks.TASKS['arc_easy'],
    [question(0, 10, 20, 10, 20)],
    encoded(4),
    scored(7.0, 4.0, 2.0, 4.0),
  )
  assert (sample['prediction'], sample['prediction_norm']) == (2, 1)
  found, _ = downstream.figures(
    tasks.TASKS['piqa'], [question(0, 10, 10)], encoded(2), scored(4.0, 4.0)
  )
  assert found['acc'] == found['acc_norm'] == 1.0


def test_means_and_standard_errors():
  items = [question(0, 10, 10)] * 4
  nats = [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 2.0, 1.0]
  found, _ = downstream.figures(
    tasks.TASKS['piqa'], items, encoded(8, merged=True), scored(*nats)
  )
  assert found == {
    'acc': 0.75,
    # Of 1, 1, 1, 0 the variance is 3 / 4 / 3.
    'acc_stderr': pytest.approx(math.sqrt(0.25 / 4)),
    'acc_norm': 0.75,
    'acc_norm_stderr': pytest.approx(math.sqrt(0.25 / 4)),
    'items': 4,
    'requests': 8,
    'scored_tokens': 24,
    'merged': 8,
    'truncated': 0,
  }


def test_lambada_is_greedy_and_its_perplexity_is_of_items():
  scores = scored(1.0) + scored(3.0, greedy=False, truncated=True)
  found, samples = downstream.figures(
    tasks.TASKS['lambada'], [word()] * 2, encoded(2), scores
  )
  assert found['acc'] == 0.5
  assert found['perplexity'] == pytest.approx(math.exp(2))
  # The standard error of the mean of 1 and 3 is 1.
  assert found['perplexity_stderr'] == pytest.approx(math.exp(2))
  assert found['truncated'] == 1
  assert 'acc_norm' not in found
  assert [sample['acc'] for sample in samples] == [1, 0]
  assert samples[1]['truncated'] == [True]


def test_one_item_has_no_standard_error_and_a_lost_model_a_finite_perplexity():
  found, _ = downstream.figures(
    tasks.TASKS['lambada'], [word()], encoded(1), scored(1e4)
  )
  assert math.isnan(found['acc_stderr'])
  assert math.isfinite(found['perplexity'])


def test_a_sample_says_what_each_choice_came_to():
  item = question(1, 10, 20)
  pairs = [encoded(1)[0], encoded(1, merged=True)[0]]
  _, samples = downstream.figures(
    tasks.TASKS['hellaswag'], [item], pairs, scored(5.0, 9.0)
  )
  assert json.loads(json.dumps(samples)) == [
    {
      'id': 'a',
      'gold': 1,
      'prediction': 0,
      'prediction_norm': 1,
      'nats': [5.0, 9.0],
      'tokens': [3, 3],
      'greedy': [True, True],
      'lengths': [10, 20],
      'merged': [False, True],
      'truncated': [False, False],
      'acc': 0,
      'acc_norm': 1,
    }
  ]


def test_items_of_different_sizes_keep_their_own_scores():
  items = [question(2, 1, 1, 1), question(0, 1, 1), question(4, *5 * [1])]
  nats = [3.0, 2.0, 1.0, 1.0, 2.0, 5.0, 4.0, 3.0, 2.0, 1.0]
  found, _ = downstream.figures(
    tasks.TASKS['arc_easy'], items, encoded(10), scored(*nats)
  )
  assert found['acc'] == 1.0


def test_pairs_are_encoded_in_order(tiny):
  tokenizer = tokenizers.load(f'spm:{tiny.tokenizer}')
  items = [question(0, 1, 2), word(), question(0, 3, 4, 5)]
  pairs = downstream.encode(tokenizer, items)
  texts = [context + end for item in items for context, end in item.pairs]
  assert [tokenizer.decode(pair.ids) for pair in pairs] == texts


def test_the_protocol_says_what_to_cite(shared):
  task = tasks.TASKS['lambada']
  data = task_files.read(task, shared / 'data')
  found = downstream.protocol(task, data)
  assert found == {
    'task': 'lambada',
    'version': 1.0,
    'follows': 'lm-evaluation-harness 0.4.13, lambada_openai',
    'shots': 0,
    'acc_norm': None,
    'bos': 'none; an empty context is EOS',
    'split': 'test',
    'items': 5153,
    'source': 'lambada_test.jsonl',
    'sha256': task.source.files,
    'official': True,
  }
  piqa = downstream.protocol(tasks.TASKS['piqa'], data)
  assert 'characters' in piqa['acc_norm']


@pytest.mark.parametrize(
  'sha256, official',
  [
    ({'dev.jsonl': 'changed'}, False),
    (dict(list(tasks.TASKS['winogrande'].source.files.items())[:1]), True),
    ({'allenai/winogrande, validation': '0'}, None),
  ],
)
def test_files_are_official_by_their_sha256(sha256, official):
  source = tasks.TASKS['winogrande'].source
  found = downstream.origin(source, 'name', sha256)
  assert found == {'source': 'name', 'sha256': sha256, 'official': official}
