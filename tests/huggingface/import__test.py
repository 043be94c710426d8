"""An imported Llama is a run: it evaluates as before, and trains on."""

import dataclasses
import json
import shutil

from etils import epath
import jax
import numpy as np
import pytest

from leviathan import errors
from leviathan import experiment
from leviathan import metrics
from leviathan import restore
from leviathan import rundir
from leviathan import train
from leviathan.huggingface import export
from leviathan.huggingface import import_


@pytest.fixture(scope='module')
def exported(saved, tmp_path_factory):
  """The arm `lev`, exported."""
  output = tmp_path_factory.mktemp('export') / 'lev'
  return export.export(saved('lev'), output, 'float32', lambda line: None)


@pytest.fixture
def directory(exported, tmp_path):
  """A copy of it, to change."""
  shutil.copytree(exported, tmp_path / 'exported')
  return epath.Path(tmp_path / 'exported')


def imported(config, directory, path):
  run = rundir.open_(str(path))
  said = []
  import_.import_(config, directory, run, said.append)
  return run, said


def test_an_exported_run_comes_back_with_its_figures_and_trains_on(
  saved, tiny, directory, figures_of, tmp_path
):
  config = tiny.config('untied', train__steps=3)
  run, said = imported(config, directory, tmp_path / 'run')
  assert str(directory / 'tokenizer.model') in said[0]
  loaded = restore.restore(run, None)
  assert loaded.step == 0
  validation = tiny.directory / 'validation'
  found = figures_of(loaded, validation)['perplexity']['nats_per_token']
  wanted = figures_of(saved('lev'), validation)['perplexity']['nats_per_token']
  assert found == pytest.approx(wanted, rel=1e-6)
  lines = []
  parts = experiment.make(config)
  state, finished = train.train(parts, run, lines.append)
  assert finished and int(state.step) == 3
  assert any('resumed from step 0' in line for line in lines)
  first = metrics.read(run.metrics_file)[0]
  # A fresh model's first loss is that of equal chances, log(512) = 6.24.
  assert abs(first['nats_per_token'] - wanted) < abs(wanted - 6.24) / 2


@pytest.mark.parametrize('tied', [False, True])
def test_shared_keys_and_values_are_repeated_and_logits_stay(
  saved, tiny, directory, tmp_path, tied
):
  torch = pytest.importorskip('torch', reason="it is in the extra 'hf'")
  transformers = pytest.importorskip('transformers')
  config = transformers.LlamaConfig(
    vocab_size=512,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    rms_norm_eps=1e-5,
    tie_word_embeddings=tied,
    initializer_range=0.2,
  )
  torch.manual_seed(1)
  model = transformers.LlamaForCausalLM(config).eval()
  source = epath.Path(tmp_path / 'llama')
  model.save_pretrained(str(source))
  ours = tiny.config('tied' if tied else 'untied', model__head_width=8)
  run, said = imported(ours, source, tmp_path / 'run')
  assert said[0].startswith('note: ') and 'no tokenizer' in said[0]
  assert 'of keys and values is there 2 times' in said[-1]
  loaded = restore.restore(run, None)
  ids_BL = np.random.default_rng(0).integers(0, 512, (8, 32))
  with jax.set_mesh(loaded.parts.mesh):
    found_BLV = loaded.parts.model.apply({'params': loaded.params}, ids_BL)
  with torch.no_grad():
    wanted_BLV = model(torch.from_numpy(ids_BL)).logits.numpy()
  assert np.abs(wanted_BLV).max() > 1
  np.testing.assert_allclose(found_BLV, wanted_BLV, rtol=0, atol=1e-4)


def test_the_flags_that_fit_are_named(tiny, directory, tmp_path):
  path = tmp_path / 'run'
  config = tiny.config('untied', model__width=64, model__layers=3)
  with pytest.raises(errors.ConfigError) as caught:
    imported(config, directory, path)
  assert '--config.model.width=32 --config.model.layers=2, here' in str(
    caught.value
  )
  with pytest.raises(errors.ConfigError, match='configs/untied.py:SCALE'):
    imported(tiny.config('tied'), directory, path)
  with pytest.raises(errors.ConfigError, match='configs/untied.py:SCALE'):
    imported(tiny.config('lev'), directory, path)
  file = directory / 'config.json'
  shorter = json.loads(file.read_text()) | {'max_position_embeddings': 16}
  file.write_text(json.dumps(shorter))
  with pytest.raises(errors.ConfigError, match='max_position_embeddings=16'):
    imported(tiny.config('untied'), directory, path)
  file.write_text(json.dumps(shorter | {'max_position_embeddings': 32,
                                        'vocab_size': 640}))  # fmt: skip
  with pytest.raises(errors.DataError, match='vocab_size=640, but .* 512 tok'):
    imported(tiny.config('untied'), directory, path)
  assert not path.exists()


def test_the_data_of_another_tokenizer_are_refused(tiny, directory, tmp_path):
  (directory / 'tokenizer.model').unlink()
  config = tiny.config('untied')
  _, said = imported(config, directory, tmp_path / 'same')
  assert 'gives the same ids as' in said[0]
  file = directory / 'tokenizer.json'
  parsed = json.loads(file.read_text())
  parsed['model']['merges'] = parsed['model']['merges'][:-50]
  file.write_text(json.dumps(parsed))
  with pytest.raises(errors.DataError, match='another tokenizer than the data'):
    imported(config, directory, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('content', [b'{}', b'\xff', b'{"model": 1'])
def test_a_tokenizer_that_is_damaged_is_one_line(
  tiny, directory, tmp_path, content
):
  (directory / 'tokenizer.model').unlink()
  (directory / 'tokenizer.json').write_bytes(content)
  with pytest.raises(errors.DataError, match='tokenizer.json is dam.*; fetch'):
    imported(tiny.config('untied'), directory, tmp_path / 'run')


def test_a_run_that_is_there_is_left_alone(saved, tiny, directory):
  run = saved('lev').run
  before = run.config_file.read_text()
  with pytest.raises(errors.DataError, match='is never overwritten'):
    imported(tiny.config('untied'), directory, run.path)
  assert run.config_file.read_text() == before


def test_what_computes_something_else_is_no_run(
  tiny, directory, tmp_path, monkeypatch
):
  right = import_.llama.params

  def wrong(*arguments):
    params = right(*arguments)
    params['blocks']['attention']['query_DHK'] *= -1
    return params

  monkeypatch.setattr(import_.llama, 'params', wrong)
  with pytest.raises(errors.DataError, match='less than 0.0001 is wanted'):
    imported(tiny.config('untied'), directory, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_the_run_is_the_one_that_training_would_begin(
  tiny, directory, tmp_path
):
  config = tiny.config('untied')
  run, _ = imported(config, directory, tmp_path / 'run')
  parts = experiment.make(config)
  manifest = parts.manifest(experiment.open_training(config))
  assert rundir.check(run, dataclasses.asdict(config), manifest) == []


def test_a_llama_in_a_bucket_is_refused(leviathan, tiny, tmp_path):
  code, _, told = leviathan(
    'import',
    '--hf=gs://b/llama',
    f'--workdir={tmp_path / "run"}',
    *tiny.flags('untied'),
  )
  assert code == errors.DataError.exit_code
  assert told.startswith('error: --hf=gs://b/llama is in a bucket; copy it')
