"""Shows what a config, a dataset or a run consists of.

leviathan inspect --config=configs/lev.py:200m
leviathan inspect --dataset=data/pile/train
leviathan inspect --workdir=runs/lev
"""

import json
from typing import Any

from absl import flags
import jax

from leviathan import errors
from leviathan import experiment
from leviathan import metrics
from leviathan import parameters
from leviathan import rundir
from leviathan import sharding
from leviathan.cli import config_flag
from leviathan.data import counts
from leviathan.data import records

CONFIG = config_flag.define()
DATASET = flags.DEFINE_string('dataset', None, 'Directory of a dataset.')
WORKDIR = flags.DEFINE_string('workdir', None, 'Directory of a run.')
JSON = flags.DEFINE_bool('json', False, 'Print JSON.')


def main(argv) -> None:
  """Runs the command."""
  del argv
  given = [f for f in (CONFIG, DATASET, WORKDIR) if f.value is not None]
  if len(given) != 1:
    raise errors.ConfigError(
      f'{len(given)} of --config, --dataset, --workdir are given; give one'
    )
  if DATASET.value is not None:
    facts = of_dataset(DATASET.value)
  elif WORKDIR.value is not None:
    facts = of_run(rundir.open_(WORKDIR.value))
  else:
    facts = of_config(experiment.read_config(config_flag.read(CONFIG)))
  if JSON.value:
    print(json.dumps(facts, indent=2))
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
  return {
    'arm': config.arm,
    'parameters': parameters.count(shapes, config.model.vocab_size),
    'arrays': shapes,
    'vocab_size': config.model.vocab_size,
    'steps': config.train.steps,
    'tokens': tokens,
  }


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
    'sequences': found.sequences,
    'tokens': found.tokens,
    'documents': found.documents,
    'bytes': found.bytes,
    'bytes_per_token': found.bytes / found.tokens,
    'unigram_entropy_nats': counts.entropy(dataset.unigram_counts()),
    'skipped': found.skipped,
    'shards': len(found.shards),
  }


def of_run(run: rundir.RunDir) -> dict[str, Any]:
  """Where a run stands."""
  manifest, config = run.manifest(), run.config()
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
    'checkpoints': run.checkpoints().steps(),
    'latest': latest,
  }


def _lines(facts: dict[str, Any], indent: str = '') -> list[str]:
  """'name: value' lines, sections indented."""
  lines = []
  for name, value in facts.items():
    if isinstance(value, dict):
      lines.append(f'{indent}{name}:')
      lines += _lines(value, indent + '  ') or [f'{indent}  none']
    elif isinstance(value, int) and not isinstance(value, bool):
      lines.append(f'{indent}{name}: {value:,}')
    elif isinstance(value, float):
      lines.append(f'{indent}{name}: {value:.6g}')
    else:
      lines.append(f'{indent}{name}: {value}')
  return lines
