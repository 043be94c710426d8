"""Studies: many runs on the same batches, and what they say together.

Each variant is trained with the first seed at every learning rate, then with
all seeds at the rate that did best for it. The rates may be tried at a shorter
budget than that of the runs compared. What stands in the study's directory is
not done again, so a study goes on where it was stopped.
"""

from collections.abc import Iterator
import dataclasses
import json
import math
import re
from typing import Any
from typing import NamedTuple

from etils import epath

from leviathan import config as config_lib
from leviathan import errors
from leviathan import rundir
from leviathan.report import runs
from leviathan.token_order import files

# Fields that studies did not have at first, with what those did.
ADDED: dict[str, Any] = {'search_overrides': []}
ADDED_TO_VARIANTS: dict[str, Any] = {'dataset': '', 'overrides': []}


class Job(NamedTuple):
  """Commands that follow one another: arguments of `leviathan`."""

  name: str  # of what they make
  commands: list[list[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
  """One of the things compared.

  Attributes:
    config: FILE.py:SCALE.
    token_order: a method of `leviathan order`; '' for the tokenizer's ids.
    dataset: what it trains on, and what its order is made from; '' for the
      study's.
    overrides: of its runs' config, after the study's.
  """

  config: str
  token_order: str
  dataset: str
  overrides: tuple[str, ...]

  def __post_init__(self):
    if self.token_order and self.token_order not in files.METHODS:
      raise errors.ConfigError(
        f'study.variants: token_order={self.token_order!r} is unknown'
        f'{config_lib.nearest(self.token_order, files.METHODS)}'
      )

  @property
  def is_an_arm(self) -> bool:
    """Whether it is more than its config's arm on other data.

    Else it keeps the arm of its config: a report compares the scales and
    vocabularies of an arm.
    """
    changed = [o for o in self.overrides if not o.startswith('evaluate.')]
    return bool(self.token_order or changed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
  """What is compared.

  Attributes:
    variants: by name.
    learning_rates: tried for each variant.
    seeds: of parameters and of the data's order.
    dataset: what all train on that name none, and orders are made from.
    overrides: of every run's config, as `train.steps=200`.
    search_overrides: after these, of the runs that try learning rates alone, as
      `train.steps=50`; without any, the first seed's runs are such.
    tasks: evaluated at the end besides perplexity and frequency strata.
    task_data: directory of their official files; '' is the Hugging Face hub.
    contrasts: differences to report, as `lev - tied`.
  """

  variants: dict[str, Variant]
  learning_rates: tuple[float, ...]
  seeds: tuple[int, ...]
  dataset: str
  overrides: tuple[str, ...]
  search_overrides: tuple[str, ...]
  tasks: tuple[str, ...]
  task_data: str
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
      left, right = map(self.dataset_of, pair)
      if left != right:
        raise errors.ConfigError(
          f'study.contrasts: {" - ".join(pair)!r} compares losses on {left} '
          f'and on {right}; compare variants of one dataset'
        )
    words = (*self.overrides, *self.search_overrides)
    for variant in self.variants.values():
      words += variant.overrides
    for word in words:
      if '=' not in word:
        raise errors.ConfigError(
          f'study.overrides: {word!r} is not FIELD=VALUE, as train.steps=200'
        )

  def dataset_of(self, variant: str) -> str:
    """The directory of what a variant trains on."""
    return self.variants[variant].dataset or self.dataset

  def by_dataset(self) -> dict[str, list[str]]:
    """{dataset: the variants that train on it}."""
    found: dict[str, list[str]] = {}
    for name in self.variants:
      found.setdefault(self.dataset_of(name), []).append(name)
    return found

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
  """A run of a study; a trial is shorter, and only tries a learning rate."""

  variant: str
  learning_rate: float
  seed: int
  trial: bool = False

  @property
  def name(self) -> str:
    """Of its directory."""
    return f'{self.variant}-{self.learning_rate}-{self.seed}'


@dataclasses.dataclass(frozen=True)
class Workspace:
  """A study in its directory."""

  study: Study
  path: epath.Path
  # What `result` has read: what is finished stays as it is.
  _read: dict[Planned, runs.Run] = dataclasses.field(
    default_factory=dict, init=False, repr=False, compare=False
  )

  def claim(self, write: bool = True) -> None:
    """Makes the directory this study's, or only checks that it may be.

    Raises:
      CheckpointError: what lies there was made for another one.
    """
    file = self.path / 'study.json'
    ours = json.loads(json.dumps(dataclasses.asdict(self.study)))
    trained = any(
      any(self.path.glob(f'{folder}/*/config.json'))
      for folder in ('runs', 'trials')
    )
    ordered = any(self.path.glob('orders/*.npy'))
    if file.exists() and (trained or ordered):
      theirs = ADDED | rundir.read_json(file)
      theirs['variants'] = {
        name: ADDED_TO_VARIANTS | variant
        for name, variant in theirs['variants'].items()
      }
      # More variants, rates and seeds may be asked for; what is there stays.
      ours['variants'] = theirs['variants'] | ours['variants']
      fields = ['dataset']
      if trained:
        fields += ['overrides', 'search_overrides', 'variants']
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
    files_ = {self.order_file(name): name for name in self.study.variants}
    yield [
      Job(f'order-{file.stem}', [self._order(name)])
      for file, name in sorted(files_.items(), key=str)
      if self.study.variants[name].token_order and not file.exists()
    ]
    for runs_of in (self.tried, self.replicates):
      yield [
        Job(
          f'{self.directory(run).parent.name}-{run.name}',
          [self._train(run), self._evaluate(run)],
        )
        for name in self.study.variants
        for run in runs_of(name)
        if self.result(run) is None and not self.diverged(run)
      ]

  def tried(self, variant: str) -> list[Planned]:
    """The runs that choose a variant's learning rate."""
    return [
      Planned(
        variant,
        rate,
        self.study.seeds[0],
        trial=bool(self.study.search_overrides),
      )
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

  def trial_tokens(self, variant: str) -> int:
    """Seen by each trial of a variant; 0 if there are none apart."""
    found = [self.result(run) for run in self.tried(variant) if run.trial]
    return max((run.tokens for run in found if run is not None), default=0)

  def replicates(self, variant: str) -> list[Planned]:
    """A variant's runs with all seeds, at its best rate."""
    measured = self.rates(variant)
    rate = min(measured, key=measured.__getitem__)
    return [Planned(variant, rate, seed) for seed in self.study.seeds]

  def lost(self, variant: str) -> list[Planned]:
    """Those of `replicates` whose loss was not finite."""
    return [run for run in self.replicates(variant) if self.diverged(run)]

  def results(self, variant: str) -> list[runs.Run]:
    """What the runs of `replicates` came to, without those of `lost`.

    Raises:
      CheckpointError: one is not finished, or all are lost.
    """
    lost = self.lost(variant)
    results = []
    for planned in self.replicates(variant):
      if planned in lost:
        continue
      result = self.result(planned)
      if result is None:
        raise errors.CheckpointError(
          f'{self.directory(planned)} is not finished; start the study again'
        )
      results.append(result)
    if not results:
      raise errors.CheckpointError(
        f'{self.path}: the losses of {variant} were not finite with any seed; '
        'lower study.learning_rates'
      )
    return results

  def result(self, planned: Planned) -> runs.Run | None:
    """What a run came to, or None if it is not finished and evaluated."""
    if planned not in self._read:
      run = rundir.open_(str(self.directory(planned)))
      if not run.config_file.exists():
        return None
      last = run.eval_dir(run.config()['train']['steps'])
      tasks = self._tasks(planned)
      if not all((last / f'{task}.json').exists() for task in tasks):
        return None
      self._read[planned] = runs.read(str(run.path))
    return self._read[planned]

  def diverged(self, planned: Planned) -> bool:
    """Whether a run ended with a loss that was not finite, here or held out."""
    run = rundir.open_(str(self.directory(planned)))
    result = self.result(planned)
    lost = result is not None and not math.isfinite(loss(result))
    return lost or run.not_finite_file.exists()

  def directory(self, planned: Planned) -> epath.Path:
    """Of a run."""
    folder = 'trials' if planned.trial else 'runs'
    return self.path / folder / planned.name

  def order_file(self, variant: str) -> epath.Path:
    """Of a variant's token order."""
    chosen = self.study.variants[variant]
    name = chosen.token_order
    if chosen.dataset:  # Its tokens are others than the study's.
      name += '-' + re.sub(r'\W+', '_', chosen.dataset.strip('/'))
    return self.path / 'orders' / f'{name}.npy'

  def _order(self, variant: str) -> list[str]:
    return [
      'order',
      f'--dataset={self.study.dataset_of(variant)}',
      f'--method={self.study.variants[variant].token_order}',
      f'--output={self.order_file(variant)}',
    ]

  def _train(self, run: Planned) -> list[str]:
    variant = self.study.variants[run.variant]
    overrides = [
      *([f'arm={run.variant}'] if variant.is_an_arm else []),
      f'data.train={self.study.dataset_of(run.variant)}',
      f'optimizer.learning_rate={run.learning_rate}',
      f'train.seed={run.seed}',
      *self.study.overrides,
      *variant.overrides,
    ]
    if run.trial:
      overrides += self.study.search_overrides
    if variant.token_order:
      overrides.append(f'model.token_order={self.order_file(run.variant)}')
    # Of one field, the last is meant.
    fields = dict(override.split('=', 1) for override in overrides)
    return [
      'train',
      f'--config={variant.config}',
      f'--workdir={self.directory(run)}',
      *(f'--config.{field}={value}' for field, value in fields.items()),
    ]

  def _evaluate(self, run: Planned) -> list[str]:
    command = ['evaluate', f'--workdir={self.directory(run)}']
    tasks = self._tasks(run)
    if tasks != runs.TASKS:
      command.append(f'--tasks={",".join(tasks)}')
      command.append(f'--task_data={self.study.task_data}')
    return command

  def _tasks(self, run: Planned) -> tuple[str, ...]:
    """What a run is evaluated by."""
    return runs.TASKS if run.trial else (*runs.TASKS, *self.study.tasks)


def loss(run: runs.Run) -> float:
  """Nats per token over the run's own evaluation sets, the mean of them.

  Raises:
    CheckpointError: it has none.
  """
  rows = [run.results['perplexity'][name] for name in run.evaluation_sets]
  if not rows:
    raise errors.CheckpointError(
      f'{run.path} has no validation losses; set evaluate.datasets and '
      'evaluate.interval in study.overrides and give another --workdir'
    )
  return sum(row['nats_per_token'] for row in rows) / len(rows)
