"""Evaluating a checkpoint gives what training saw, on any number of devices."""

import shutil

import jax
import numpy as np
import pytest

from leviathan import checkpoint
from leviathan import errors
from leviathan import evaluate
from leviathan import experiment
from leviathan import metrics
from leviathan import restore
from leviathan import rundir
from leviathan import train


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


def test_the_figures_are_those_of_training(run, loaded, tiny):
  found = evaluate.evaluate(loaded, str(tiny.directory / 'validation'))
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


def test_data_of_another_tokenizer_are_refused(loaded, tiny, monkeypatch):
  manifest = loaded.run.manifest()
  manifest['tokenizer']['sha256'] = 'another'
  monkeypatch.setattr(rundir.RunDir, 'manifest', lambda self: manifest)
  with pytest.raises(errors.DataError, match='another tokenizer'):
    evaluate.evaluate(loaded, str(tiny.directory / 'validation'))


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


def test_a_table_of_the_embeddings_gives_the_same_figures(loaded, tiny):
  cached = restore.with_table(loaded)
  assert list(cached.params['embedder']) == ['table_VD']
  assert cached.params['embedder']['table_VD'].sharding.is_fully_replicated
  validation = str(tiny.directory / 'validation')
  plain, found = (evaluate.evaluate(x, validation) for x in (loaded, cached))
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


def test_any_number_of_devices_scores_alike(loaded, run, tiny):
  assert loaded.parts.mesh.size == jax.device_count() == 8
  assert loaded.parts.config.evaluate.batch_size % 8 == 0
