"""Studies: what is missing is done, in stages, and nothing twice."""

import importlib
import json
import math
import pathlib
import shutil

from etils import epath
import pytest

from leviathan import config as config_lib
from leviathan import errors
from leviathan import experiment
from leviathan import rundir
from leviathan import study as studies

ROOT = pathlib.Path(__file__).parents[1]


def section(tiny, **changes):
  """Two variants, two rates, two seeds, on the tiny data."""
  return {
    'variants': {
      name: {'config': f'{ROOT}/configs/{arm}.py:smoke', 'token_order': order}
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
    '  for name in ("learning_rates", "seeds", "overrides", "contrasts"):\n'
    '    values[name] = tuple(values[name])\n'
    '  return ml_collections.ConfigDict(values)\n'
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
  text = (path / 'report.md').read_text()
  assert text in stdout
  there = workspace(tiny, path)
  values = {
    name: [studies.loss(run) for run in there.results(name)]
    for name in ('tied', 'bytes')
  }
  assert f'{sum(values["tied"]) / 2:.4f}' in text
  differences = [a - b for a, b in zip(*reversed(values.values()), strict=True)]
  assert f'| bytes - tied | {sum(differences) / 2:+.4f} +- ' in text
  assert text.count('bytes - tied') == 2  # In all, and by frequency.


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


def test_stages_follow_one_another(tiny, tmp_path):
  stages = workspace(tiny, tmp_path).stages()
  assert [job[0][0] for job in next(stages)] == ['order']
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
      {'variants': {'a/b': {'config': 'x', 'token_order': ''}}},
      "'a/b' names directories",
    ),
    ({'variants': 3}, 'study.variants=3 is not a section'),
    ({'contrasts': ('tied', )}, 'is not NAME - NAME'),
    ({'contrasts': ('tied - byte',)}, 'did you mean bytes'),
    (
      {'variants': {'a': {'config': 'x', 'token_order': 'byte'}}},
      'did you mean bytes',
    ),
    ({'seed': 0}, 'study.seed is not a config key'),
  ],
)  # fmt: skip
def test_a_study_that_cannot_be_is_refused(tiny, tmp_path, changes, words):
  with pytest.raises(errors.ConfigError, match=words):
    workspace(tiny, tmp_path, **changes)


@pytest.mark.parametrize(
  'name', [p.stem for p in (ROOT / 'configs' / 'studies').glob('[!_]*.py')]
)
def test_the_studies_of_the_project_can_be_trained(name):
  values = importlib.import_module(f'configs.studies.{name}').get_config()
  study = config_lib.build(studies.Study, values, 'study')
  for variant in study.variants.values():
    file, _, scale = variant.config.partition(':')
    arm = importlib.import_module(file.removesuffix('.py').replace('/', '.'))
    config = arm.get_config(scale)
    for override in study.overrides:
      field, _, value = override.partition('=')
      config.update_from_flattened_dict({field: json.loads(value)})
    experiment.read_config(config)
