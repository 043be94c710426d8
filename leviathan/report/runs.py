"""A run as a report needs it, from its files alone."""

import dataclasses
import functools
import itertools
import math
import statistics
from typing import Any

from etils import epath

from leviathan import config as config_lib
from leviathan import errors
from leviathan import flops
from leviathan import metrics
from leviathan import model as model_lib
from leviathan import parameters
from leviathan import rundir
from leviathan.eval import frequency

SAMPLES_FILE = 'frequency.samples.jsonl'
TASKS = ('perplexity', 'frequency')  # A report needs them of every run.
SLOW = 5.0  # medians; a step that takes longer was not at work all the time


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
  """One run.

  Attributes:
    path: its directory.
    step: the one that its directory names, else the latest evaluated.
    label: its arm.
    parameters: counts by component.
    flops: of a token, by part; see `flops.per_token`.
    rows: of metrics.jsonl.
    results: {task: {dataset: figures}} of that step.
    tokens: seen at that step.
    dataset_fingerprint: of what it was trained on.
    config: as the run keeps it.
    manifest: what identifies it.
  """

  path: epath.Path
  step: int
  label: str
  parameters: dict[str, int]
  flops: dict[str, int]
  rows: list[dict[str, Any]]
  results: dict[str, dict[str, Any]]
  tokens: int
  dataset_fingerprint: str
  config: dict[str, Any]
  manifest: dict[str, Any]

  @property
  def seed(self) -> int:
    """Of parameters and of the data's order."""
    return self.config['train']['seed']

  @property
  def planned_steps(self) -> int:
    """At which it ends; `step` is less in a run that goes on."""
    return self.config['train']['steps']

  def curve(
    self, split: str, by: str = 'tokens'
  ) -> tuple[list[float], list[float]]:
    """(x, nats per token) of a split up to `step`, where the loss is finite.

    Args:
      split: 'train' or 'validation/NAME'.
      by: 'tokens', 'seconds' or 'flops'. Points whose step has no row of
        training have no seconds.
    """
    at = {
      'tokens': lambda row: row['tokens'],
      'flops': lambda row: row['tokens'] * self.flops['total'],
      'seconds': lambda row: self._clock.get(row['step'], math.nan),
    }[by]
    points = [
      (at(row), row['nats_per_token'])
      for row in self.rows
      if row['split'] == split and row['step'] <= self.step
    ]
    finite = [p for p in points if all(map(math.isfinite, p))]
    return [x for x, _ in finite], [y for _, y in finite]

  @property
  def seconds(self) -> float:
    """Spent in the training steps up to `step`, see `_clock`."""
    return max((s for n, s in self._clock.items() if n <= self.step), default=0)

  @functools.cached_property
  def _clock(self) -> dict[int, float]:
    """{step: seconds spent in training steps until its end}.

    Evaluations and saves are no part of a step's time. The first step compiles,
    and so does one after a resume, or a step waits for a disk: it counts as the
    median if it is the first, or took longer than SLOW medians.
    """
    rows = [row for row in self.rows if row['split'] == 'train']
    before = [0, *(row['tokens'] for row in rows)]
    taken = [
      _seconds(row, row['tokens'] - n)
      for n, row in zip(before, rows, strict=False)
    ]
    usual = statistics.median([s for s in taken if math.isfinite(s)] or [0.0])
    counted = [
      s if i and s <= SLOW * usual else usual for i, s in enumerate(taken)
    ]
    steps = [row['step'] for row in rows]
    return dict(zip(steps, itertools.accumulate(counted), strict=True))

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


def _seconds(row: dict[str, Any], tokens: int) -> float:
  """Of a training step; early versions wrote none, but a rate."""
  if 'step_seconds' in row:
    return row['step_seconds']
  return tokens / row['tokens_per_second'] if row['tokens_per_second'] else 0.0


def read(workdir: str) -> Run:
  """The run in a directory.

  Raises:
    CheckpointError: there is no run, its files are not as they were written,
      it was not evaluated yet, or its metrics do not reach what was evaluated.
    ConfigError: its config is none.
  """
  run = rundir.open_(workdir)
  try:
    found = _read(run, workdir)
    _check(found)
    return found
  except (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
  ) as e:
    raise errors.CheckpointError(
      f'{run.path} is not as leviathan writes a run '
      f'({type(e).__name__}: {e}); restore its files or leave it out'
    ) from e


def _read(run: rundir.RunDir, workdir: str) -> Run:
  manifest, config = run.manifest(), run.config()
  model = config_lib.build(model_lib.ModelConfig, config['model'], 'model')
  step = _evaluated_step(run, workdir, config['train']['steps'])
  results = {
    path.stem: metrics.from_json(rundir.read_json(path)['datasets'])
    for path in sorted(run.eval_dir(step).glob('*.json'))
  }
  for task in TASKS:
    if not results.get(task):
      raise errors.CheckpointError(
        f'{run.eval_dir(step)} has nothing of {task}; run leviathan evaluate '
        f'--workdir={workdir} --step={step}'
      )
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
    flops=flops.per_token(model, config['data']['seq_len']),
    rows=rows,
    tokens=max(tokens),
    results=results,
    dataset_fingerprint=manifest['dataset_fingerprint'],
    config=config,
    manifest=manifest,
  )


def _check(run: Run) -> None:
  """Reads what a report will, so that what is missing shows here.

  Raises:
    CheckpointError: the evaluation is of other bins of frequency than ours.
    Exception: as `read` catches them.
  """
  _ = run.seed, run.seconds, run.tokens_per_second, {**run.manifest['versions']}
  _ = math.isfinite(run.config['optimizer']['learning_rate'])
  for split in ('train', *run.validation_splits):
    run.curve(split, 'seconds')
  for task, sets in run.results.items():
    for figures in sets.values():
      wanted = {m.removesuffix('_stderr') for m in figures if 'stderr' in m}
      if task == 'perplexity':
        wanted |= {'nats_per_token', 'bits_per_byte', 'unigram_entropy_nats'}
      _ = [math.isfinite(figures[metric]) for metric in wanted]
      if task in TASKS:
        _ = figures['dataset_fingerprint'][:12]
  for name, figures in run.results['frequency'].items():
    _check_bins(run, name, figures)
  for line in itertools.chain(*run.samples.values()):
    for side in frequency.SIDES.values():
      lengths = {len(line[side][key]) for key in ('nats', 'tokens')}
      if lengths != {len(frequency.NAMES)}:
        raise ValueError(f'a line of {SAMPLES_FILE} has not all bins')


def _check_bins(run: Run, name: str, figures: dict[str, Any]) -> None:
  """Of a set: they are matched by their places, so all must be there."""
  sides = [side for side in frequency.SIDES if side in figures]
  for bins in (figures[side] for side in dict.fromkeys(['bins', *sides])):
    _ = [(row['types'] + 0, row['tokens'] + 0) for row in bins]
    if [row['frequency'] for row in bins] != [*frequency.NAMES]:
      raise errors.CheckpointError(
        f'{run.path} has other bins of frequency on {name} than '
        f'{", ".join(frequency.NAMES)}; run leviathan evaluate '
        f'--workdir={run.path} --step={run.step} --tasks=frequency'
      )


def _evaluated_step(run: rundir.RunDir, workdir: str, planned: int) -> int:
  """The step that was named, or else the latest, of those with results."""
  found = [
    int(p.parent.name)
    for p in run.path.glob('eval/*/perplexity.json')
    if p.parent.name.isdigit()
  ]
  if run.step is not None and run.step not in found:
    raise errors.CheckpointError(
      f'{run.path} was not evaluated at step {run.step}; run leviathan '
      f'evaluate --workdir={run.path} --step={run.step} first'
    )
  if found:
    return max(found) if run.step is None else run.step
  rows = metrics.read(run.metrics_file)
  done = max((row['step'] for row in rows), default=0)
  state = f'it is at step {done} of {planned}; ' if done < planned else ''
  raise errors.CheckpointError(
    f'{run.path} was not evaluated yet; {state}run leviathan evaluate '
    f'--workdir={workdir} first'
  )
