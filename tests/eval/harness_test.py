"""lm-evaluation-harness finds on this model what this project's code finds."""

import dataclasses
import functools
import itertools
import json
import operator
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan import errors
from leviathan import experiment
from leviathan import losses
from leviathan import sampling
from leviathan import sharding
from leviathan.data import tokenizer as tokenizer_lib
from leviathan.eval import downstream
from leviathan.eval import harness
from leviathan.eval import requests
from leviathan.eval import task_files
from leviathan.eval import tasks
from leviathan.eval import wikitext

lm_eval = pytest.importorskip('lm_eval', reason="it is in the extra 'eval'")
from lm_eval import tasks as lm_eval_tasks  # noqa: E402
from lm_eval.api import instance  # noqa: E402

from leviathan.eval import harness_model  # noqa: E402

LENGTH = 48  # Shorter than some contexts, choices and all pages.
ITEMS = 8
PAGES, PAGE = (2, 4, 14), 2100  # characters of each; with signs to unite


@pytest.fixture(scope='module')
def parts(tiny):
  config = tiny.config('tied', model__layers=1)
  return experiment.Experiment(
    config, sharding.make_mesh(config.mesh, jax.devices()[:1])
  )


@pytest.fixture(scope='module')
def model(parts, tiny):
  return harness.Model(
    params=parts.fresh_state().params,
    scorer=requests.make(
      parts.model, parts.mesh, length=LENGTH, tokens=1024, positions=1024
    ),
    sampler=functools.partial(sampling.make, parts.model, LENGTH),
    mesh=parts.mesh,
    tokenizer=tokenizer_lib.load(f'spm:{tiny.tokenizer}'),
    length=LENGTH,
  )


@pytest.fixture(scope='module')
def official(shared, tmp_path_factory):
  """Some rows of each official file."""
  top = tmp_path_factory.mktemp('official')
  for task in tasks.TASKS.values():
    path = task_files.find(task.source, shared / 'data')
    lines = path.read_text().splitlines()
    chosen = list(range(0, len(lines), len(lines) // ITEMS))
    # ARC has rows whose labels are digits.
    digits = [i for i, line in enumerate(lines) if '"label":"1"' in line]
    chosen += digits[:1]
    (top / task.name).mkdir()
    for name in task.source.files:
      rows = path.with_name(name).read_text().splitlines()
      text = ''.join(rows[i] + '\n' for i in chosen)
      (top / task.name / name).write_text(text)
  pages = wikitext.read(shared / 'data').pages
  text = ''.join(pages[i][:PAGE] + '\n' for i in PAGES)
  (top / next(iter(wikitext.SOURCE.files))).write_text(text)
  return top


def native(model, name, official):
  """By this project's own code."""

  def score(pairs):
    asked = [requests.Request(pair.ids, pair.start) for pair in pairs]
    return model.scorer(model.params, asked, lambda count: None)

  if name == wikitext.NAME:
    pages = wikitext.read(official).pages
    scored = score(wikitext.encode(model.tokenizer, pages))
    return wikitext.figures(pages, scored)
  task, data = tasks.TASKS[name], task_files.read(tasks.TASKS[name], official)
  pairs = downstream.encode(model.tokenizer, data.items)
  return downstream.figures(task, data.items, pairs, score(pairs))


@pytest.fixture(scope='module')
def found(model, official):
  names = [*tasks.TASKS, wikitext.NAME]
  return dict(harness.run(model, names, str(official)))


@pytest.mark.parametrize('name', list(tasks.TASKS))
def test_tasks_agree_item_by_item(model, official, found, name):
  figures, samples = native(model, name, official)
  theirs = found[name]
  assert len(samples) == len(theirs.samples) >= ITEMS
  for a, b in zip(samples, theirs.samples, strict=True):
    assert name.startswith('arc') or a['id'] == b['id']
    assert a['tokens'] == b['tokens'] and a['greedy'] == b['greedy']
    assert a['nats'] == pytest.approx(b['nats'], abs=1e-4)
    assert a['acc'] == b['metrics']['acc']
    assert a.get('acc_norm') == b['metrics'].get('acc_norm')
    if 'prediction' in a:
      assert a['prediction'] == int(np.argmin(b['nats']))
    if 'prediction_norm' in a:
      each = list(map(operator.truediv, b['nats'], a['lengths']))
      assert a['prediction_norm'] == int(np.argmin(each))
  for metric in ('acc', 'acc_stderr', 'acc_norm', 'acc_norm_stderr'):
    assert figures.get(metric) == pytest.approx(theirs.figures.get(metric))
  if name == 'lambada':
    assert figures['perplexity'] == pytest.approx(theirs.figures['perplexity'])
    assert theirs.figures['perplexity_stderr'] > 0
  for count in ('items', 'scored_tokens', 'truncated'):
    assert figures[count] == theirs.figures[count]


def test_the_tasks_that_agree_have_something_to_disagree_on(found):
  """Cut contexts, long choices, and rows with digits for labels."""
  assert found['hellaswag'].figures['truncated'] > 0
  longest = max(max(s['tokens']) for s in found['piqa'].samples)
  assert longest > LENGTH
  right = [f.figures['acc'] for n, f in found.items() if n != wikitext.NAME]
  assert any(0 < acc < 1 for acc in right)


def test_wikitext_agrees_page_by_page(model, official, found):
  figures, samples = native(model, wikitext.NAME, official)
  theirs = found[wikitext.NAME]
  assert len(samples) == len(theirs.samples) == len(PAGES)
  for a, b in zip(samples, theirs.samples, strict=True):
    assert [a['tokens']] == b['tokens']
    assert a['nats'] == pytest.approx(b['nats'][0], abs=1e-4)
    assert b['metrics']['word_perplexity'][1] == a['words']
  for metric in ('word_perplexity', 'byte_perplexity', 'bits_per_byte'):
    assert figures[metric] == pytest.approx(theirs.figures[metric])


def test_the_protocol_says_whose_it_is_and_of_which_rows(found, official):
  protocol = found['lambada'].figures['protocol']
  assert protocol['task'] == 'lambada_openai'
  assert protocol['harness_version'] == lm_eval.__version__
  assert (protocol['version'], protocol['shots']) == (1.0, 0)
  data = task_files.read(tasks.TASKS['lambada'], official)
  assert protocol['sha256'] == data.sha256
  assert not protocol['official']
  for name, result in found.items():
    json.dumps(result)  # Plain numbers all through.
    assert result.figures['protocol']['task'] == harness.harness_name(name)


def asked(*arguments, kind='loglikelihood'):
  """A request of the harness for each."""
  return [
    instance.Instance(kind, {}, one, 0, metadata=('task', i, 1))
    for i, one in enumerate(arguments)
  ]


@pytest.fixture(scope='module')
def logits_of(parts, model):
  """logits_LV of some ids; what fills the row up comes after them."""
  apply = jax.jit(parts.model.apply)

  def logits(ids):
    ids_BL = np.zeros((1, LENGTH), np.int32)
    ids_BL[0, : len(ids)] = ids
    return apply({'params': model.params}, ids_BL)[0, : len(ids)]

  return logits


def test_rolling_is_the_sum_over_windows_made_by_hand(model, logits_of):
  text = 'def rolling(windows):\n  return sum(w.nats for w in windows)\n' * 5
  ids = [model.tokenizer.eos_id, *model.tokenizer.encode(text)]
  assert len(ids) > 2 * LENGTH + 1 and len(ids) % LENGTH != 1
  total, done = 0.0, 1
  while done < len(ids):
    # As many new ones as fit, at the end of a window that is full.
    end = min(done + LENGTH, len(ids))
    first = max(0, end - 1 - LENGTH)
    nll_L = losses.token_nll(
      logits_of(ids[first : end - 1]), jnp.array(ids[first + 1 : end])
    )
    total += float(nll_L[-(end - done) :].sum())
    done = end
  lm = harness_model.HarnessModel(model)
  (rolled,) = lm.loglikelihood_rolling(
    asked((text,), kind='loglikelihood_rolling')
  )
  assert rolled == pytest.approx(-total, rel=1e-5)


def test_greedy_text_is_the_likeliest_token_one_after_another(model, logits_of):
  lm = harness_model.HarnessModel(model)
  prompts = ['def f(x):', 'import numpy as np\n' * 20, '']
  how = {'until': [], 'max_gen_toks': 5}
  texts = lm.generate_until(
    asked(*((p, how) for p in prompts), kind='generate_until')
  )
  for prompt, text in zip(prompts, texts, strict=True):
    ids = lm.tok_encode(prompt) or [model.tokenizer.eos_id]
    ids, new = ids[-(LENGTH - 5) :], []
    for _ in range(5):
      new.append(int(logits_of(ids + new)[-1].argmax()))
    if model.tokenizer.eos_id in new:
      new = new[: new.index(model.tokenizer.eos_id)]
    assert text == model.tokenizer.decode(new)
  assert any(texts)


class Letters:
  """A tokenizer of single letters, but for 'ab', which is one token."""

  eos_id = 0
  sha256 = ''

  def encode(self, text):
    """1 is 'ab'."""
    return [1 if p == '\1' else ord(p) for p in text.replace('ab', '\1')]

  def token_bytes(self, token_id):
    """The reverse."""
    return b'ab' if token_id == 1 else chr(token_id).encode()


class Recorder:
  """A scorer and a sampler that answer by rote and keep what they are asked."""

  def __init__(self, answer=''):
    self.asked, self.answer = [], answer

  def score(self, params, asked, tick):
    """One nat a token."""
    del params
    self.asked += asked
    tick(len(asked))
    counts = [len(ids) - start for ids, start in asked]
    return [requests.Scored(float(n), n, False, 1, False) for n in counts]

  def sampler(self, choice):
    """Writes the answer after each prompt, two letters at a time."""

    def sample(params, prompts, key_B):
      del params
      assert len(prompts) == len(key_B)
      self.asked += [(ids, choice.temperature) for ids in prompts]
      letters = itertools.cycle(0 if c == '$' else ord(c) for c in self.answer)
      while True:
        new = list(itertools.islice(letters, 2))
        yield [new for _ in prompts]

    return sample


@pytest.fixture
def by_rote(model):
  """(recorder, model) of an answer; no model is run."""

  def make(answer='', **changes):
    recorder = Recorder(answer)
    changes = {'length': LENGTH, 'tokenizer': Letters()} | changes
    return recorder, dataclasses.replace(
      model, scorer=recorder.score, sampler=recorder.sampler, **changes
    )

  return make


@pytest.mark.parametrize(
  'context, continuation, ids, start',
  [
    ('x', 'y', 'xy', 1),
    ('x ', 'y', 'x y', 1),  # A space at the end goes to what is scored.
    ('', 'y', '\0y', 1),  # Nothing is EOS.
    ('xa', 'b', 'x\1', 1),  # A token across the join is scored.
    ('a', 'b', '\0\1', 1),
    (' ', 'y', '\0 y', 1),
  ],
)
def test_neither_side_is_ever_empty(by_rote, context, continuation, ids, start):
  recorder, model = by_rote()
  lm = harness_model.HarnessModel(model)
  lm.loglikelihood(asked((context, continuation)))
  (request,) = recorder.asked
  assert ''.join(map(chr, request.ids)) == ids and request.start == start


def test_an_empty_text_to_score_is_refused(by_rote):
  lm = harness_model.HarnessModel(by_rote()[1])
  with pytest.raises(errors.DataError, match='task, document 1: the text'):
    lm.loglikelihood(asked(('x', 'y'), ('x', '')))
  with pytest.raises(errors.DataError, match='task, document 0: the text'):
    lm.loglikelihood_rolling(asked(('',)))


@pytest.mark.parametrize(
  'answer, until, text',
  [
    ('one.two', ['.'], 'one'),
    ('one.two', 'w', 'one.t'),
    ('one.two', ['w', 'n'], 'o'),
    ('one.two', ['e.t', '.'], 'one'),  # The first to be complete counts.
    ('on$e.', ['.'], 'on'),
    ('one.two', [], 'one.two'),
  ],
)
def test_text_ends_at_a_stop_at_eos_or_at_its_length(
  by_rote, answer, until, text
):
  _, model = by_rote(answer)
  lm = harness_model.HarnessModel(model)
  how = {'until': until, 'max_gen_toks': 7}
  assert lm.generate_until(asked(('x', how), kind='generate_until')) == [text]


def test_prompts_are_continued_with_those_of_their_kind(by_rote):
  recorder, model = by_rote('z')
  lm = harness_model.HarnessModel(model)
  long = 'p' * 30 + 'q' * 30
  drawn = {'do_sample': True, 'temperature': 0.5, 'max_gen_toks': 3}
  texts = lm.generate_until(
    asked(
      ('ab', {'max_gen_toks': 3}),
      (long, {'max_gen_toks': 10}),
      ('c', {'max_gen_toks': 3}),
      ('d', drawn),
      (long, {'max_gen_toks': 1000}),
      kind='generate_until',
    )
  )
  assert texts == ['zzz', 'z' * 10, 'zzz', 'zzz', 'z' * (LENGTH // 2)]
  rows = [
    (''.join(map(chr, ids)), temperature)
    for ids, temperature in recorder.asked
    if any(ids)
  ]
  assert rows == [
    ('\1', 0.0),
    ('c', 0.0),
    (long[-LENGTH // 2 :], 0.0),
    (long[-(LENGTH - 10) :], 0.0),
    ('d', 0.5),
  ]
  with pytest.raises(errors.ConfigError, match='task samples by top_p'):
    lm.generate_until(
      asked(('x', drawn | {'top_p': 0.9}), kind='generate_until')
    )


def test_a_run_prints_nothing_and_leaves_no_cache(
  by_rote, official, capfd, tmp_path, monkeypatch
):
  for place in ('tempfile.tempdir', 'datasets.config.HF_DATASETS_CACHE'):
    monkeypatch.setattr(place, str(tmp_path))
  _, model = by_rote()
  ((name, result),) = harness.run(model, ['lambada'], str(official), limit=3)
  assert (name, result.figures['items']) == ('lambada', 3)
  assert result.figures['perplexity'] > 1
  assert capfd.readouterr() == ('', '')
  assert not list(tmp_path.iterdir())


@pytest.fixture
def other_tasks(tmp_path, monkeypatch):
  """Two tasks of one's own, and the group of both."""
  rows = tmp_path / 'rows.jsonl'
  rows.write_text(
    ''.join(json.dumps({'q': q, 'a': a}) + '\n' for q, a in ('xy', 'zw'))
  )
  common = {
    'dataset_path': 'json',
    'dataset_kwargs': {
      'data_files': {'test': str(rows)},
      'cache_dir': str(tmp_path / 'cache'),
    },
    'test_split': 'test',
    'doc_to_text': '{{q}}',
    'doc_to_target': '{{a}}',
  }
  mean = {'aggregation': 'mean', 'higher_is_better': True}
  described = {
    'writes': common
    | {
      'task': 'writes',
      'output_type': 'generate_until',
      'generation_kwargs': {'until': ['.']},
      'metric_list': [{'metric': 'exact_match'} | mean],
    },
    'says': common
    | {
      'task': 'says',
      'output_type': 'loglikelihood',
      'metric_list': [{'metric': 'acc'} | mean],
    },
    'both': {
      'group': 'both',
      'task': ['writes', 'says'],
      'aggregate_metric_list': [{'metric': 'acc', 'weight_by_size': True}],
    },
  }
  for name, yaml in described.items():
    (tmp_path / f'{name}.yaml').write_text(json.dumps(yaml))
  real = lm_eval_tasks.TaskManager

  def manager(include_path, include_defaults):
    assert include_defaults  # None of these is ours.
    return real(include_path=[include_path, tmp_path], include_defaults=False)

  monkeypatch.setattr('lm_eval.tasks.TaskManager', manager)


def test_a_group_gives_its_tasks_and_their_mean(by_rote, other_tasks):
  _, model = by_rote('y.')
  found = dict(harness.run(model, ['both']))
  assert list(found) == ['writes', 'says', 'both']
  writes, says, both = (found[n] for n in ('writes', 'says', 'both'))
  assert writes.figures['exact_match'] == 0.5
  assert [s['written'] for s in writes.samples] == [[['y']], [['y']]]
  assert [s['metrics']['exact_match'] for s in writes.samples] == [1, 0]
  assert says.figures['acc'] == both.figures['acc'] == 0
  assert [s['nats'] for s in says.samples] == [[1.0], [1.0]]
  assert both.figures['items'] == 4 and not both.samples
  assert both.figures['scored_tokens'] == says.figures['scored_tokens'] == 2
  assert both.figures['protocol']['version'] is None
  json.dumps(found)


def test_a_name_is_unknown(by_rote, monkeypatch):
  known = types.SimpleNamespace(all_tasks=['hellaswag', 'mmlu'])
  monkeypatch.setattr('lm_eval.tasks.TaskManager', lambda **_: known)
  _, model = by_rote()
  with pytest.raises(errors.ConfigError, match="'mmul' is .*mean mmlu"):
    list(harness.run(model, ['hellaswag', 'mmul']))
  with pytest.raises(errors.ConfigError, match="'xyz' is .*lm-eval ls tasks"):
    list(harness.run(model, ['hellaswag', 'xyz']))


def test_the_hub_is_out_of_reach(by_rote, monkeypatch):
  def load(**_):
    raise ConnectionError("Couldn't reach it\nor so")

  monkeypatch.setattr('datasets.load_dataset', load)
  _, model = by_rote()
  with pytest.raises(errors.DataError, match='reach it.*--task_data') as e:
    list(harness.run(model, ['piqa']))
  assert '\n' not in str(e.value)


def test_without_the_harness_it_says_how_to_get_it(by_rote, monkeypatch):
  monkeypatch.setitem(sys.modules, 'lm_eval.evaluator', None)
  _, model = by_rote()
  with pytest.raises(errors.ConfigError, match=r'leviathan\[eval\]'):
    list(harness.run(model, ['piqa']))
