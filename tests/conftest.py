"""Eight virtual devices, real text in small, and nothing from the network."""

import os

# Before jax is imported anywhere.
os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['XLA_FLAGS'] = '--xla_force_host_platform_device_count=8'
# The arrays are tiny: tests wait for the compiler, hardly for its code.
os.environ['JAX_DISABLE_MOST_OPTIMIZATIONS'] = '1'

import dataclasses
import importlib
import json
import pathlib
import subprocess
import sys

from etils import epath
import fake_gcs
import jax
import pytest

from leviathan import evaluate
from leviathan import experiment
from leviathan.data import job as job_lib
from leviathan.data import manifest
from leviathan.data import prepare
from leviathan.data import text
from leviathan.data import tokenizer

jax.config.update('jax_debug_key_reuse', True)

ROOT = pathlib.Path(__file__).parent.parent
SEQ_LEN = 32
VOCAB_SIZE = 512
# At V = 512 and D = 32 a table of whole columns matches this one.
LEV = {'seed_width': 16, 'heads': 2, 'knots': 6, 'rank': 7}


@pytest.fixture(scope='session')
def shared() -> pathlib.Path:
  """Reference answers and data that are not part of the project."""
  path = ROOT.parent / 'shared'
  if not path.is_dir():
    pytest.skip('../shared is absent: it holds the reference answers and data')
  return path


@pytest.fixture(scope='module')
def store():
  """Buckets, and a server that is asked for them by what is started here.

  Of the buckets, 'forbidden' gives no leave, and 'readable' none to write.
  """
  pytest.importorskip('gcsfs', reason='gcsfs is missing; it is in [test]')
  found = fake_gcs.FakeGCS('runs', 'forbidden', 'readable')
  found.forbidden.add('forbidden')
  found.read_only.add('readable')
  with pytest.MonkeyPatch.context() as patch:
    for name, value in found.environment().items():
      patch.setenv(name, value)
    yield found
  found.close()


def write_dataset(directory, texts, spec, *, seq_len=SEQ_LEN, **settings):
  """Prepares a dataset of some texts; returns its manifest."""
  source = directory.parent / f'{directory.name}.jsonl'
  source.parent.mkdir(parents=True, exist_ok=True)
  source.write_text(''.join(json.dumps({'text': t}) + '\n' for t in texts))
  job = job_lib.Job(
    output=epath.Path(directory),
    inputs=(manifest.Input(name=str(source), bytes=source.stat().st_size),),
    tokenizer=spec,
    tokenizer_sha256=tokenizer.load(spec).sha256,
    format=text.Format(),
    seq_len=seq_len,
    **settings,
  )
  try:
    return prepare.run(job)[job.output]
  finally:
    source.unlink()


@pytest.fixture(scope='session')
def make_dataset():
  """See write_dataset."""
  return write_dataset


def evaluated(loaded, directory, tasks=evaluate.DATASET_TASKS):
  """{task: its figures} of restored parameters on one dataset."""
  evaluation = evaluate.read(
    loaded.parts,
    tasks,
    {'set': str(directory)},
    '',
    0,
    evaluate.training_of(loaded.run),
  )
  (results,) = evaluation.run(loaded.params, lambda sequences: None)
  return {task: sets['set'].figures for task, sets in results.items()}


@pytest.fixture(scope='session')
def figures_of():
  """See evaluated."""
  return evaluated


@pytest.fixture(scope='session')
def leviathan():
  """(exit code, stdout, stderr) of a command in a process of its own."""

  def run(*arguments, cwd=ROOT):
    process = subprocess.run(
      [sys.executable, '-m', 'leviathan', *map(str, arguments)],
      capture_output=True,
      text=True,
      cwd=cwd,
    )
    return process.returncode, process.stdout, process.stderr

  return run


@pytest.fixture(scope='session')
def shellcheck():
  """Asserts that shellcheck finds nothing in a script of bash."""
  # A shell need not have the environment's programs on its path.
  program = pathlib.Path(sys.executable).with_name('shellcheck')

  def check(script: str, *options: str) -> None:
    done = subprocess.run(
      [program, '--shell=bash', *options, '-'],
      input=script,
      capture_output=True,
      text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr

  return check


@dataclasses.dataclass(frozen=True)
class Tiny:
  """A dataset of this project's own source, and configs that fit it."""

  directory: pathlib.Path

  @property
  def tokenizer(self) -> pathlib.Path:
    """The model file."""
    return self.directory / 'tokenizer' / tokenizer.MODEL_FILE

  def overrides(self) -> dict:
    """{field of the config: value}, from `smoke` down to seconds."""
    return {
      'model.vocab_size': VOCAB_SIZE,
      'model.width': 32,
      'model.layers': 2,
      'model.head_width': 16,
      'model.mlp_width': 64,
      'data.train': str(self.directory / 'train'),
      'data.seq_len': SEQ_LEN,
      'data.batch_size': 8,
      'optimizer.warmup_steps': 2,
      'train.steps': 8,
      'checkpoint.interval': 3,
      'evaluate.interval': 4,
      'evaluate.batch_size': 8,
      'evaluate.datasets': (f'held_out={self.directory / "validation"}',),
    }

  def config(self, arm: str = 'lev', **changes) -> experiment.Config:
    """A resolved config; changes are written section__field=value."""
    config = importlib.import_module(f'configs.{arm}').get_config('smoke')
    # A rival is shrunk by shrinking the LEV that it is matched to.
    embedder = config.model.embedder
    lev = embedder.get('matched_to', embedder)
    if lev.name == 'lev':
      lev.update(LEV)
    named = {name.replace('__', '.'): value for name, value in changes.items()}
    config.update_from_flattened_dict(self.overrides() | named)
    return experiment.read_config(config)

  def flags(self, arm: str = 'lev', **changes) -> list[str]:
    """The same as flags of `leviathan train`."""
    named = {name.replace('__', '.'): value for name, value in changes.items()}
    fields = self.overrides() | named
    if arm == 'lev':
      fields |= {f'model.embedder.{k}': v for k, v in LEV.items()}
    return [
      f'--config={ROOT / "configs" / arm}.py:smoke',
      *(f'--config.{name}={value}' for name, value in fields.items()),
    ]


@pytest.fixture(scope='session')
def tiny(tmp_path_factory) -> Tiny:
  """See Tiny; made once a session."""
  directory = tmp_path_factory.mktemp('tiny')
  paths = sorted((ROOT / 'leviathan').rglob('*.py'))
  documents = [
    text.Document(text=path.read_text(), path=str(path), line=1)
    for path in paths
  ]
  tokenizer.train(documents, VOCAB_SIZE, directory / 'tokenizer')
  found = Tiny(directory)
  for name, part in (('train', documents[3:]), ('validation', documents[:3])):
    write_dataset(
      directory / name, [d.text for d in part], f'spm:{found.tokenizer}'
    )
  return found
