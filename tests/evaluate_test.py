"""Evaluating a checkpoint gives what training saw, on any number of devices."""

import dataclasses
import json
import math
import shutil
import types

from absl import flags as absl_flags
from absl.testing import flagsaver
import jax
import numpy as np
import pytest

from leviathan import checkpoint
from leviathan import errors
from leviathan import evaluate
from leviathan import experiment
from leviathan import metrics
from leviathan import restore
from leviathan import results
from leviathan import rundir
from leviathan import train
from leviathan.cli import evaluate as cli


@pytest.fixture(scope='module')
def run(tiny, tmp_path_factory):
  """A run of 4 steps."""
  config = tiny.config(train__steps=4, model__layers=1)
  run = rundir.open_(str(tmp_path_factory.mktemp('run')))
  train.train(experiment.make(config), run, lambda line: None)
  return run


@pytest.fixture(scope='module')
def loaded(run):
  return restore.restore(run, None)


def test_the_figures_are_those_of_training(run, loaded, tiny, figures_of):
  found = figures_of(loaded, tiny.directory / 'validation')
  last = metrics.read(run.metrics_file)[-1]
  assert last['split'] == 'validation/held_out'
  for name in ('nats_per_token', 'bits_per_byte', 'scored_tokens'):
    assert found['perplexity'][name] == pytest.approx(last[name], rel=1e-6)
  bins = found['frequency']['bins']
  assert sum(row['tokens'] for row in bins) == last['scored_tokens']
  total = sum(r['tokens'] * r.get('nats_per_token', 0) for r in bins)
  assert total / last['scored_tokens'] == pytest.approx(
    last['nats_per_token'], rel=1e-6
  )


@pytest.fixture(scope='module')
def subsets(tiny, tmp_path_factory, make_dataset):
  """A directory with a dataset of each of two subsets."""
  top = tmp_path_factory.mktemp('subsets')
  texts = {
    'Code': ['def f():\n  return 1\n'] * 9,
    'Prose': ['Some words. ' * 40],
  }
  for name, documents in texts.items():
    make_dataset(top / name, documents, f'spm:{tiny.tokenizer}')
  return top


def test_subsets_are_evaluated_each_and_in_total(loaded, subsets):
  evaluation = evaluate.read(
    loaded.parts,
    evaluate.DATASET_TASKS,
    {'pile': str(subsets)},
    '',
    0,
    evaluate.training_of(loaded.run),
  )
  ticks = []
  (found,) = evaluation.run(loaded.params, ticks.append)
  assert sum(ticks) == evaluation.size
  splits = {'validation/pile', 'bins/pile/never seen'}
  assert evaluation.splits == splits <= set(evaluate.rows([found]))
  total, *parts = [r.figures for r in found['perplexity'].values()]
  assert list(found['perplexity']) == ['pile', 'pile/Code', 'pile/Prose']
  tokens = [part['scored_tokens'] for part in parts]
  assert total['scored_tokens'] == sum(tokens)
  nats = [
    n * part['nats_per_token'] for n, part in zip(tokens, parts, strict=True)
  ]
  assert total['nats_per_token'] == pytest.approx(sum(nats) / sum(tokens))
  bytes_ = [
    n / part['bits_per_byte'] for n, part in zip(nats, parts, strict=True)
  ]
  assert total['bits_per_byte'] == pytest.approx(sum(nats) / sum(bytes_))
  total, *parts = [r.figures['bins'] for r in found['frequency'].values()]
  assert [row['tokens'] for row in total] == [
    sum(row['tokens'] for row in rows) for rows in zip(*parts, strict=True)
  ]


def test_a_set_takes_the_place_of_all_its_old_subsets(loaded, tmp_path):
  loaded = dataclasses.replace(loaded, run=rundir.RunDir(tmp_path))

  def result(nats):
    return evaluate.Result(
      {'protocol': {}, 'nats': nats}, lambda: [{'n': nats}]
    )

  before = {name: result(1.0) for name in ('a', 'a/x', 'a/y', 'ab')}
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(restore.Restored, 'manifest_sha256', '')
    results.write(loaded, {'perplexity': before})
    after = {name: result(2.0) for name in ('a', 'a/x')}
    output = results.write(loaded, {'perplexity': after})
  document = json.loads((output / 'perplexity.json').read_text())
  assert list(document['datasets']) == ['ab', 'a', 'a/x']
  lines = metrics.read(output / 'perplexity.samples.jsonl')
  assert lines == [
    {'dataset': 'ab', 'n': 1.0},
    {'dataset': 'a', 'n': 2.0},
    {'dataset': 'a/x', 'n': 2.0},
  ]


def test_every_figure_of_a_task_is_shown():
  """Of the harness's tasks too, whose metrics may be of any name."""
  figures = {'f1': 0.5, 'em,strict': 0.25, 'em,strict_stderr': 0.125}
  counts = {'items': 4, 'scored_tokens': 0, 'protocol': {'official': False}}
  result = evaluate.Result(figures | counts, list)
  lines = results.text([{'gsm8k': {'harness': result}}]).splitlines()[2:]
  cells = [[c.strip() for c in line.split('|')[1:-1]] for line in lines]
  assert cells == [
    ['gsm8k harness', 'f1', '0.5000', '', '4 items of another file'],
    [
      'gsm8k harness',
      'em,strict',
      '0.2500',
      '0.1250',
      '4 items of another file',
    ],
  ]


LAMBADA = [
  'Ann took the cup to the kitchen and washed the cup',
  'He had a dog, and everywhere he went, so went the dog',
  'They said that it was cold',
]


@pytest.fixture(scope='module')
def task_data(tmp_path_factory):
  """Files as the official ones are, but short."""
  top = tmp_path_factory.mktemp('task_data')
  rows = ''.join(json.dumps({'text': text}) + '\n' for text in LAMBADA)
  (top / 'lambada_test.jsonl').write_text(rows)
  rows = [
    {'goal': f'do {i}', 'sol1': 'yes', 'sol2': 'no way'} for i in range(5)
  ]
  (top / 'piqa').mkdir()
  (top / 'piqa/valid.jsonl').write_text('\n'.join(map(json.dumps, rows)) + '\n')
  (top / 'piqa/valid-labels.lst').write_text('0\n1\n0\n1\n1\n')
  page = ' = A title = \n \n It is , as said , a page . \n'
  (top / 'wiki.test.raw').write_text(f' \n{page}{page} = = Part = = \n')
  return top


TEXTS = ('wikitext', 'piqa', 'lambada')


def evaluated(loaded, tasks, tiny, task_data, items=0):
  """Pieces on the held-out set and these files; as many ticks as are due."""
  evaluation = evaluate.read(
    loaded.parts,
    tasks,
    {'held_out': str(tiny.directory / 'validation')},
    str(task_data),
    items,
    evaluate.training_of(loaded.run),
  )
  ticks = []
  found = list(evaluation.run(loaded.params, ticks.append))
  assert sum(ticks) == evaluation.size
  return found


def test_tasks_leave_their_figures_and_a_line_for_each_item(
  loaded, task_data, tiny
):
  found = evaluated(loaded, TEXTS, tiny, task_data)
  for piece in found:
    output = results.write(loaded, piece)

  def read(task):
    return json.loads((output / f'{task}.json').read_text())

  samples = list(metrics.read(output / 'piqa.samples.jsonl'))
  assert [s['id'] for s in samples] == list('01234')
  assert [s['gold'] for s in samples] == [0, 1, 0, 1, 1]
  figures = read('piqa')['datasets']['validation']
  assert figures['acc'] == pytest.approx(np.mean([s['acc'] for s in samples]))
  protocol = figures['protocol']
  assert protocol['step'] == 4 and protocol['window'] == 32
  assert protocol['manifest_sha256'] == loaded.manifest_sha256
  assert protocol['official'] is False
  words = [s['words'] for s in metrics.read(output / 'wikitext.samples.jsonl')]
  assert len(words) == read('wikitext')['datasets']['test']['pages'] == 2
  assert '| lambada test |' in ' '.join(results.text(found).split())

  # Others stay; what is evaluated again, here in part, takes the old's place.
  tasks = ('perplexity', 'piqa')
  for piece in evaluated(loaded, tasks, tiny, task_data, items=2):
    results.write(loaded, piece)
  samples = list(metrics.read(output / 'piqa.samples.jsonl'))
  assert [s['id'] for s in samples] == ['0', '2']
  assert read('piqa')['datasets']['validation']['items'] == 2
  assert read('lambada')['datasets']['test']['items'] == 3
  samples = list(metrics.read(output / 'perplexity.samples.jsonl'))
  assert {s['dataset'] for s in samples} == {'held_out'}
  figures = read('perplexity')['datasets']['held_out']
  assert sum(s['tokens'] for s in samples) == figures['scored_tokens']


def test_in_training_the_same_figures_come_out(tiny, task_data, tmp_path):
  config = tiny.config(
    train__steps=4,
    model__layers=1,
    evaluate__tasks=('perplexity', 'frequency', *TEXTS),
    evaluate__task_data=str(task_data),
  )
  run = rundir.open_(str(tmp_path / 'run'))
  said = []
  train.train(experiment.make(config), run, said.append)
  rows = {
    r['split']: r for r in metrics.read(run.metrics_file) if r['step'] == 4
  }
  loaded = restore.restore(run, 4)
  evaluation = evaluate.read(
    loaded.parts, config.evaluate.tasks, config.evaluate.directories(),
    str(task_data), 0, evaluate.training_of(run),
  )  # fmt: skip
  wanted = evaluate.rows(evaluation.run(loaded.params, lambda n: None))
  assert set(wanted) == set(rows) - {'train'}
  assert {'task/piqa', 'task/wikitext', 'validation/held_out'} < set(wanted)
  assert 'input_bins/held_out/never seen' in wanted
  for split, metrics_ in wanted.items():
    for name, value in metrics_.items():
      assert rows[split][name] == pytest.approx(value, rel=1e-5, nan_ok=True)
  assert any('step 4: task/piqa accuracy' in line for line in said)
  assert not any('never seen' in line for line in said)


def test_an_unknown_task_is_refused_with_the_nearest(leviathan):
  code, _, stderr = leviathan('evaluate', '--workdir=x', '--tasks=helaswag')
  assert code == 2 and 'did you mean hellaswag?' in stderr.splitlines()[-1]


def test_data_of_another_tokenizer_are_refused(
  loaded, tiny, figures_of, monkeypatch
):
  manifest = loaded.run.manifest()
  manifest['tokenizer']['sha256'] = 'another'
  monkeypatch.setattr(rundir.RunDir, 'manifest', lambda self: manifest)
  with pytest.raises(errors.DataError, match='another tokenizer'):
    figures_of(loaded, tiny.directory / 'validation')


@pytest.mark.parametrize('block', [512, 100])
def test_the_embedding_of_every_token_is_the_layer_s(
  loaded, monkeypatch, block
):
  """Also where the last block is not full, or not one the mesh divides."""
  monkeypatch.setattr(restore, 'EMBEDDING_BLOCK', block)
  x_VD = restore.embeddings(loaded)
  ids_BL = np.arange(512)[None]
  wanted = loaded.parts.model.apply(
    {'params': loaded.params}, ids_BL, method=lambda m, ids: m.embedder(ids)
  )[0]
  np.testing.assert_allclose(x_VD, wanted, rtol=1e-5, atol=1e-7)


def test_a_table_of_the_embeddings_gives_the_same_figures(
  loaded, tiny, figures_of
):
  cached = restore.with_table(loaded)
  assert list(cached.params['embedder']) == ['table_VD']
  assert cached.params['embedder']['table_VD'].sharding.is_fully_replicated
  validation = tiny.directory / 'validation'
  plain, found = (figures_of(x, validation) for x in (loaded, cached))
  assert found['perplexity']['nats_per_token'] == pytest.approx(
    plain['perplexity']['nats_per_token'], rel=1e-6
  )
  ids_BL = np.arange(64, dtype=np.int32).reshape(8, 8)
  logits = [
    x.parts.model.apply({'params': x.params}, ids_BL) for x in (loaded, cached)
  ]
  scale = np.abs(logits[0][..., :512]).max()
  difference = np.abs(np.asarray(logits[0] - logits[1])[..., :512]).max()
  assert difference <= 1e-6 * scale
  # A table is taken as it is.
  assert restore.with_table(cached) is cached


def test_a_checkpoint_of_another_run_is_refused(run):
  """A folder that was copied in: its own manifest tells."""
  step = run.checkpoints().latest()
  found = checkpoint.Checkpoints(run.checkpoint_dir).manifest(step)
  assert found['arm'] == 'lev'
  other = rundir.RunDir(run.path)
  changed = run.manifest() | {'arm': 'tied'}
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(rundir.RunDir, 'manifest', lambda self: changed)
    with pytest.raises(errors.CheckpointError, match='--allow=manifest.arm '):
      restore.restore(other, None)
    restore.restore(other, None, ['manifest.arm'])


def test_a_run_without_evaluation_sets_asks_for_data(run, tmp_path, leviathan):
  shutil.copytree(run.path, tmp_path / 'run')
  copy = rundir.open_(str(tmp_path / 'run'))
  config = copy.config()
  config['evaluate']['datasets'] = []
  rundir.write_json(copy.config_file, config)
  code, stdout, stderr = leviathan('evaluate', f'--workdir={copy.path}')
  assert code == 2 and not stdout
  error = stderr.splitlines()[-1]
  assert error.startswith(f'error: {copy.path} has no config.evaluate.datasets')
  assert error.endswith('--data=DIR')


def test_a_step_goes_by_name_or_number(run, leviathan):
  steps = run.checkpoints().steps()
  assert restore.restore(run, restore.LATEST).step == steps[-1] == 4
  # Of the other one no loss is known.
  assert restore.restore(run, restore.BEST).step == 4
  code, _, stderr = leviathan('evaluate', f'--workdir={run.path}', '--step=bst')
  assert code == 2 and '--step=bst is no step' in stderr.splitlines()[-1]


def losses_at(path, losses, split='validation/a'):
  rows = [
    {'step': s, 'split': split, 'nats_per_token': n, 'perplexity': 1.0}
    for s, n in losses.items()
  ]
  with path.open('a') as file:
    file.write(''.join(map(metrics.line, rows)))


def test_the_best_step_is_that_of_the_lowest_loss(tmp_path, monkeypatch):
  run = rundir.RunDir(tmp_path)
  steps = [2, 4, 6, 8]
  checkpoints = types.SimpleNamespace(steps=lambda: steps)
  with pytest.raises(errors.CheckpointError, match=r'there, \[2, 4, 6, 8\]'):
    restore._best(run, checkpoints)
  # Of equal ones the later; what is not there or not finite does not count, nor
  # does another set.
  losses_at(run.metrics_file, {2: math.nan, 3: 1.0, 4: 2.0, 6: 2.0, 8: 3.0})
  losses_at(run.metrics_file, {2: 0.5}, 'validation/b')
  losses_at(run.metrics_file, {2: 0.5}, 'task/lambada')
  assert restore._best(run, checkpoints) == 6


def test_a_kernel_of_the_machine_of_training_is_not_asked_for(run, tmp_path):
  shutil.copytree(run.path, tmp_path / 'run')
  copy = rundir.open_(str(tmp_path / 'run'))
  config = copy.config()
  config['model']['attention'] = 'cudnn'
  rundir.write_json(copy.config_file, config)
  assert restore.restore(copy, None).parts.config.model.attention == 'auto'


def test_any_number_of_devices_scores_alike(
  loaded, run, tiny, task_data, tmp_path, leviathan, monkeypatch
):
  """Here eight; there one, by the command, and through the harness."""
  assert loaded.parts.mesh.size == jax.device_count() == 8
  found = evaluated(loaded, ('perplexity', *TEXTS), tiny, task_data)
  shutil.copytree(run.path, tmp_path / 'run')
  monkeypatch.setenv('XLA_FLAGS', '')
  flags = (f'--workdir={tmp_path}/run', f'--task_data={task_data}')
  tasks = ','.join(('perplexity', *TEXTS))
  code, stdout, stderr = leviathan('evaluate', *flags, f'--tasks={tasks}')
  assert not code, stderr
  output = tmp_path / 'run/eval/4'
  assert str(output) in stdout

  def read(path, key):
    return json.loads((output / path).read_text())['datasets'][key]

  figures_of = {}
  for piece in found:
    for task, sets in piece.items():
      figures_of |= {(task, name): r.figures for name, r in sets.items()}
  for (task, name), figures in figures_of.items():
    there = read(f'{task}.json', name)
    assert there.keys() == figures.keys()
    for metric, value in figures.items():
      if isinstance(value, float):
        assert there[metric] == pytest.approx(value, rel=1e-5)

  pytest.importorskip('lm_eval')
  code, stdout, stderr = leviathan(
    'evaluate', *flags, '--harness', '--tasks=piqa,wikitext', '--task_items=3'
  )
  assert not code, stderr
  assert 'piqa harness' in stdout and 'byte_perplexity' not in stderr
  byte = read('harness/wikitext.json', 'harness')['byte_perplexity']
  ours = figures_of['wikitext', 'test']['byte_perplexity']
  assert byte == pytest.approx(ours, rel=1e-5)
  assert read('harness/piqa.json', 'harness')['items'] == 3


@pytest.mark.parametrize(
  'given, says',
  [
    ({'tasks': []}, '--tasks names none'),
    ({'harness': True}, '--tasks names none'),
    ({'stride': 8}, '--stride means nothing to --tasks=perplexity'),
    ({'task_data': 'x'}, '--task_data means nothing'),
    (
      {'tasks': ['piqa'], 'data': ['x']},
      '--data means nothing to --tasks=piqa',
    ),
    (
      {'tasks': ['piqa'], 'harness': True, 'data': ['x']},
      'nothing to --harness',
    ),
    ({'data': ['a/x', 'b/x']}, 'two sets of one name; give NAME=DIR'),
    ({'tasks': ['wikitext'], 'stride': 33}, 'of 32 tokens; give 1 to 32'),
  ],
)
def test_flags_that_mean_nothing_are_refused(loaded, given, says):
  absl_flags.FLAGS.mark_as_parsed()
  with flagsaver.flagsaver(**given), pytest.raises(errors.ConfigError) as e:
    list(cli._by_us(loaded, cli._tasks()))
  assert says in str(e.value)


def test_train_and_validation_are_not_one_set(loaded, tiny, figures_of):
  with pytest.raises(errors.DataError, match='give one of train, validation'):
    figures_of(loaded, tiny.directory)


def test_what_is_evaluated_has_a_fingerprint(loaded, tiny, task_data, tmp_path):
  """By which the processes of a pod know that they have the same files."""

  def fingerprints(directory):
    return evaluate.read(
      loaded.parts,
      ('perplexity', 'lambada', 'wikitext'),
      {'held_out': str(tiny.directory / 'validation')},
      str(directory),
      0,
      evaluate.training_of(loaded.run),
    ).fingerprints

  copy = shutil.copytree(task_data, tmp_path / 'copy')
  found = fingerprints(task_data)
  assert set(found) == {'held_out', 'lambada', 'wikitext'}
  assert fingerprints(copy) == found
  with (copy / 'lambada_test.jsonl').open('a') as file:
    file.write('{"text": "one more"}\n')
  changed = fingerprints(copy)
  assert [n for n in found if changed[n] != found[n]] == ['lambada']
