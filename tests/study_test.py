"""Studies: what is missing is done, in stages, and nothing twice."""

import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from absl import flags as absl_flags
from etils import epath
from ml_collections import config_flags
import pytest

from leviathan import config as config_lib
from leviathan import errors
from leviathan import experiment
from leviathan import rundir
from leviathan import study as studies

ROOT = pathlib.Path(__file__).parents[1]
REPORT = 'report/report.md'  # In a study's directory.
STUDIES = [
  path.stem
  for path in (ROOT / 'configs' / 'studies').glob('[!_]*.py')
  if path.stem != 'base'
]


def variant(config, token_order='', dataset='', overrides=()):
  return {
    'config': config,
    'token_order': token_order,
    'dataset': dataset,
    'overrides': overrides,
  }


def section(tiny, **changes):
  """Two variants, two rates, two seeds, on the tiny data."""
  return {
    'variants': {
      name: variant(f'{ROOT}/configs/{arm}.py:smoke', order)
      for name, arm, order in (('tied', 'tied', ''), ('bytes', 'lev', 'bytes'))
    },
    'learning_rates': (1e-3, 4e-3),
    'seeds': (0, 1),
    'dataset': str(tiny.directory / 'train'),
    'overrides': tuple(
      f'{name}={value}'
      for name, value in tiny.overrides().items()
      if name != 'data.train'
    )
    + ('model.layers=1', 'train.steps=3'),
    'search_overrides': (),
    'tasks': (),
    'task_data': '',
    'contrasts': ('bytes - tied',),
  } | changes


def workspace(tiny, path, **changes):
  study = config_lib.build(studies.Study, section(tiny, **changes), 'study')
  return studies.Workspace(study, epath.Path(path))


@pytest.fixture(scope='module')
def done(leviathan, tiny, tmp_path_factory):
  """(flags, directory, output) of a whole study."""
  path = tmp_path_factory.mktemp('study')
  file = path / 'tiny.py'
  file.write_text(
    'import json\nimport ml_collections\n\ndef get_config():\n'
    f'  values = json.loads({json.dumps(section(tiny))!r})\n'
    '  def tuples(values):\n'
    '    if isinstance(values, dict):\n'
    '      return {name: tuples(value) for name, value in values.items()}\n'
    '    return tuple(values) if isinstance(values, list) else values\n'
    '  return ml_collections.ConfigDict(tuples(values))\n'
  )
  flags = f'--study={file}', f'--workdir={path / "work"}'
  code, stdout, stderr = leviathan('study', *flags)
  assert code == 0, stderr
  return flags, path / 'work', stdout


def test_each_rate_is_tried_and_the_best_goes_on(done, tiny):
  _, path, _ = done
  there = workspace(tiny, path)
  for name in ('tied', 'bytes'):
    rates = there.rates(name)
    assert sorted(rates) == [1e-3, 4e-3]
    best = min(rates, key=rates.__getitem__)
    assert [
      (run.learning_rate, run.seed) for run in there.replicates(name)
    ] == [
      (best, 0),
      (best, 1),
    ]
    assert studies.loss(there.results(name)[0]) == rates[best]
  assert len(list((path / 'runs').iterdir())) == 6


def test_runs_are_what_was_planned(done, tiny):
  _, path, _ = done
  for run in workspace(tiny, path).replicates('bytes'):
    config = json.loads((path / 'runs' / run.name / 'config.json').read_text())
    assert config['arm'] == 'bytes'
    assert config['train']['steps'] == 3
    assert config['train']['seed'] == run.seed
    assert config['optimizer']['learning_rate'] == run.learning_rate
    assert config['model']['token_order'] == str(path / 'orders' / 'bytes.npy')


def test_the_report_shows_losses_contrasts_and_strata(done, tiny):
  _, path, stdout = done
  text = (path / REPORT).read_text()
  assert text in stdout
  there = workspace(tiny, path)
  values = {
    name: [studies.loss(run) for run in there.results(name)]
    for name in ('tied', 'bytes')
  }
  assert f'{sum(values["tied"]) / 2:.4f}' in text
  differences = [a - b for a, b in zip(*reversed(values.values()), strict=True)]
  wanted = re.escape(f'{sum(differences) / 2:+.4f}')
  assert re.search(rf'\| bytes - tied \| +2 seeds \| +{wanted} \+- ', text)
  assert text.count('bytes - tied') == 2  # In all, and by frequency.
  for run in there.results('bytes'):  # Each in the list of runs.
    assert re.search(rf'\| +{studies.loss(run):.4f} \|', text)


def test_nothing_is_done_twice(leviathan, done):
  flags, path, _ = done
  before = {p: p.stat().st_mtime_ns for p in (path / 'runs').rglob('*')}
  code, _, stderr = leviathan('study', *flags)
  assert code == 0, stderr
  assert {p: p.stat().st_mtime_ns for p in (path / 'runs').rglob('*')} == before


def test_a_study_goes_on_where_it_was_stopped(leviathan, done, tiny, tmp_path):
  flags, path, _ = done
  work = tmp_path / 'work'
  shutil.copytree(path, work)
  lost = workspace(tiny, work).replicates('tied')[1]
  shutil.rmtree(work / 'runs' / lost.name / 'eval')
  code, stdout, stderr = leviathan(
    'study', flags[0], f'--workdir={work}', '--dry_run'
  )
  assert code == 0, stderr
  (line,) = stdout.splitlines()
  assert (
    line.startswith('leviathan train ') and ' && leviathan evaluate ' in line
  )
  assert lost.name in line


def test_the_page_says_how_rates_were_chosen(done):
  _, path, _ = done
  said = (
    'The learning rate of each variant was chosen by the same held-out losses '
    'with the first seed, whose run is one of those compared.'
  )
  assert said in (path / REPORT).read_text()


@pytest.mark.parametrize('evaluated', [False, True])
def test_a_seed_that_diverged_is_named_and_the_others_reported(
  leviathan, done, tiny, tmp_path, evaluated
):
  flags, path, _ = done
  work = tmp_path / 'work'
  shutil.copytree(path, work)
  there = workspace(tiny, work)
  kept, lost = there.replicates('tied')
  run = rundir.open_(str(there.directory(lost)))
  if evaluated:
    file = run.eval_dir(3) / 'perplexity.json'
    values = rundir.read_json(file)
    for figures in values['datasets'].values():
      figures |= {'nats_per_token': None, 'perplexity': None}
    rundir.write_json(file, values)
  else:
    shutil.rmtree(run.path / 'eval')
    rundir.write_json(run.not_finite_file, {'error': 'x'})
  code, stdout, stderr = leviathan('study', flags[0], f'--workdir={work}')
  assert code == 0, stderr
  assert 'leviathan train' not in stdout
  text = (work / REPORT).read_text()
  assert 'not finite: tied with seed 1.' in text and 'nan' not in text
  (run_,) = there.results('tied')
  nats = studies.loss(run_)
  assert re.search(rf'\| tied +\| +0 \| .*\| +{nats:.4f} \|', text)
  # Of the seed that both have.
  other = studies.loss(there.results('bytes')[0])
  assert run_.seed == kept.seed == 0
  difference = re.escape(f'{other - nats:+.4f}')
  assert re.search(rf'\| bytes - tied \| sequences \| +{difference} \[', text)


def test_a_variant_all_of_whose_seeds_diverged_is_an_error(
  tiny, tmp_path, monkeypatch
):
  there = workspace(tiny, tmp_path)
  monkeypatch.setattr(studies.Workspace, 'rates', lambda self, _: {1e-3: 5.0})
  for run in there.replicates('tied'):
    rundir.write_json(
      rundir.open_(str(there.directory(run))).not_finite_file, {'error': 'x'}
    )
  with pytest.raises(errors.CheckpointError, match='lower study.learning_rat'):
    there.results('tied')
  with pytest.raises(errors.CheckpointError, match='is not finished'):
    there.results('bytes')


def test_runs_without_validation_cannot_be_compared(done, tiny, tmp_path):
  _, path, _ = done
  work = tmp_path / 'work'
  shutil.copytree(path, work)
  there = workspace(tiny, work)
  run = rundir.open_(str(there.directory(there.tried('tied')[0])))
  rows = run.metrics_file.read_text().splitlines(keepends=True)
  run.metrics_file.write_text(''.join(x for x in rows if '"train"' in x))
  with pytest.raises(errors.CheckpointError, match='evaluate.datasets') as e:
    there.rates('tied')
  assert str(run.path) in str(e.value)


def test_a_finished_run_is_read_once(done, tiny, monkeypatch):
  _, path, _ = done
  there = workspace(tiny, path)
  read = []
  monkeypatch.setattr(
    studies.runs, 'read', lambda w, f=studies.runs.read: read.append(w) or f(w)
  )
  for stage in there.stages():
    assert not stage
  there.results('tied')
  assert len(read) == len({*read}) == 6


def test_stages_follow_one_another(tiny, tmp_path):
  stages = workspace(tiny, tmp_path).stages()
  assert [job.commands[0][0] for job in next(stages)] == ['order']
  assert len(next(stages)) == 4
  with pytest.raises(
    errors.CheckpointError, match='no run of tied is finished'
  ):
    next(stages)


def test_a_directory_of_another_study_is_refused(tiny, tmp_path):
  workspace(tiny, tmp_path, dataset='mended').claim()
  there = workspace(tiny, tmp_path)
  there.claim()  # Nothing was made yet.
  run = rundir.open_(str(there.directory(there.tried('tied')[0])))
  rundir.write_json(run.config_file, {})
  workspace(tiny, tmp_path, seeds=(0, 1, 2), learning_rates=(1e-3,)).claim()
  for field, value in (('overrides', ('train.steps=9',)), ('dataset', 'x')):
    with pytest.raises(errors.CheckpointError, match=f'{field}.* there'):
      workspace(tiny, tmp_path, **{field: value}).claim()
  variants = section(tiny)['variants']
  variants['tied'] = variants['bytes']
  with pytest.raises(errors.CheckpointError, match='variants'):
    workspace(tiny, tmp_path, variants=variants).claim()


def test_a_run_that_diverged_is_not_done_again(tiny, tmp_path):
  there = workspace(tiny, tmp_path, seeds=(0,))
  for run in there.tried('tied'):
    rundir.write_json(
      rundir.open_(str(there.directory(run))).not_finite_file, {'error': 'x'}
    )
  stages = there.stages()
  next(stages)
  assert len(next(stages)) == 2
  with pytest.raises(
    errors.CheckpointError, match='lower study.learning_rates'
  ):
    next(stages)


def test_a_rate_whose_held_out_loss_is_not_finite_is_not_the_best(
  tiny, tmp_path, monkeypatch
):
  there = workspace(tiny, tmp_path)
  losses = {1e-3: math.nan, 4e-3: 5.0}
  monkeypatch.setattr(studies.Workspace, 'result', lambda self, run: run)
  monkeypatch.setattr(studies, 'loss', lambda run: losses[run.learning_rate])
  assert there.rates('tied') == {4e-3: 5.0}
  assert {run.learning_rate for run in there.replicates('tied')} == {4e-3}
  losses[4e-3] = math.nan
  with pytest.raises(errors.CheckpointError, match='were not finite'):
    there.rates('tied')


@pytest.mark.parametrize(
  'changes, words',
  [
    ({'seeds': ()}, 'study.seeds=.* give one or more'),
    ({'seeds': (0, 0)}, 'each once'),
    (
      {'variants': {'a/b': variant('x')}},
      "'a/b' names directories",
    ),
    ({'variants': 3}, 'study.variants=3 is not a section'),
    ({'contrasts': ('tied', )}, 'is not NAME - NAME'),
    ({'contrasts': ('tied - byte',)}, 'did you mean bytes'),
    (
      {'variants': {'a': variant('x', 'byte')}},
      'did you mean bytes',
    ),
    ({'seed': 0}, 'study.seed is not a config key'),
    ({'overrides': ('train.steps',)}, "'train.steps' is not FIELD=VALUE"),
    (
      {
        'variants': {'tied': variant('x'), 'lev': variant('x', dataset='b')},
        'contrasts': ('lev - tied',),
      },
      "'lev - tied' compares losses on b and on",
    ),
  ],
)  # fmt: skip
def test_a_study_that_cannot_be_is_refused(tiny, tmp_path, changes, words):
  with pytest.raises(errors.ConfigError, match=words):
    workspace(tiny, tmp_path, **changes)


def only_these_are_done(monkeypatch, done, losses):
  """Some runs are finished; losses are by learning rate."""
  monkeypatch.setattr(
    studies.Workspace, 'result', lambda self, run: run if run in done else None
  )
  monkeypatch.setattr(studies.Workspace, 'diverged', lambda self, run: False)
  monkeypatch.setattr(studies, 'loss', lambda run: losses[run.learning_rate])


def options(command):
  """{flag: value} of a command."""
  return dict(word.split('=', 1) for word in command[1:])


def test_trials_are_shorter_apart_and_the_same_for_each_variant(
  tiny, tmp_path, monkeypatch
):
  search = 'train.steps=2', 'evaluate.interval=2'
  there = workspace(tiny, tmp_path, search_overrides=search)
  stages = there.stages()
  next(stages)
  trials = next(stages)
  assert len(trials) == 4
  for job in trials:
    train, evaluate = job.commands
    found = options(train)
    assert found['--config.train.steps'] == '2'
    assert found['--config.train.seed'] == '0'
    assert found['--workdir'] == options(evaluate)['--workdir']
    assert pathlib.Path(found['--workdir']).parent == tmp_path / 'trials'
  tried = there.tried('tied') + there.tried('bytes')
  only_these_are_done(monkeypatch, tried, {1e-3: 5.0, 4e-3: 4.0})
  runs = next(stages)
  assert len(runs) == 4
  for job in runs:
    found = options(job.commands[0])
    assert found['--config.train.steps'] == '3'
    assert found['--config.optimizer.learning_rate'] == '0.004'
    assert pathlib.Path(found['--workdir']).parent == tmp_path / 'runs'


def test_a_study_that_had_no_trials_is_known_again(tiny, tmp_path):
  there = workspace(tiny, tmp_path)
  run = rundir.open_(str(there.directory(there.tried('tied')[0])))
  rundir.write_json(run.config_file, {})
  old = json.loads(json.dumps(section(tiny)))
  for name in ('search_overrides', 'tasks', 'task_data'):
    del old[name]
  for values in old['variants'].values():
    del values['dataset'], values['overrides']
  rundir.write_json(epath.Path(tmp_path) / 'study.json', old)
  there.claim()
  searching = workspace(tiny, tmp_path, search_overrides=('train.steps=2',))
  with pytest.raises(errors.CheckpointError, match='search_overrides'):
    searching.claim()


def test_a_directory_with_trials_alone_is_refused_to_others(tiny, tmp_path):
  search = {'search_overrides': ('train.steps=2',)}
  there = workspace(tiny, tmp_path, **search)
  there.claim()
  run = rundir.open_(str(there.directory(there.tried('tied')[0])))
  rundir.write_json(run.config_file, {})
  with pytest.raises(errors.CheckpointError, match='overrides'):
    workspace(tiny, tmp_path, overrides=('train.steps=9',), **search).claim()


def test_variants_have_data_and_orders_of_their_own(tiny, tmp_path):
  variants = {
    'a': variant('x', 'bytes'),
    'b': variant('x', 'bytes', dataset='data/b/train'),
    'c': variant('x', dataset='data/b/train', overrides=('train.steps=7',)),
  }
  there = workspace(tiny, tmp_path, variants=variants, contrasts=('b - c',))
  stages = there.stages()
  orders = [options(job.commands[0]) for job in next(stages)]
  found = {order['--dataset']: order['--output'] for order in orders}
  assert len(orders) == len({*found.values()}) == 2
  for job in next(stages):
    train = options(job.commands[0])
    name = train['--config.arm']
    data = train['--config.data.train']
    assert data == there.study.dataset_of(name)
    assert train['--config.train.steps'] == ('7' if name == 'c' else '3')
    wanted = None if name == 'c' else found[data]
    assert train.get('--config.model.token_order') == wanted
  assert [*there.study.by_dataset().values()] == [['a'], ['b', 'c']]


def test_tasks_are_evaluated_at_the_end_of_the_runs_compared(
  tiny, tmp_path, monkeypatch
):
  there = workspace(
    tiny,
    tmp_path,
    tasks=('lambada',),
    task_data='texts',
    search_overrides=('train.steps=2',),
  )
  stages = there.stages()
  next(stages)
  for job in next(stages):
    assert options(job.commands[1]).keys() == {'--workdir'}
  tried = there.tried('tied') + there.tried('bytes')
  only_these_are_done(monkeypatch, tried, {1e-3: 5.0, 4e-3: 4.0})
  for job in next(stages):
    found = options(job.commands[1])
    assert found['--tasks'] == 'perplexity,frequency,lambada'
    assert found['--task_data'] == 'texts'


def test_what_is_killed_goes_on_to_the_same_report(
  done, tiny, tmp_path, leviathan
):
  flags, path, _ = done
  work = tmp_path / 'work'
  shutil.copytree(path, work)
  there = workspace(tiny, work)
  lost = [there.replicates(name)[1] for name in ('tied', 'bytes')]
  for run in lost:
    shutil.rmtree(there.directory(run))
  shutil.rmtree(work / 'report')
  command = 'study', flags[0], f'--workdir={work}', '--jobs=2'
  # While they train, and while they are evaluated.
  for sign in ('metrics.jsonl', 'checkpoints/3'):
    kill_after(command, [there.directory(run) / sign for run in lost])
  assert not (work / REPORT).exists()
  code, stdout, stderr = leviathan(*command)
  assert code == 0, stderr
  # Seconds, and the runs' directories, come last.
  goes_on, whole = (
    (directory / REPORT).read_text().partition('## Cost')[0]
    for directory in (work, path)
  )
  assert goes_on == whole
  assert [*work.glob('logs/runs-*.log')]
  assert 'step 3/3' not in stdout


def kill_after(command, files):
  """Kills a command and all it has started, once one of some files is there."""
  words = [sys.executable, '-m', 'leviathan', *command]
  with subprocess.Popen(words, cwd=ROOT, start_new_session=True) as process:
    while process.poll() is None and not any(f.exists() for f in files):
      time.sleep(0.02)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize('name', STUDIES)
def test_the_studies_of_the_project_can_be_trained(name, tmp_path, monkeypatch):
  monkeypatch.chdir(ROOT)

  def config_of(*words):
    values = absl_flags.FlagValues()
    words = ['leviathan', *(w for w in words if w.startswith('--config'))]
    monkeypatch.setattr(sys, 'argv', words)  # Overrides are looked for there.
    config_flags.DEFINE_config_file('config', flag_values=values)
    values(words)
    return values.config

  values = config_of(f'--config=configs/studies/{name}.py')
  study = config_lib.build(studies.Study, values, 'study')
  there = studies.Workspace(study, epath.Path(tmp_path))
  stages = there.stages()
  next(stages)
  trials = next(stages)
  assert len(trials) == len(study.variants) * len(study.learning_rates)
  tried = {run for variant in study.variants for run in there.tried(variant)}
  only_these_are_done(monkeypatch, tried, {r: r for r in study.learning_rates})
  for job in trials + next(stages):
    command = job.commands[0][1:]
    config = experiment.read_config(config_of(*command))
    variant, _, _ = pathlib.Path(
      options(job.commands[0])['--workdir']
    ).name.partition('-')
    if name == 'vocabulary':  # One of three of that arm.
      assert variant.startswith(f'{config.arm}_')
    else:
      assert variant == config.arm
    assert config.data.train == study.dataset_of(variant)
    held_out = config.evaluate.directories().values()
    folder, _, _ = config.data.train.rpartition('/')
    assert [*held_out] == [f'{folder}/validation']


@pytest.mark.parametrize('name', STUDIES)
def test_a_study_s_file_says_how_it_is_run_and_what_to_expect(name):
  text = (ROOT / 'configs' / 'studies' / f'{name}.py').read_text()
  said, _, _ = text.removeprefix('r"""').partition('"""')
  for words in (f'configs/studies/{name}.py', r'\d+ runs', 'minutes|hours'):
    assert re.search(words, said), words
  assert re.search('arXiv 2601.22040 v2|docs/', said)
