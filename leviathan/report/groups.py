"""Runs into variants with a run a seed, and what each is compared with."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from collections.abc import Sized
import dataclasses
import itertools
import json
import math
import statistics
from typing import Any
from typing import NamedTuple

from leviathan import config as config_lib
from leviathan import errors
from leviathan import rundir
from leviathan.eval import frequency
from leviathan.report import runs as runs_lib

BASELINE = 'tied'  # Where there is one and no other is asked for.
DRAWN = 12  # Lines of a picture: of more, none could be told from another.
SEED = 'config.train.seed'
# How long a run trains may change when it goes on, but variants differ in it.
BUDGET = ('config.train.steps', 'config.data.batch_size')
# How fast a run is and what it keeps, not what it learns; of data and token
# order the contents are compared, not the places.
FREE = (
  *(field for field in rundir.FREE if field not in BUDGET),
  'manifest.format_version',  # Of its checkpoints.
)


class LeftOut(NamedTuple):
  """A directory that the report does not show."""

  path: str
  reason: str


class Setting(NamedTuple):
  """What two variants must share, or their difference says nothing."""

  width: int
  layers: int
  head_width: int
  mlp_width: int
  vocab_size: int

  @property
  def scale(self) -> str:
    """Width and layers, as '640x16'."""
    return f'{self.width}x{self.layers}'

  @property
  def vocabulary(self) -> str:
    """Its size, as 'V=50257'."""
    return f'V={self.vocab_size}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
  """Runs that differ in their seeds alone.

  Attributes:
    label: its arm, with scale, vocabulary, learning rate or directory where
      these tell it apart from another variant of that arm.
    runs: one a seed, in the order of the seeds.
  """

  label: str
  runs: tuple[runs_lib.Run, ...]

  @property
  def first(self) -> runs_lib.Run:
    """Its first run, for what all of them share."""
    return self.runs[0]

  @property
  def seeds(self) -> list[int]:
    """Of its runs."""
    return [run.seed for run in self.runs]

  @property
  def setting(self) -> Setting:
    """Scale and vocabulary."""
    model = self.first.config['model']
    return Setting(*(model[name] for name in Setting._fields))

  @property
  def budget(self) -> tuple[int, int]:
    """(tokens seen, planned steps): what is left, the schedule anneals away."""
    return self.first.tokens, self.first.planned_steps

  @property
  def running(self) -> bool:
    """Whether its runs are not at their end."""
    return any(run.step < run.planned_steps for run in self.runs)

  @property
  def loss(self) -> float:
    """Nats per token, the mean over runs and datasets; inf if not finite."""
    mean = statistics.fmean(
      row['nats_per_token']
      for run in self.runs
      for row in run.results['perplexity'].values()
    )
    return mean if math.isfinite(mean) else math.inf

  @property
  def learning_rate(self) -> float:
    """At the peak."""
    return self.first.config['optimizer']['learning_rate']


@dataclasses.dataclass(frozen=True, kw_only=True)
class Groups:
  """What a report compares.

  Attributes:
    variants: in the order in which their runs were named.
    baselines: those of them that others are compared with, one or more.
    left_out: what is not shown.
    other_sets: that not all of them were evaluated on, and are not shown.
  """

  variants: tuple[Variant, ...]
  baselines: tuple[Variant, ...]
  left_out: tuple[LeftOut, ...]
  other_sets: tuple[str, ...] = ()

  @property
  def datasets(self) -> list[str]:
    """That all were evaluated on, but for the subsets of others."""
    names = self.baselines[0].first.results['perplexity']
    return [name for name in names if name.rpartition('/')[0] not in names]

  def subsets(self, dataset: str) -> list[str]:
    """Of a dataset that was evaluated by subset: `SET/SUBSET`."""
    names = self.baselines[0].first.results['perplexity']
    return [name for name in names if name.rpartition('/')[0] == dataset]

  def peers(self, variant: Variant) -> list[Variant]:
    """Those of its scale, vocabulary and budget, itself among them.

    A variant whose runs go on has none, unless all of its scale and vocabulary
    go on: a loss before the end of the schedule is not that of the arm.
    """
    alike = [v for v in self.variants if v.setting == variant.setting]
    if variant.running and not all(v.running for v in alike):
      return []
    return [v for v in alike if v.budget == variant.budget]

  def comparable(self) -> list[list[Variant]]:
    """The variants by what they are compared within, in order; see `peers`."""
    found: list[list[Variant]] = []
    for variant in self.variants:
      if (peers := self.peers(variant)) and peers not in found:
        found.append(peers)
    return found

  def drawn(self) -> tuple[Variant, ...]:
    """Those that pictures show: all, or if they are too many the `best`.

    Of each arm, setting and budget, as of several learning rates.
    """
    if len(self.variants) <= DRAWN:
      return self.variants
    alike: dict[tuple, list[Variant]] = {}
    for variant in self.variants:
      key = variant.first.label, variant.setting, variant.budget
      alike.setdefault(key, []).append(variant)
    return tuple(best(several) for several in alike.values())

  def vocabularies(self) -> dict[int, 'Groups']:
    """{V: the groups of it}; their bins of frequency are not one another's."""
    found = {}
    for size in dict.fromkeys(v.setting.vocab_size for v in self.variants):
      variants, baselines = (
        tuple(v for v in several if v.setting.vocab_size == size)
        for several in (self.variants, self.baselines)
      )
      found[size] = dataclasses.replace(
        self, variants=variants, baselines=baselines
      )
    return found

  def baseline(self, variant: Variant) -> Variant | None:
    """What a variant is compared with: itself, if it is a baseline.

    Else the best baseline of its peers: a gain over one with an ill-chosen
    learning rate would say nothing. None if there is none.
    """
    if variant in self.baselines:
      return variant
    alike = [v for v in self.peers(variant) if v in self.baselines]
    return best(alike) if alike else None

  def rivals(self) -> list[tuple[Variant, Variant]]:
    """(variant, its baseline) of those that have another for theirs."""
    pairs = [(v, self.baseline(v)) for v in self.variants]
    return [(v, b) for v, b in pairs if b is not None and b is not v]


def best(variants: Iterable[Variant]) -> Variant:
  """Of variants of one arm: the one with most seeds, then the lowest loss.

  A study chooses a learning rate with one seed and goes on with it alone.
  """
  return min(variants, key=lambda v: (-len(v.runs), v.loss))


def said_of_drawn(drawn: Sized, every: Sized) -> str:
  """What a caption says where a picture leaves some out, after a sentence."""
  if len(drawn) == len(every):
    return ''
  return (
    ' Of each arm only one is drawn, as of several learning rates: of those '
    'with most seeds the best.'
  )


def read(workdirs: Sequence[str], baseline: str | None = None) -> Groups:
  """The runs in these directories; what cannot be shown is left out.

  Args:
    workdirs: of runs; one that is named twice counts once.
    baseline: label of a variant, or an arm; None is BASELINE, else the first.

  Raises:
    ConfigError: the baseline is none of them.
    CheckpointError: no run can be shown.
  """
  found: dict[str, runs_lib.Run] = {}
  left_out = []
  for workdir in workdirs:
    try:
      run = runs_lib.read(workdir)
    except errors.UserError as e:
      left_out.append(LeftOut(workdir, str(e)))
    else:
      shown = found.setdefault(str(run.path), run).step
      if run.step != shown:
        left_out.append(
          LeftOut(workdir, f'is shown at step {shown}; name one step of a run')
        )
  if not found:
    reasons = '; '.join(reason for _, reason in left_out)
    raise errors.CheckpointError(f'no run is left to report: {reasons}')
  variants = grouped(found.values())
  chosen = _baselines(variants, baseline, left_out)
  references = _references(chosen, variants)
  kept = []
  for run in found.values():
    if reason := _other_data(run, references):
      left_out.append(LeftOut(str(run.path), reason))
    else:
      kept.append(run)
  kept = _one_a_seed(kept, left_out)
  sets = set.intersection(*(_shared_sets(r, references) for r in kept))
  if not sets:
    raise errors.CheckpointError(
      'no set is one that all runs were evaluated on; leave some of them out, '
      'or run leviathan evaluate on the same data'
    )
  others = {n for r in kept for n in r.results['perplexity']} - sets
  variants = grouped(_on_sets(run, sets) for run in kept)
  paths = {run.path for variant in chosen for run in variant.runs}
  return Groups(
    variants=tuple(variants),
    baselines=tuple(v for v in variants if v.first.path in paths),
    left_out=tuple(left_out),
    other_sets=tuple(sorted(others)),
  )


def grouped(found: Iterable[runs_lib.Run]) -> list[Variant]:
  """Variants with their labels, of runs of which no two are the same."""
  alike: dict[str, list[runs_lib.Run]] = {}
  for run in found:
    alike.setdefault(_identity(run), []).append(run)
  variants = [
    Variant(
      label=several[0].label,
      runs=tuple(sorted(several, key=lambda run: run.seed)),
    )
    for several in alike.values()
  ]
  return _told_apart(variants)


def _one_a_seed(
  found: Sequence[runs_lib.Run], left_out: list[LeftOut]
) -> list[runs_lib.Run]:
  """The first of runs that differ in their places alone.

  The others are named in `left_out`: a seed that counts twice is no replicate.
  """
  first: dict[tuple[str, int], runs_lib.Run] = {}
  for run in found:
    kept = first.setdefault((_identity(run), run.seed), run)
    if kept is not run:
      left_out.append(
        LeftOut(
          str(run.path),
          f'is seed {run.seed} of the same config as {kept.path}; leave '
          'out the one that does not count',
        )
      )
  return list(first.values())


def _identity(run: runs_lib.Run) -> str:
  """The same for runs that differ in their seeds and places alone."""
  fields = {
    name: value
    for name, value in rundir.identity(run.config, run.manifest).items()
    if not name.startswith(FREE)
    and name != SEED
    # A manifest of before a field was added is like one without its value.
    and value is not None
  }
  return json.dumps(fields | {'tokens': run.tokens}, sort_keys=True)


# What is said of a variant to tell it from others of its arm.
_TELLING: tuple[Callable[[Variant], str], ...] = (
  lambda variant: variant.setting.scale,
  lambda variant: variant.setting.vocabulary,
  lambda variant: f'rate {variant.learning_rate:g}',
)


def _told_apart(variants: Sequence[Variant]) -> list[Variant]:
  """The variants, each with a label that no other has."""
  labels = [variant.label for variant in variants]
  for say in _TELLING:
    said: dict[str, set[str]] = {}
    for variant in variants:
      said.setdefault(variant.first.label, set()).add(say(variant))
    labels = [
      f'{label}, {say(v)}' if len(said[v.first.label]) > 1 else label
      for v, label in zip(variants, labels, strict=True)
    ]
  for name in (lambda path: path.name, str):
    labels = [
      f'{label} ({name(v.first.path)})' if labels.count(label) > 1 else label
      for v, label in zip(variants, labels, strict=True)
    ]
  return [
    dataclasses.replace(variant, label=label)
    for variant, label in zip(variants, labels, strict=True)
  ]


def _baselines(
  variants: Sequence[Variant],
  wanted: str | None,
  left_out: Sequence[LeftOut],
) -> list[Variant]:
  """The variant of that label, else those of that arm."""
  names = {variant.first.label for variant in variants}
  if wanted is None:
    wanted = BASELINE if BASELINE in names else variants[0].first.label
  for label in (lambda v: v.label, lambda v: v.first.label):
    if found := [v for v in variants if label(v) == wanted]:
      return found
  labels = dict.fromkeys([*names, *(v.label for v in variants)])
  missing = ''.join(f'; {x.path} was left out: {x.reason}' for x in left_out)
  raise errors.ConfigError(
    f'--baseline={wanted!r} is none of the runs'
    f'{config_lib.nearest(wanted, labels)}{missing}'
  )


def _references(
  baselines: Sequence[Variant], variants: Sequence[Variant]
) -> dict[int, runs_lib.Run]:
  """{V: the run whose data the others must have}.

  Another vocabulary's data are others, though they be the same text.
  """
  references: dict[int, runs_lib.Run] = {}
  for variant in itertools.chain(baselines, variants):
    references.setdefault(variant.setting.vocab_size, variant.first)
  return references


def _other_data(
  run: runs_lib.Run, references: dict[int, runs_lib.Run]
) -> str | None:
  """Why numbers of a run must not stand beside those of the references."""
  reference = references[run.manifest['vocab_size']]
  ours, theirs = run.dataset_fingerprint, reference.dataset_fingerprint
  if ours != theirs:
    return (
      f'was trained on dataset {ours[:12]}, {reference.path} on '
      f'{theirs[:12]}; compare runs of one dataset'
    )
  if not _shared_sets(run, references):
    evaluated, wanted = (
      {
        name: row['dataset_fingerprint']
        for name, row in r.results['perplexity'].items()
      }
      for r in (run, reference)
    )
    same = ', with other counts by frequency' if evaluated == wanted else ''
    return (
      f'was evaluated on {_sets(evaluated)}, {reference.path} on '
      f'{_sets(wanted)}{same}; run leviathan evaluate --workdir={run.path} on '
      'the same data'
    )
  return None


def _shared_sets(
  run: runs_lib.Run, references: dict[int, runs_lib.Run]
) -> set[str]:
  """Those that a run and what it stands beside were evaluated on."""
  names = set(next(iter(references.values())).results['perplexity'])
  reference = references[run.manifest['vocab_size']]
  for task in runs_lib.TASKS:
    there, here = reference.results[task], run.results[task]
    names &= {
      name
      for name in there.keys() & here.keys()
      if _of_one_text(here[name], there[name])
    }
  return names


def _of_one_text(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
  """Whether results are of the same tokens, and these in the same bins.

  Early versions did not say of which counts the bins are, nor had all sides.
  """
  whole = ('dataset_fingerprint', 'trained_on_counts_sha256')
  if any(ours[k] != theirs[k] for k in whole if k in ours and k in theirs):
    return False
  return all(
    [row['tokens'] for row in ours[side]]
    == [row['tokens'] for row in theirs[side]]
    for side in frequency.SIDES
    if side in ours and side in theirs
  )


def _on_sets(run: runs_lib.Run, names: set[str]) -> runs_lib.Run:
  """The run without what it was evaluated on besides."""
  results = dict(run.results)
  for task in runs_lib.TASKS:
    results[task] = {n: r for n, r in results[task].items() if n in names}
  return dataclasses.replace(run, results=results)


def _sets(fingerprints: dict[str, str]) -> str:
  return ', '.join(f'{name} {f[:12]}' for name, f in fingerprints.items())
