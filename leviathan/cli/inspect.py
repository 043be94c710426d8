"""Shows what a config, a dataset or a run consists of.

leviathan inspect --config=configs/lev.py:200m
leviathan inspect --dataset=data/pile/train --against=data/pile/validation
leviathan inspect --workdir=runs/lev
leviathan inspect --workdir=runs/lev --embeddings --baseline=runs/tied
leviathan inspect --token_order=data/token_order.npy --dataset=data/train
"""

import dataclasses
import json
import math
from typing import Any

from absl import flags
import jax
import numpy as np
import tqdm

from leviathan import checkpoint
from leviathan import errors
from leviathan import experiment
from leviathan import metrics
from leviathan import optimizer
from leviathan import parameters
from leviathan import restore
from leviathan import rundir
from leviathan import sharding
from leviathan import state as state_lib
from leviathan.cli import config_flag
from leviathan.data import counts
from leviathan.data import records
from leviathan.data import tokenizer as tokenizers
from leviathan.report import embeddings
from leviathan.token_order import cooccurrence
from leviathan.token_order import files as token_orders
from leviathan.token_order import methods
from leviathan.token_order import quality

NEIGHBOURS = 5  # On each side, in a token order.
CONFIG = config_flag.define()
DATASET = flags.DEFINE_string('dataset', None, 'Directory of a dataset.')
AGAINST = flags.DEFINE_string(
  'against', None, 'With --dataset: another, to count the texts in both.'
)
TOKEN_ORDER = flags.DEFINE_string(
  'token_order',
  None,
  'With --dataset: a file of `leviathan order`, to see which tokens lie '
  'together and how much of their use its digits say.',
)
WORKDIR = flags.DEFINE_string('workdir', None, 'Directory of a run.')
EMBEDDINGS = flags.DEFINE_bool(
  'embeddings',
  False,
  'Look at what the input of --workdir has learned: figures on screen, and '
  'WORKDIR/embeddings/{embeddings.png,figures.json}.',
)
BASELINE = flags.DEFINE_string(
  'baseline', None, 'With --embeddings: a run to set beside it.'
)
TOKEN = flags.DEFINE_multi_string(
  'token',
  ['def', ' the', 'import', '0', '(', 'self'],
  'With --embeddings or --token_order: a text whose first token is looked up; '
  'may be repeated.',
)
JSON = flags.DEFINE_bool('json', False, 'Print JSON.')


def main(argv) -> None:
  """Runs the command."""
  del argv
  given = [f for f in (CONFIG, DATASET, WORKDIR) if f.value is not None]
  if TOKEN_ORDER.value is not None and DATASET.value is None:
    raise errors.ConfigError('--token_order goes with --dataset; give both')
  if len(given) != 1:
    raise errors.ConfigError(
      f'{len(given)} of --config, --dataset, --workdir are given; give one'
    )
  if BASELINE.value is not None and not EMBEDDINGS.value:
    raise errors.ConfigError('--baseline goes with --embeddings; give both')
  if AGAINST.value is not None and DATASET.value is None:
    raise errors.ConfigError('--against goes with --dataset; give both')
  if TOKEN_ORDER.value is not None and AGAINST.value is not None:
    raise errors.ConfigError('--token_order and --against: give one of them')
  if EMBEDDINGS.value and WORKDIR.value is None:
    raise errors.ConfigError('--embeddings needs --workdir of a run')
  if DATASET.value is not None and TOKEN_ORDER.value is not None:
    facts = of_token_order(TOKEN_ORDER.value, DATASET.value)
  elif DATASET.value is not None:
    facts = of_dataset(DATASET.value)
    if AGAINST.value is not None:
      facts['texts_in_both'] = records.shared_texts(
        [DATASET.value], [AGAINST.value]
      )
  elif WORKDIR.value is not None:
    run = rundir.open_(WORKDIR.value)
    if EMBEDDINGS.value:
      facts = of_embeddings(run, BASELINE.value)
    else:
      facts = of_run(run)
  else:
    facts = of_config(experiment.read_config(config_flag.read(CONFIG)))
  if JSON.value:
    strict = metrics.to_json(facts)
    print(json.dumps(strict, indent=2, default=sharding.Table.as_dict))
  else:
    print('\n'.join(_lines(facts)))


def of_config(config: experiment.Config) -> dict[str, Any]:
  """Parameters by component and by array, from shapes alone."""
  # Parameters are the same on any mesh, so one device serves.
  mesh = sharding.make_mesh(
    sharding.MeshConfig(data=1, fsdp=1, tensor=1), jax.devices()[:1]
  )
  params = experiment.Experiment(config, mesh).abstract_state.params
  shapes = parameters.shapes(params)
  tokens = config.train.steps * config.data.batch_size * config.data.seq_len
  vocab_size, width = config.model.vocab_size, config.model.width
  counts: dict[str, Any] = dict(parameters.count(shapes, vocab_size))
  embedder = config.model.embedder
  if (budget := embedder.budget(vocab_size, width)) is not None:
    counts['input_over_lev'] = counts['input'] / budget
  return {
    'arm': config.arm,
    'parameters': counts,
    'input_parts': parameters.input_parts(shapes, vocab_size),
    'arrays': shapes,
    'weight_decay': _weight_decay(params),
    'vocab_size': vocab_size,
    'steps': config.train.steps,
    'tokens': tokens,
    'sharding': _layout(config),
  }


def _weight_decay(params: Any) -> dict[str, Any]:
  """Which arrays decay and which do not; padding rows are counted."""
  sizes = optimizer.sizes_by_decay(params)
  return {
    title: {'parameters': sum(of.values()), 'arrays': ', '.join(of)}
    for title, of in (('decayed', sizes[True]), ('not_decayed', sizes[False]))
  }


def _layout(config: experiment.Config) -> sharding.Table | str:
  """What the config's mesh splits, or why it cannot.

  Where the config leaves an axis open, the devices here fill it; a mesh whose
  sizes are all given need not be here.
  """
  sizes = dataclasses.astuple(config.mesh)
  devices = jax.device_count() if -1 in sizes else math.prod(sizes)
  try:
    mesh = jax.sharding.AbstractMesh(config.mesh.sizes(devices), sharding.AXES)
    return sharding.table(
      state_lib.abstract(
        config.model.make(), config.optimizer.make(), mesh
      ).params
    )
  except errors.ConfigError as e:
    return str(e)


def of_dataset(directory: str) -> dict[str, Any]:
  """A dataset's figures."""
  dataset = records.open_dataset(directory)
  found = dataset.manifest
  return {
    'directory': str(dataset.directory),
    'fingerprint': found.fingerprint,
    'tokenizer': {
      'kind': found.tokenizer.kind,
      'vocab_size': found.tokenizer.vocab_size,
      'sha256': found.tokenizer.sha256,
    },
    'seq_len': found.seq_len,
    'shuffle_seed': found.shuffle_seed,
    'sequences': found.sequences,
    'tokens': found.tokens,
    'documents': found.documents,
    'duplicates': found.duplicates,
    'bytes': found.bytes,
    'bytes_per_token': found.bytes / found.tokens,
    'unigram_entropy_nats': counts.entropy(dataset.unigram_counts()),
    'records': found.records,
    'elsewhere': found.elsewhere,
    'skipped': found.skipped,
    'shards': len(found.shards),
  }


def of_token_order(file: str, directory: str) -> dict[str, Any]:
  """Which tokens an order puts together, and what its digits say of their use.

  Beside the figures of the order stand those of a random one.
  """
  order, dataset = token_orders.load(file), records.open_dataset(directory)
  found, tokenizer = dataset.manifest, dataset.tokenizer()
  if len(order.rank_V) != tokenizer.vocab_size:
    raise errors.DataError(
      f'--token_order={file} orders {len(order.rank_V)} tokens, but '
      f'{directory} has {tokenizer.vocab_size}; give a dataset of its tokenizer'
    )
  order.check_tokenizer(tokenizer.sha256, f'--token_order={file}')
  counts_V = dataset.unigram_counts()
  with tqdm.tqdm(total=found.tokens, unit=' tokens', disable=None) as bar:
    table = cooccurrence.count([dataset], counts_V, bar.update)
  random_V = np.random.default_rng(0).permutation(len(counts_V))
  ids = order.ids()

  def neighbours(token_id):
    rank = int(order.rank_V[token_id])
    around = ids[max(0, rank - NEIGHBOURS) : rank + NEIGHBOURS + 1]
    return [tokenizer.token_text(int(i)) for i in around]

  return {
    'sha256': order.sha256,
    'origin': dataclasses.asdict(order.origin) if order.origin else None,
    'use_told_by_first_digits': quality.kept(
      table, counts_V, order.rank_V, methods.DIGITS
    ),
    'the_same_of_a_random_order': quality.kept(
      table, counts_V, random_V, methods.DIGITS
    ),
    'neighbours': {
      tokenizer.token_text(i): neighbours(i) for i in _first_tokens(tokenizer)
    },
  }


def _first_tokens(tokenizer: tokenizers.Tokenizer) -> list[int]:
  """The first token of each text that was asked for."""
  return [i for text in TOKEN.value for i in tokenizer.encode(text)[:1]]


def of_run(run: rundir.RunDir) -> dict[str, Any]:
  """Where a run stands."""
  manifest, config = run.manifest(), run.config()
  checkpoints = checkpoint.Checkpoints(run.checkpoint_dir)
  steps = checkpoints.steps()
  checkpoints.close()
  latest = {row['split']: row for row in metrics.read(run.metrics_file)}
  return {
    'directory': str(run.path),
    'arm': manifest['arm'],
    'parameters': parameters.count(
      manifest['parameters'], manifest['vocab_size']
    ),
    'dataset_fingerprint': manifest['dataset_fingerprint'],
    'versions': manifest['versions'],
    'steps': config['train']['steps'],
    'checkpoints': steps,
    'latest': latest,
  }


def of_embeddings(run: rundir.RunDir, baseline: str | None) -> dict[str, Any]:
  """What the input of a run has learned; also writes it beside the run."""
  loaded = [restore.restore(run, None)]
  if baseline is not None:
    loaded.append(restore.restore(rundir.open_(baseline), None))
    ours, theirs = (r.run.manifest()['tokenizer']['sha256'] for r in loaded)
    if ours != theirs:
      raise errors.ConfigError(
        f'--baseline={baseline} has another tokenizer (sha256 {theirs[:12]}) '
        f'than {run.path} ({ours[:12]}); give a run on the same data'
      )
  # Two runs of one arm are told apart by their directories.
  named = {
    f'{r.parts.config.arm} ({r.run.path.name})': restore.embeddings(r)
    for r in loaded
  }
  if len(named) < len(loaded):
    raise errors.ConfigError(
      f'--baseline={baseline} has the arm and the directory name of '
      f'{run.path}; give a run that can be told from it'
    )
  tokenizer = run.tokenizer()
  tokens = {tokenizer.token_text(i): i for i in _first_tokens(tokenizer)}
  figures: dict[str, dict[str, Any]] = {}
  for label, x_VD in named.items():
    figures[label] = embeddings.figures_of(x_VD)
    figures[label]['neighbours'] = {
      text: [
        [tokenizer.token_text(i), cosine]
        for i, cosine in embeddings.neighbours(x_VD, token_id)
      ]
      for text, token_id in tokens.items()
    }
  output = run.path / 'embeddings'
  rundir.write_json(output / 'figures.json', figures)
  config, params = loaded[0].parts.config, loaded[0].params
  curves = config.model.embedder.curves(params['embedder'])
  spectra = {label: f['spectrum'] for label, f in figures.items()}
  embeddings.draw(named, spectra, curves, output / 'embeddings.png')
  return figures


def _lines(facts: dict[str, Any], indent: str = '') -> list[str]:
  """'name: value' lines, sections indented."""
  lines = []
  for name, value in facts.items():
    if isinstance(value, list) and len(value) > 64:
      continue  # A spectrum is for --json and the picture.
    if isinstance(value, sharding.Table):
      lines.append(f'{indent}{name}: mesh {value.mesh}')
      lines += [f'{indent}  {line}' for line in value.lines()]
    elif isinstance(value, dict):
      lines.append(f'{indent}{name}:')
      lines += _lines(value, indent + '  ') or [f'{indent}  none']
    elif isinstance(value, int) and not isinstance(value, bool):
      lines.append(f'{indent}{name}: {value:,}')
    elif isinstance(value, float):
      lines.append(f'{indent}{name}: {value:.6g}')
    else:
      lines.append(f'{indent}{name}: {value}')
  return lines
