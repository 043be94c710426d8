"""Directories of runs whose figures are chosen, with no training."""

import json
import math

import pytest

from configs import tied
from leviathan import head
from leviathan.eval import frequency

SHAPES = {
  'blocks/mlp/gate_DF': [3, 2, 5],
  'final_norm/scale_D': [2],
}
V = 100
TOKENS = 100  # of a step


def config(arm, seed, steps, changes):
  """That of configs/tied.py:smoke, as config.json has it, with changes."""
  found = tied.get_config('smoke')
  found.arm = arm
  found.model.vocab_size = V
  found.train.seed = seed
  found.train.steps = steps
  found.update_from_flattened_dict(changes)
  return json.loads(found.to_json_best_effort())


def rows(curve, steps, seconds):
  """Of training and of validation, in order."""
  found = []
  for step in range(1, steps + 1):
    row = {'step': step, 'tokens': TOKENS * step, 'nats_per_token': 9.0 - step}
    speed = {'tokens_per_second': TOKENS / seconds, 'step_seconds': seconds}
    found.append(row | speed | {'split': 'train'})
    if step in curve:
      found.append(
        row | {'split': 'validation/a', 'nats_per_token': curve[step]}
      )
  return found


def bins(strata):
  """Rows by frequency, of {bin: (nats per token, tokens)}."""
  found = [{'frequency': f, 'types': 0, 'tokens': 0} for f in frequency.NAMES]
  for i, (nats, tokens) in strata.items():
    found[i] |= {
      'types': 7, 'tokens': tokens, 'nats_per_token': nats,
      'perplexity': math.exp(nats),
    }  # fmt: skip
  return found


def write_json(path, value):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(json.dumps(value))


@pytest.fixture
def make_run(tmp_path):
  """Writes a run, and returns its directory."""

  def make(
    name,
    arm='tied',
    nats=2.0,
    *,
    seed=0,
    curve=None,
    steps=4,
    evaluated=(4,),
    strata=None,
    seconds=1.0,
    trained_on='d1',
    evaluated_on='e1',
    tasks=None,
    shapes=None,
    changes=None,
    embedder=None,
  ):
    path = tmp_path / name
    curve = {4: nats} if curve is None else curve
    known = config(arm, seed, steps, changes or {})
    if embedder:
      known['model']['embedder'] = embedder
    vocab_size = known['model']['vocab_size']
    table = [head.padded_rows(vocab_size), 2]
    write_json(path / 'config.json', known)
    manifest = {
      'arm': arm,
      'vocab_size': vocab_size,
      'dataset_fingerprint': trained_on,
      'parameters': {'embedder/table_VD': table} | SHAPES | (shapes or {}),
      'versions': {'jax': '1.2.3'},
    }
    write_json(path / 'run.json', manifest)
    lines = rows(curve, max([*evaluated, *curve, 1]), seconds)
    (path / 'metrics.jsonl').write_text(
      ''.join(json.dumps(row) + '\n' for row in lines)
    )
    whole = {
      'nats_per_token': nats, 'perplexity': math.exp(nats),
      'bits_per_byte': 1.25, 'scored_tokens': 50,
    }  # fmt: skip
    common = {'dataset_fingerprint': evaluated_on, 'unigram_entropy_nats': 6.5}
    figures = {
      'perplexity': {'a': common | whole},
      'frequency': {'a': common | {'bins': bins(strata or {2: (nats, 50)})}},
    }
    for step in evaluated:
      for task, sets in (figures | (tasks or {})).items():
        document = {'task': task, 'datasets': sets}
        write_json(path / 'eval' / str(step) / f'{task}.json', document)
    return path

  return make


@pytest.fixture
def numbers():
  """Of a table: {column: value} of each row of its file."""

  def rows_of(table):
    header, *rows_ = table.values
    return [dict(zip(header, row, strict=True)) for row in rows_]

  return rows_of
