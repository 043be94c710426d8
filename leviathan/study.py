"""Studies: many runs on the same batches, and what they say together.

Each variant is trained with the first seed at every learning rate, then with
the other seeds at the rate that did best for it. What stands in the study's
directory is not done again, so a study goes on where it was stopped.
"""

from collections.abc import Iterator
import dataclasses
import json
import math
import re

from etils import epath

from leviathan import config as config_lib
from leviathan import errors
from leviathan import rundir
from leviathan.report import runs
from leviathan.token_order import files

# Commands that follow one another: arguments of `leviathan`.
Job = list[list[str]]
TASKS = ('perplexity', 'frequency')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
  """One of the things compared.

  Attributes:
    config: FILE.py:SCALE.
    token_order: a method of `leviathan order`; '' for the tokenizer's ids.
  """

  config: str
  token_order: str

  def __post_init__(self):
    if self.token_order and self.token_order not in files.METHODS:
      raise errors.ConfigError(
        f'study.variants: token_order={self.token_order!r} is unknown'
        f'{config_lib.nearest(self.token_order, files.METHODS)}'
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
  """What is compared.

  Attributes:
    variants: by name.
    learning_rates: tried for each variant.
    seeds: of parameters and of the data's order.
    dataset: what all train on, and what orders are made from.
    overrides: of every run's config, as `train.steps=200`.
    contrasts: differences to report, as `lev - tied`.
  """

  variants: dict[str, Variant]
  learning_rates: tuple[float, ...]
  seeds: tuple[int, ...]
  dataset: str
  overrides: tuple[str, ...]
  contrasts: tuple[str, ...]

  def __post_init__(self):
    for field in ('variants', 'learning_rates', 'seeds'):
      values = list(getattr(self, field))
      if not values or len({*values}) < len(values):
        raise errors.ConfigError(
          f'study.{field}={values}; give one or more, each once'
        )
    for name in self.variants:
      if not re.fullmatch(r'[A-Za-z0-9_.]+', name):
        raise errors.ConfigError(
          f'study.variants: {name!r} names directories; give it letters, '
          'digits, _ and . alone'
        )
    for pair in self.pairs():
      for name in pair:
        if name not in self.variants:
          raise errors.ConfigError(
            f'study.contrasts: {name!r} is no variant'
            f'{config_lib.nearest(name, self.variants)}'
          )

  def pairs(self) -> list[tuple[str, str]]:
    """The contrasts: what is compared, with what."""
    found = []
    for contrast in self.contrasts:
      left, minus, right = contrast.partition(' - ')
      if not minus:
        raise errors.ConfigError(
          f'study.contrasts: {contrast!r} is not NAME - NAME'
        )
      found.append((left.strip(), right.strip()))
    return found


@dataclasses.dataclass(frozen=True)
class Planned:
  """A run of a study."""

  variant: str
  learning_rate: float
  seed: int

  @property
  def name(self) -> str:
    """Of its directory."""
    return f'{self.variant}-{self.learning_rate}-{self.seed}'


@dataclasses.dataclass(frozen=True)
class Workspace:
  """A study in its directory."""

  study: Study
  path: epath.Path

  def claim(self, write: bool = True) -> None:
    """Makes the directory this study's, or only checks that it may be.

    Raises:
      CheckpointError: what lies there was made for another one.
    """
    file = self.path / 'study.json'
    ours = json.loads(json.dumps(dataclasses.asdict(self.study)))
    trained = any(self.path.glob('runs/*/config.json'))
    ordered = any(self.path.glob('orders/*.npy'))
    if file.exists() and (trained or ordered):
      theirs = rundir.read_json(file)
      # More variants, rates and seeds may be asked for; what is there stays.
      ours['variants'] = theirs['variants'] | ours['variants']
      fields = ('dataset', 'overrides', 'variants') if trained else ('dataset',)
      for field in fields:
        old, new = theirs[field], ours[field]
        if isinstance(old, dict):
          new = {name: new[name] for name in old}
        if old != new:
          raise errors.CheckpointError(
            f'{self.path} holds another study ({field}: {old} there, {new} '
            'here); give another --workdir'
          )
    if write:
      rundir.write_json(file, ours)

  def stages(self) -> Iterator[list[Job]]:
    """What is missing, in stages: each follows from what came of the last."""
    methods_ = {v.token_order for v in self.study.variants.values()} - {''}
    yield [
      [self._order(method)]
      for method in sorted(methods_)
      if not self.order_file(method).exists()
    ]
    for runs_of in (self.tried, self.replicates):
      yield [
        [self._train(run), ['evaluate', f'--workdir={self.directory(run)}']]
        for name in self.study.variants
        for run in runs_of(name)
        if self.result(run) is None and not self.diverged(run)
      ]

  def tried(self, variant: str) -> list[Planned]:
    """The runs that choose a variant's learning rate."""
    return [
      Planned(variant, rate, self.study.seeds[0])
      for rate in self.study.learning_rates
    ]

  def rates(self, variant: str) -> dict[float, float]:
    """{learning rate: loss} of the runs of `tried` that were finished.

    Raises:
      CheckpointError: there is none.
    """
    results = {run: self.result(run) for run in self.tried(variant)}
    measured = {
      run.learning_rate: loss(result)
      for run, result in results.items()
      if result is not None and not self.diverged(run)
    }
    if not measured:
      remedy = 'start the study again'
      if any(map(self.diverged, results)):
        remedy = 'their losses were not finite: lower study.learning_rates'
      raise errors.CheckpointError(
        f'{self.path}: no run of {variant} is finished; {remedy}'
      )
    return measured

  def replicates(self, variant: str) -> list[Planned]:
    """A variant's runs with all seeds, at its best rate."""
    measured = self.rates(variant)
    rate = min(measured, key=measured.__getitem__)
    return [Planned(variant, rate, seed) for seed in self.study.seeds]

  def results(self, variant: str) -> list[runs.Run]:
    """What the runs of `replicates` came to.

    Raises:
      CheckpointError: one is not finished.
    """
    results = []
    for planned in self.replicates(variant):
      result = self.result(planned)
      if result is None or self.diverged(planned):
        raise errors.CheckpointError(
          f'{self.directory(planned)} is not finished, or its loss was not '
          'finite; start the study again, or lower study.learning_rates'
        )
      results.append(result)
    return results

  def result(self, planned: Planned) -> runs.Run | None:
    """What a run came to, or None if it is not finished and evaluated."""
    run = rundir.open_(str(self.directory(planned)))
    if not run.config_file.exists():
      return None
    last = run.eval_dir(run.config()['train']['steps'])
    if not all((last / f'{task}.json').exists() for task in TASKS):
      return None
    return runs.read(str(run.path))

  def diverged(self, planned: Planned) -> bool:
    """Whether a run ended with a loss that was not finite, here or held out."""
    run = rundir.open_(str(self.directory(planned)))
    result = self.result(planned)
    lost = result is not None and not math.isfinite(loss(result))
    return lost or run.not_finite_file.exists()

  def directory(self, planned: Planned) -> epath.Path:
    """Of a run."""
    return self.path / 'runs' / planned.name

  def order_file(self, method: str) -> epath.Path:
    """Of a token order."""
    return self.path / 'orders' / f'{method}.npy'

  def _order(self, method: str) -> list[str]:
    return [
      'order',
      f'--dataset={self.study.dataset}',
      f'--method={method}',
      f'--output={self.order_file(method)}',
    ]

  def _train(self, run: Planned) -> list[str]:
    variant = self.study.variants[run.variant]
    overrides = [
      f'arm={run.variant}',
      f'data.train={self.study.dataset}',
      f'optimizer.learning_rate={run.learning_rate}',
      f'train.seed={run.seed}',
      *self.study.overrides,
    ]
    if variant.token_order:
      file = self.order_file(variant.token_order)
      overrides.append(f'model.token_order={file}')
    return [
      'train',
      f'--config={variant.config}',
      f'--workdir={self.directory(run)}',
      *(f'--config.{override}' for override in overrides),
    ]


def loss(run: runs.Run) -> float:
  """Nats per token over the run's own evaluation sets, the mean of them."""
  rows = [run.results['perplexity'][name] for name in run.evaluation_sets]
  return sum(row['nats_per_token'] for row in rows) / len(rows)
