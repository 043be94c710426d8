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

  def claim(**changes):
    config = tiny.config(**changes)
    parts = experiment.make(config)
    dataset = experiment.open_training(config)
    return rundir.claim(
      run, dataclasses.asdict(config), parts.manifest(dataset), dataset
    )

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
  )
  assert sorted(note.split(':')[0] for note in notes) == [
    'config.log.interval',
    'config.model.attention',
    'config.train.steps',
  ]


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
    rundir.claim(
      run,
      dataclasses.asdict(config),
      experiment.make(config).manifest(dataset),
      dataset,
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
