"""Every refusal is one line that says what, where and how to mend it."""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from leviathan.data import manifest as manifest_lib
from leviathan.data import records

ROOT = pathlib.Path(__file__).parents[2]
SMOKE = f'--config={ROOT}/configs/lev.py:smoke'


@pytest.fixture
def refused(leviathan):
  """The one line on stderr of a command that must fail with `code`."""

  def run(code, *arguments):
    found, _, stderr = leviathan(*arguments)
    assert found == code, stderr
    lines = [line for line in stderr.splitlines() if line.startswith('error: ')]
    assert len(lines) == 1, stderr
    assert 'Traceback' not in stderr
    return lines[0]

  return run


def test_without_a_command_all_are_listed(leviathan):
  code, stdout, _ = leviathan()
  assert code == 0
  for name in ('tokenizer', 'prepare', 'inspect', 'train', 'evaluate'):
    assert f'\n  {name} ' in stdout


def test_whoever_reads_the_list_may_stop():
  done = subprocess.run(
    f'{sys.executable} -m leviathan | true; echo ${{PIPESTATUS[0]}}',
    shell=True,
    executable='/bin/bash',
    capture_output=True,
    text=True,
  )
  assert (done.stdout, done.stderr) == ('0\n', '')


@pytest.mark.parametrize('words', [('train', '--help'), ('help', 'train')])
def test_help_shows_an_example_and_the_flags(leviathan, words):
  code, stdout, _ = leviathan(*words)
  assert code == 0
  assert 'leviathan train --config=' in stdout
  assert '--workdir' in stdout and '--config:' in stdout


def test_a_mistyped_command(refused):
  assert 'did you mean train?' in refused(2, 'trian')


def test_a_mistyped_flag(refused):
  assert 'did you mean --workdir?' in refused(2, 'evaluate', '--workdri=x')


def test_flags_that_must_be_given_are_named(refused):
  assert refused(2, 'report') == 'error: give --output=..., --workdirs=...'
  line = refused(2, 'report', '--workdirs=', '--output=x')
  assert '--workdirs is empty' in line


def test_training_and_checking_a_tokenizer_need_flags_of_their_own(
  refused, tiny
):
  line = refused(2, 'tokenizer', '--input=x')
  assert '--output' in line and '--vocab_size' in line
  assert '--tokenizer=' in refused(2, 'tokenizer', '--input=x', '--check')
  spec = f'--tokenizer=spm:{tiny.tokenizer}'
  line = refused(3, 'tokenizer', '--check', '--input=*.txt', spec)
  assert 'matches no file' in line


def test_a_word_that_belongs_to_no_flag(refused, tmp_path):
  line = refused(2, 'inspect', f'--workdir={tmp_path}', 'oops')
  assert "'oops'" in line


@pytest.mark.parametrize(
  'arguments, words',
  [
    ([], ['--config is missing', 'FILE.py:SCALE']),
    ([SMOKE, '--config.model.widht=3'],
     ['--config.model.widht', 'did you mean width?']),
    ([SMOKE, '--config.modle.width=3'], ['--config.modle.width']),
    ([SMOKE, '--config.model.width=wide'], ['--config.model.width', 'wide']),
    ([SMOKE, '--config.model.width=65'],
     ['config.model.head_width=64', 'config.model.width=65']),
    ([SMOKE, '--config.model={"width": 3}'], ['config.model.', 'is missing']),
    ([SMOKE, '--config.model.embedder.name=lve'],
     ["'lve'", 'did you mean lev']),
    (['--config=nowhere.py:smoke'], ['nowhere.py']),
    ([SMOKE.replace('smoke', 'huge')], ["'huge'", '200m']),
    ([SMOKE.replace(':smoke', '')], ['lev.py', ':smoke']),
    (['--config.model.width=3'], ['--config=FILE.py:SCALE']),
    ([SMOKE, '--config.log.interval=0'], ['log.interval=0', '1 or more']),
    ([SMOKE, "--config.evaluate.datasets=('a=x', 'a=y')"], ["'a'", 'twice']),
  ],
)  # fmt: skip
def test_bad_configs_are_refused(refused, tmp_path, arguments, words):
  run = tmp_path / 'run'
  line = refused(2, 'train', f'--workdir={run}', *arguments)
  for word in words:
    assert word in line
  assert not run.exists()


def test_bad_inputs_of_prepare_are_refused(refused, tiny, tmp_path):
  (tmp_path / 'empty.txt').touch()
  (tmp_path / 'other.jsonl').write_text('{"content": "a"}\n')
  cases = {
    f'{tmp_path}/*.zst': ['*.zst'],
    f'{tmp_path}/empty.txt': ['empty.txt', '0 bytes'],
    f'{tmp_path}/other.jsonl': ['other.jsonl:1', 'text', 'content'],
  }
  output = tmp_path / 'data'
  for pattern, words in cases.items():
    line = refused(
      3, 'prepare', f'--input={pattern}', f'--output={output}',
      f'--tokenizer=spm:{tiny.tokenizer}',
    )  # fmt: skip
    for word in words:
      assert word in line
    assert not output.exists()


def test_data_of_another_vocabulary_are_refused(refused, tiny, tmp_path):
  run = tmp_path / 'run'
  line = refused(
    3, 'train', f'--workdir={run}', *tiny.flags(model__vocab_size=1024)
  )
  assert 'has 512 tokens' in line
  assert '--config.model.vocab_size=512' in line
  assert not run.exists()


def test_an_id_outside_the_vocabulary_is_refused(refused, tiny, tmp_path):
  """A shard whose ids reach V: its manifest is made to claim a smaller V."""
  data = tmp_path / 'data'
  shutil.copytree(tiny.directory / 'train', data)
  manifest = json.loads((data / 'manifest.json').read_text())
  manifest['tokenizer']['vocab_size'] = 256
  entry = manifest_lib.Tokenizer(**manifest['tokenizer'])
  shards = [manifest_lib.Shard(**shard) for shard in manifest['shards']]
  manifest['fingerprint'] = manifest_lib.fingerprint(
    entry, manifest['seq_len'], manifest['shuffle_seed'], shards
  )
  (data / 'manifest.json').write_text(json.dumps(manifest))
  counts = records.open_dataset(tiny.directory / 'train').unigram_counts()
  counts[255] += counts[256:].sum()
  np.save(data / 'unigram_counts.npy', counts[:256])
  line = refused(
    3,
    'train',
    f'--workdir={tmp_path / "run"}',
    *tiny.flags(model__vocab_size=256, data__train=data,
                evaluate__datasets='()'),
  )  # fmt: skip
  assert 'shard-00000' in line and 'record' in line
  assert 'outside [0, 256)' in line


def test_inspect_tells_what_a_mesh_splits_that_need_not_be_here(
  leviathan, tiny
):
  # 16 devices, of which the tests have 8.
  flags = tiny.flags('tied', mesh__data=4, mesh__fsdp=2, mesh__tensor=2)
  code, stdout, stderr = leviathan('inspect', *flags)
  assert code == 0, stderr
  assert "sharding: mesh {'data': 4, 'fsdp': 2, 'tensor': 2}" in stdout
  (line,) = [x for x in stdout.splitlines() if '32/fsdp x 64/tensor  ' in x
             and 'up_DF' in x]  # fmt: skip
  assert line.split()[-2:] == ['16,384', '4,096']
  code, stdout, stderr = leviathan('inspect', '--json', *flags)
  assert code == 0, stderr
  rows = json.loads(stdout)['sharding']['arrays']
  (row,) = [row for row in rows if row['name'] == 'blocks/mlp/up_DF']
  assert row['axes'] == ['', 'fsdp', 'tensor']


def test_inspect_tells_why_a_mesh_cannot_be(leviathan, tiny):
  code, stdout, stderr = leviathan(
    'inspect', *tiny.flags('tied', mesh__fsdp=1, mesh__tensor=4)
  )
  assert code == 0, stderr
  assert "axis 'heads' of length 2 does not divide over 4" in stdout


def test_the_whole_way_from_text_to_a_report(
  leviathan, refused, tiny, tmp_path
):
  """tokenizer, prepare, train, evaluate, generate, inspect, report."""
  source = ROOT / 'leviathan'
  small = ['train__steps', 'evaluate__interval', 'checkpoint__interval']
  steps = dict.fromkeys(small, 3)

  def run(*arguments):
    code, stdout, stderr = leviathan(*arguments, cwd=tmp_path)
    assert code == 0, stderr
    return stdout

  texts = tmp_path / 'text.jsonl'
  texts.write_text(
    ''.join(
      json.dumps({'text': path.read_text()}) + '\n'
      for path in sorted(source.rglob('*.py'))
    )
  )
  run('tokenizer', f'--input={texts}', '--vocab_size=512', '--output=tok')
  prepared = run(
    'prepare', f'--input={texts}', '--tokenizer=spm:tok/tokenizer.model',
    '--output=data', '--seq_len=32', '--validation_fraction=0.2',
  )  # fmt: skip
  assert 'data/train' in prepared and 'data/validation' in prepared
  assert '"seq_len": 32' in run('inspect', '--dataset=data/train', '--json')
  both = '--dataset=data/train', '--against=data/validation'
  assert 'texts_in_both: 0\n' in run('inspect', *both)
  for arm in ('tied', 'lev'):
    flags = tiny.flags(
      arm,
      data__train='data/train',
      evaluate__datasets="('held_out=data/validation',)",
      **steps,
    )
    trained = run('train', f'--workdir=runs/{arm}', *flags)
    assert 'step 3/3: loss ' in trained
    evaluated = run('evaluate', f'--workdir=runs/{arm}/checkpoints/3')
    assert 'nats per token' in evaluated and 'never seen' in evaluated
    assert run('inspect', f'--workdir=runs/{arm}').startswith('directory: ')
  sampled = run(
    'generate', '--workdir=runs/lev', '--prompt=def f', '--max_tokens=5'
  )
  assert sampled.startswith('def f') and len(sampled) > len('def f\n')
  run('report', '--workdirs=runs/tied,runs/lev', '--output=report')
  assert (tmp_path / 'report' / 'index.html').exists()
  assert '| lev ' in (tmp_path / 'report' / 'report.md').read_text()

  line = refused(
    4, 'train', f'--workdir={tmp_path}/runs/lev',
    *tiny.flags('tied', data__train=tmp_path / 'data/train', **steps,
                evaluate__datasets=f"('held_out={tmp_path}/data/validation',)"),
  )  # fmt: skip
  assert 'belongs to another run' in line and 'config.arm' in line
  evaluated = tmp_path / 'runs/lev/eval/3/perplexity.json'
  run('evaluate', '--workdir=runs/lev', '--data=data/train')
  datasets = json.loads(evaluated.read_text())['datasets']
  assert datasets.keys() == {'held_out', 'train'}
  seen = run('inspect', '--workdir=runs/lev', '--embeddings', '--json')
  assert list(json.loads(seen)) == ['lev (lev)']
  assert (tmp_path / 'runs/lev/embeddings/embeddings.png').exists()
  same = f'{tmp_path}/runs/lev'
  line = refused(
    2, 'inspect', f'--workdir={same}', '--embeddings', f'--baseline={same}'
  )
  assert f'--baseline={same}' in line
  line = refused(
    2, 'evaluate', f'--workdir={tmp_path}/runs/lev/checkpoints/3', '--step=4'
  )
  assert '--step=4' in line
  line = refused(
    2, 'train', f'--workdir={tmp_path}/runs/lev/checkpoints/3', SMOKE
  )
  assert 'is one step' in line
  prompt = 'x ' * 200
  line = refused(
    2, 'generate', f'--workdir={tmp_path}/runs/lev', f'--prompt={prompt}'
  )
  assert "the prompt 'x x" in line and 'trained on 32' in line
  line = refused(4, 'evaluate', f'--workdir={tmp_path}/runs/lev', '--step=2')
  assert 'no checkpoint of step 2; there are [3]' in line
