"""A run as a report needs it, from its files alone."""

import dataclasses
import functools
import json
import math
import statistics
from typing import Any

from etils import epath

from leviathan import errors
from leviathan import metrics
from leviathan import parameters
from leviathan import rundir

SAMPLES_FILE = 'frequency.samples.jsonl'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """One run.

  Attributes:
    path: its directory.
    step: the latest that was evaluated.
    label: its arm, and its directory where several runs have that arm.
    parameters: counts by component.
    rows: of metrics.jsonl.
    results: {task: {dataset: figures}} of that step.
    tokens: seen at that step.
    dataset_fingerprint: of what it was trained on.
  """

  path: epath.Path
  step: int
  label: str
  parameters: dict[str, int]
  rows: list[dict[str, Any]]
  results: dict[str, dict[str, Any]]
  tokens: int
  dataset_fingerprint: str

  def curve(self, split: str) -> tuple[list[int], list[float]]:
    """(tokens, nats per token) of a split, where the loss is finite."""
    rows = [
      row
      for row in self.rows
      if row['split'] == split and math.isfinite(row['nats_per_token'])
    ]
    return (
      [row['tokens'] for row in rows],
      [row['nats_per_token'] for row in rows],
    )

  @property
  def tokens_per_second(self) -> float:
    """The median over the training steps, compiling left out by it."""
    rates = [
      row['tokens_per_second'] for row in self.rows if row['split'] == 'train'
    ]
    # The tokens of a skipped step may not be a number.
    return statistics.median([r for r in rates if math.isfinite(r)] or [0.0])

  @property
  def validation_splits(self) -> list[str]:
    """The validation splits it has rows of, in order."""
    splits = (row['split'] for row in self.rows)
    return list(dict.fromkeys(s for s in splits if s.startswith('validation/')))

  @property
  def evaluation_sets(self) -> list[str]:
    """The names of its config's evaluation sets."""
    return [s.removeprefix('validation/') for s in self.validation_splits]

  @functools.cached_property
  def samples(self) -> dict[str, list[dict[str, Any]]]:
    """{set: what each sequence cost by frequency}, of the ones written.

    Those of a set that is evaluated by subset are its subsets', `SET/SUBSET`.

    Raises:
      CheckpointError: a line is not JSON.
    """
    file = rundir.RunDir(self.path).eval_dir(self.step) / SAMPLES_FILE
    found: dict[str, list[dict[str, Any]]] = {}
    for row in metrics.read(file):
      name = row['dataset']
      found.setdefault(name, []).append(row)
      whole = name.rpartition('/')[0]
      if whole in self.results.get('frequency', {}):
        found.setdefault(whole, []).append(row)
    return found


def read(workdir: str) -> Run:
  """The run in a directory.

  Raises:
    CheckpointError: there is no run, it was not evaluated yet, or its metrics
      do not reach what was evaluated.
  """
  run = rundir.open_(workdir)
  manifest = run.manifest()
  evaluations = run.path / 'eval'
  steps = []
  if evaluations.is_dir():
    steps = [int(p.name) for p in evaluations.iterdir() if p.name.isdigit()]
  if not steps:
    raise errors.CheckpointError(
      f'{run.path} was not evaluated yet; run leviathan evaluate '
      f'--workdir={workdir} first'
    )
  step = max(steps)
  results = {
    path.stem: metrics.from_json(json.loads(path.read_text())['datasets'])
    for path in sorted(run.eval_dir(step).glob('*.json'))
  }
  rows = metrics.read(run.metrics_file)
  tokens = [row['tokens'] for row in rows if row['step'] <= step]
  if not tokens:
    raise errors.CheckpointError(
      f'{run.metrics_file} has no row up to step {step}; restore the file'
    )
  return Run(
    path=run.path,
    step=step,
    label=manifest['arm'],
    parameters=parameters.count(manifest['parameters'], manifest['vocab_size']),
    rows=rows,
    tokens=max(tokens),
    results=results,
    dataset_fingerprint=manifest['dataset_fingerprint'],
  )
