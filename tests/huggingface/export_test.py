"""What is exported computes what the run's model does, in transformers too."""

import json
import re

from etils import epath
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan import errors
from leviathan import metrics
from leviathan import restore
from leviathan import sampling
from leviathan.data import text
from leviathan.data import tokenizer
from leviathan.huggingface import export
from leviathan.huggingface import files
from leviathan.huggingface import llama

ARMS = ('tied', 'untied', 'lev', 'albert', 'flat_mlp', 'factorized_mlp')
NEW = 64  # tokens


@pytest.fixture
def exported(saved, tmp_path):
  """(arm, precision) -> (what was restored, the directory)."""

  def make(arm, precision='float32', **changes):
    loaded = saved(arm, **changes)
    output = epath.Path(tmp_path / f'{arm}-{precision}')
    said = []
    export.export(loaded, output, precision, said.append)
    assert 'differ by at most' in said[0]
    return loaded, output

  return make


def ours(loaded, ids_BL):
  with jax.set_mesh(loaded.parts.mesh):
    logits_BLV = loaded.parts.model.apply({'params': loaded.params}, ids_BL)
  return np.asarray(logits_BLV)[..., : loaded.parts.config.model.vocab_size]


@pytest.mark.parametrize('arm', ARMS)
def test_an_arm_is_a_llama(exported, arm):
  torch = pytest.importorskip('torch', reason="it is in the extra 'hf'")
  transformers = pytest.importorskip('transformers')
  loaded, output = exported(arm)
  model = transformers.AutoModelForCausalLM.from_pretrained(str(output)).eval()
  assert type(model).__name__ == 'LlamaForCausalLM'
  assert model.dtype == torch.float32
  vocab_size = loaded.parts.config.model.vocab_size
  ids_BL = np.random.default_rng(1).integers(0, vocab_size, (8, 32))
  for length in (1, 32):
    part_BL = ids_BL[:, :length]
    with torch.no_grad():
      theirs_BLV = model(torch.from_numpy(part_BL)).logits.numpy()
    ours_BLV = ours(loaded, jnp.asarray(part_BL))
    assert np.abs(ours_BLV).max() > 1
    np.testing.assert_allclose(theirs_BLV, ours_BLV, rtol=0, atol=1e-4)
  prompt = [loaded.run.tokenizer().eos_id, 5, 6]
  tabled = restore.with_table(loaded)  # As `leviathan generate` does.
  sample = sampling.make(
    tabled.parts.model, len(prompt) + NEW, sampling.Choice()
  )
  key_B = jax.random.split(jax.random.key(0), 1)
  with jax.set_mesh(tabled.parts.mesh):
    chunks = list(sample(tabled.params, [prompt], key_B))
  wanted = [*prompt, *(i for (ids,) in chunks for i in ids)]
  # Their generation stops at EOS, which is no matter here.
  found = model.generate(
    torch.tensor([prompt]),
    max_new_tokens=NEW,
    do_sample=False,
    eos_token_id=None,
  )
  assert found[0].tolist() == wanted


def test_the_weights_of_bfloat16_are_ours_rounded(exported):
  loaded, output = exported('untied', 'bfloat16')
  tensors = files.read(output)
  assert {x.dtype for x in tensors.values()} == {np.dtype(jnp.bfloat16)}
  wanted = np.asarray(loaded.params['head']['out_VD'].astype(jnp.bfloat16))
  assert (tensors[llama.HEAD] == wanted).all()
  config = json.loads((output / 'config.json').read_text())
  assert config['torch_dtype'] == 'bfloat16'


def test_a_tied_table_is_written_once_without_the_rows_that_pad_it(
  tiny, exported, make_dataset, tmp_path_factory
):
  directory = tmp_path_factory.mktemp('odd')
  words = [f'line {i} of {i * i}\n' for i in range(400)]
  documents = [text.Document(text=w, path='x', line=1) for w in words]
  vocab_size = 280
  file = tokenizer.train(documents, vocab_size, directory)
  make_dataset(directory / 'data', words, f'spm:{file}')
  loaded, output = exported(
    'tied',
    model__vocab_size=vocab_size,
    data__train=str(directory / 'data'),
    evaluate__datasets=(),
  )
  assert loaded.params['embedder']['table_VD'].shape[0] == 384
  tensors = files.read(output)
  assert tensors[llama.EMBEDDING].shape == (vocab_size, 32)
  assert llama.HEAD not in tensors
  config = json.loads((output / 'config.json').read_text())
  assert config['vocab_size'] == vocab_size
  assert config['tie_word_embeddings']


@pytest.mark.parametrize('what', ['layout', 'order of heads', 'norm'])
def test_a_mistake_in_the_layout_leaves_nothing(
  saved, tmp_path, monkeypatch, what
):
  right = llama._to_theirs

  def wrong(name, w):
    if name == 'query_DHK' and what == 'layout':
      # As if halves were neighbours.
      w = w.reshape(*w.shape[:2], 2, -1).swapaxes(2, 3).reshape(w.shape)
    elif name == 'out_HKD' and what == 'order of heads':
      w = w[::-1]
    elif name == 'scale_D' and what == 'norm':
      w = w * 1.01
    return right(name, w)

  monkeypatch.setattr(llama, '_to_theirs', wrong)
  output = tmp_path / 'exported'
  with pytest.raises(errors.DataError, match='less than 0.0001 is wanted'):
    export.export(saved('untied'), output, 'float32', print)
  assert not list(tmp_path.iterdir())


def test_what_exists_is_not_overwritten(saved, tmp_path):
  (tmp_path / 'notes.txt').write_text('mine')
  with pytest.raises(errors.DataError, match='is never overwritten'):
    export.export(saved('untied'), tmp_path, 'float32', print)
  assert [p.name for p in tmp_path.iterdir()] == ['notes.txt']
  with pytest.raises(errors.DataError, match='gs://b/x is in a bucket'):
    export.export(saved('untied'), 'gs://b/x', 'float32', print)


def test_the_card_s_example_writes_on_from_its_prompt(exported, capsys):
  pytest.importorskip('torch', reason="it is in the extra 'hf'")
  pytest.importorskip('transformers')
  _, output = exported('lev')
  card = (output / 'README.md').read_text()
  (example,) = re.findall(r'```python\n(.*?)```', card, re.DOTALL)
  capsys.readouterr()
  exec(example, {'DIRECTORY': str(output)})
  written = capsys.readouterr().out
  assert re.match('</s> ?Once upon a time.', written, re.DOTALL)


def test_a_table_is_computed_as_precisely_as_it_is_compared(
  saved, tmp_path, monkeypatch
):
  real, precisions = restore.with_table, []

  def with_table(loaded):
    precisions.append(jax.config.jax_default_matmul_precision)
    return real(loaded)

  monkeypatch.setattr(restore, 'with_table', with_table)
  export.export(saved('lev'), tmp_path / 'out', 'float32', print)
  assert precisions == ['highest']


def test_what_an_early_version_evaluated_is_on_the_card(saved, tmp_path):
  loaded = saved('untied', train__seed=4)
  directory = loaded.run.eval_dir(0)
  directory.mkdir(parents=True)
  row = {'frequency': 'never seen', 'types': 3, 'types_scored': 2, 'tokens': 5}
  row |= {'nats_per_token': 1.25, 'perplexity': 3.5}
  for task, figures in (
    ('perplexity', {'nats_per_token': 2.125, 'scored_tokens': 44}),
    ('frequency', {'bins': [row]}),
  ):
    document = {'task': task, 'datasets': {'held_out': figures}}
    (directory / f'{task}.json').write_text(json.dumps(document))
  output = export.export(loaded, tmp_path / 'out', 'float32', print)
  card = (output / 'README.md').read_text()
  assert '2.1250' in card and '1.2500' in card
  assert 'perplexity held_out: an early version' in card
  # One that cannot be read is told before anything is written.
  (directory / 'perplexity.json').write_text('{')
  with pytest.raises(
    errors.CheckpointError, match='perplexity.json is not JSON'
  ):
    export.export(loaded, tmp_path / 'again', 'float32', print)
  assert [p.name for p in tmp_path.iterdir()] == ['out']


def test_the_card_has_the_run_s_numbers_and_their_protocol(saved, tmp_path):
  loaded = saved('lev', train__seed=3)
  row = {'step': 0, 'tokens': 1234567, **metrics.from_mean(3.25)}
  rows = [row | {'split': 'validation/held_out'}]
  loaded.run.metrics_file.write_text(''.join(map(metrics.line, rows)))
  figures = {
    'protocol': {'window': 32, 'bos': 'none'},
    'acc': 0.4321,
    'acc_stderr': 0.01,
    'scored_tokens': 99,
    'items': 77,
  }
  document = {'task': 'piqa', 'step': 0, 'datasets': {'validation': figures}}
  loaded.run.eval_dir(0).mkdir(parents=True)
  (loaded.run.eval_dir(0) / 'piqa.json').write_text(json.dumps(document))
  output = export.export(loaded, tmp_path / 'out', 'float32', print)
  card = (output / 'README.md').read_text()
  for words in (
    '1,234,567 tokens, seed 3',
    'validation/held_out, while training: 3.2500 nats per token',
    '0.4321',
    '77 items',
    '"window": 32',
    'embedder `lev`',
    'follows `</s>` (id 1)',
  ):
    assert words in card, words
