"""A directory belongs to one run, however it is spelled."""

import dataclasses
import json
import os

from etils import epath
import pytest

from leviathan import errors
from leviathan import experiment
from leviathan import rundir


@pytest.fixture
def claimed(tiny, tmp_path):
  """(claim, run): a run's directory, and a way to claim it as another's."""
  run = rundir.open_(str(tmp_path / 'run'))

  def claim(allow=(), **changes):
    config = tiny.config(**changes)
    parts = experiment.make(config)
    dataset = experiment.open_training(config)
    identity = dataclasses.asdict(config), parts.manifest(dataset)
    notes = rundir.check(run, *identity, allow)
    rundir.claim(run, *identity, dataset)
    return notes

  claim()
  return claim, run


@pytest.mark.parametrize(
  'spelling', ['{}', '{}/', '{}/checkpoints', '{}/checkpoints/', '~/run']
)
def test_all_spellings_name_one_run(tmp_path, monkeypatch, spelling):
  monkeypatch.setenv('HOME', str(tmp_path))
  found = rundir.open_(spelling.format(tmp_path / 'run'))
  assert found.path == epath.Path(tmp_path / 'run')
  assert found.step is None


def test_a_relative_path_and_one_step(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  found = rundir.open_('run/checkpoints/30')
  assert (found.path, found.step) == (epath.Path(tmp_path / 'run'), 30)


def test_a_bucket_is_not_mangled():
  found = rundir.open_('gs://bucket/a/run/checkpoints/5')
  assert os.fspath(found.path) == 'gs://bucket/a/run'
  assert found.step == 5


def test_the_same_run_goes_on(claimed):
  claim, run = claimed
  before = run.config_file.read_text()
  assert claim() == []
  assert run.config_file.read_text() == before


def test_what_does_not_change_the_run_passes_with_a_note(claimed):
  claim, _ = claimed
  notes = claim(
    log__interval=5,
    train__steps=9,
    optimizer__horizon=8,
    model__attention='splash',
    model__remat='full',
    model__embedder__implementation='reference',
  )
  assert sorted(note.split(':')[0] for note in notes) == [
    'config.log.interval',
    'config.model.attention',
    'config.model.embedder.implementation',
    'config.model.remat',
    'config.train.steps',
  ]


def test_a_run_from_before_the_loss_had_chunks_goes_on_in_chunks(claimed):
  claim, run = claimed
  config = json.loads(run.config_file.read_text())
  for key in ('z_loss', 'loss_chunks', 'accumulation'):
    del config['train'][key]
  run.config_file.write_text(json.dumps(config))
  notes = claim(train__loss_chunks=4, train__accumulation=2)
  assert sorted(notes) == [
    'config.train.accumulation: 1 -> 2',
    'config.train.loss_chunks: 1 -> 4',
  ]
  with pytest.raises(errors.CheckpointError, match='z_loss: 0.0 there, 0.1 he'):
    claim(train__z_loss=0.1)


@pytest.mark.parametrize(
  'changes, fields',
  [
    ({'model__width': 64}, ['config.model.width: 32 there, 64 here']),
    ({'train__seed': 1}, ['config.train.seed: 0 there, 1 here']),
    ({'model__embedder__rank': 8}, ['config.model.embedder.rank']),
    ({'optimizer__learning_rate': 0.5, 'train__seed': 1},
     ['config.optimizer.learning_rate: 0.002', 'config.train.seed']),
    # A longer budget moves the end of the cosine: another run.
    ({'train__steps': 16}, ['config.optimizer.horizon: 8 there, 16 here']),
  ],
)  # fmt: skip
def test_another_run_is_refused_field_by_field(claimed, changes, fields):
  claim, run = claimed
  before = run.config_file.read_text(), run.manifest_file.read_text()
  with pytest.raises(errors.CheckpointError) as caught:
    claim(**changes)
  for field in fields:
    assert field in str(caught.value)
  assert '\n' not in str(caught.value)
  assert (run.config_file.read_text(), run.manifest_file.read_text()) == before


def test_another_arm_is_named_before_all_that_follows_from_it(claimed, tiny):
  _, run = claimed
  config = tiny.config('tied')
  parts = experiment.make(config)
  manifest = parts.manifest(experiment.open_training(config))
  with pytest.raises(errors.CheckpointError) as caught:
    rundir.check(run, dataclasses.asdict(config), manifest)
  _, _, differences = str(caught.value).partition('(')
  assert differences.startswith("config.arm: 'lev' there, 'tied' here")
  assert 'manifest.parameters' not in differences


def test_a_field_that_is_allowed_passes_and_is_written_down(claimed):
  claim, run = claimed
  rate = 'config.optimizer.learning_rate'
  with pytest.raises(errors.CheckpointError, match=f'--allow={rate}$'):
    claim(optimizer__learning_rate=0.5)
  assert claim([rate], optimizer__learning_rate=0.5) == [
    f'{rate}: 0.002 -> 0.5'
  ]
  change = {'field': rate, 'old': 0.002, 'new': 0.5}
  assert run.manifest()['changes'] == [change]
  # It is the run's now, and stays written down.
  assert claim(optimizer__learning_rate=0.5) == []
  assert run.manifest()['changes'] == [change]


def test_only_the_fields_that_are_allowed_pass(claimed):
  claim, _ = claimed
  with pytest.raises(errors.CheckpointError) as caught:
    claim(['config.train.seed'], train__seed=1, model__width=64)
  assert 'config.train.seed' not in str(caught.value)
  with pytest.raises(
    errors.ConfigError, match='did you mean config.train.seed'
  ):
    claim(['config.train.sed'], train__seed=1)


def test_a_checkpoint_from_before_an_allowed_change_is_still_the_run_s(claimed):
  class Found:
    def manifest(self, step):
      return before

  claim, run = claimed
  before = run.manifest()
  rundir.check_step(run, Found(), 3)
  before['dataset_fingerprint'] = 'another'
  with pytest.raises(errors.CheckpointError, match='another run'):
    rundir.check_step(run, Found(), 3)
  rundir.write_json(run.manifest_file, before)
  claim(['manifest.dataset_fingerprint'])
  rundir.check_step(run, Found(), 3)


def test_other_data_under_the_same_path_are_refused(claimed):
  claim, run = claimed
  manifest = json.loads(run.manifest_file.read_text())
  manifest['dataset_fingerprint'] = 'another'
  run.manifest_file.write_text(json.dumps(manifest))
  with pytest.raises(errors.CheckpointError, match='dataset_fingerprint'):
    claim()


def test_checkpoints_of_unknown_origin_are_left_alone(tiny, tmp_path):
  run = rundir.open_(str(tmp_path))
  (tmp_path / 'checkpoints').mkdir()
  config = tiny.config()
  dataset = experiment.open_training(config)
  with pytest.raises(errors.CheckpointError, match='no config.json'):
    rundir.check(
      run,
      dataclasses.asdict(config),
      experiment.make(config).manifest(dataset),
    )


def test_a_directory_that_is_no_run_says_what_is_there(tmp_path):
  (tmp_path / 'notes.txt').write_text('x')
  with pytest.raises(errors.CheckpointError, match=r'notes\.txt'):
    rundir.open_(str(tmp_path)).config()


def test_a_run_carries_its_tokenizer_and_counts(claimed, tiny):
  _, run = claimed
  config = tiny.config()
  dataset = experiment.open_training(config)
  assert run.tokenizer().sha256 == dataset.tokenizer.sha256
  assert (run.unigram_counts() == dataset.unigram_counts()).all()


def test_a_run_of_before_the_guard_is_evaluated_but_not_trained_on(claimed):
  claim, run = claimed
  config, manifest = (
    json.loads(file.read_text())
    for file in (run.config_file, run.manifest_file)
  )
  for field in rundir.ADDED:
    section, _, key = field.partition('.')
    config[section].pop(key)
  run.config_file.write_text(json.dumps(config))
  run.manifest_file.write_text(json.dumps(manifest | {'format_version': 1}))
  experiment.read_config(run.config())
  with pytest.raises(errors.CheckpointError) as caught:
    claim()
  assert 'format_version: 1 there, 2 here' in str(caught.value)
  assert 'still evaluated, not trained on' in str(caught.value)
  assert 'optimizer' not in str(caught.value)


def test_the_limit_of_skipped_steps_may_change_but_not_what_is_skipped(claimed):
  claim, _ = claimed
  assert claim(optimizer__skip_limit=50) == [
    'config.optimizer.skip_limit: 10 -> 50'
  ]
  with pytest.raises(errors.CheckpointError, match='spike_deviations'):
    claim(optimizer__spike_deviations=6.0)


def test_what_can_be_written_to_is_left_as_it_is(tmp_path):
  rundir.check_writable(epath.Path(tmp_path / 'a' / 'b'))
  assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_to_is_named(tmp_path, monkeypatch):
  def refuse(self, text):
    raise PermissionError(13, 'Permission denied')

  monkeypatch.setattr(type(epath.Path(tmp_path)), 'write_text', refuse)
  with pytest.raises(errors.CheckpointError) as caught:
    rundir.check_writable(epath.Path(tmp_path / 'run'))
  said = str(caught.value)
  assert f'--workdir={tmp_path}/run' in said and 'Permission denied' in said
  assert '\n' not in said


def test_in_a_bucket_leave_to_write_to_the_run_is_enough(store):
  rundir.check_writable(epath.Path('gs://runs/a/b'))
  written = [r for r in store.requests if '.probe-' in r]
  assert written and all('runs/a/b/.probe-' in r for r in written)
  assert not store.names('runs', 'a/')


def test_a_bucket_that_cannot_be_written_to_is_named(store):
  with pytest.raises(errors.CheckpointError) as caught:
    rundir.check_writable(epath.Path('gs://readable/run'))
  said = str(caught.value)
  assert '--workdir=gs://readable/run: nothing can be written' in said
  assert '\n' not in said
