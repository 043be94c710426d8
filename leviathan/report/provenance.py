"""What a report compares: what is left out, what differs but should not."""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from leviathan import config as config_lib
from leviathan import rundir
from leviathan.report import compare
from leviathan.report import document
from leviathan.report import groups as groups_lib
from leviathan.report import pairing
from leviathan.report import runs
from leviathan.report import tables

# What makes an arm, whose difference is the question.
ARM = (
  'config.arm',
  'config.model.embedder.',
  'config.model.head.',
  'config.model.token_order',
  'manifest.arm',
  'manifest.parameters.',
  'manifest.token_order',
)
VERSIONS = 'manifest.versions.'
FREE = tuple(field for field in groups_lib.FREE if field != VERSIONS)


def left_out(groups: groups_lib.Groups) -> document.Section | None:
  """Which directories and sets are not shown, and why."""
  said = [f'{path}: {reason}.' for path, reason in groups.left_out]
  if groups.other_sets:
    said.append(
      'Sets that not all runs were evaluated on: '
      f'{", ".join(groups.other_sets)}.'
    )
  if not said:
    return None
  return document.Section(
    'Left out', ['These are in no table and no picture.', *said]
  )


class Difference(NamedTuple):
  """What is not alike in what is compared.

  Attributes:
    what: a field of config or manifest, or another fact.
    value: of the one.
    other: of what it is compared with.
    follows: what the report does about it; '' is nothing.
  """

  what: str
  value: str
  other: str
  follows: str = ''


def warnings(groups: groups_lib.Groups) -> document.Section | None:
  """What differs besides the arm, and which runs go on: a row a difference."""
  alike: dict[Difference, list[str]] = {}
  for difference, who in _all(groups):
    alike.setdefault(difference, []).append(who)
  if not alike:
    return None
  rows = [
    [d.what, ', '.join(who), d.value, d.other, d.follows or tables.NONE]
    for d, who in sorted(alike.items(), key=lambda x: x[0].what)
  ]
  header = ['what differs', 'of', 'value', 'compared with', 'what follows']
  caption = (
    'What is not the same in runs that are compared, besides the arm: of each '
    'variant and its baseline, and of the first run of a variant and its '
    'others.'
  )
  return document.Section(
    'Differences besides the arm',
    [document.Table('differences', caption, header, rows)],
  )


def _all(groups: groups_lib.Groups) -> Iterator[tuple[Difference, str]]:
  """(difference, of what), one after another."""
  for variant in groups.variants:
    alone = '' if groups.peers(variant) else 'compared with none'
    for run in variant.runs:
      if run.step < run.planned_steps:
        steps = f'{run.step:,}', f'{run.planned_steps:,}'
        yield (
          Difference('steps, of those planned', *steps, alone),
          str(run.path),
        )
    for found in within(variant):
      yield found, f'runs of {variant.label}'
    baseline = groups.baseline(variant)
    if baseline is None and not alone:
      yield (
        Difference(
          'scale, vocabulary or budget, of any baseline',
          f'{variant.setting.scale}, {variant.setting.vocabulary}, '
          f'{variant.first.tokens:,} tokens',
          tables.NONE,
          'compared with none',
        ),
        variant.label,
      )
    elif baseline not in (variant, None):
      for found in differences(variant, baseline):
        yield found, f'{variant.label} over {baseline.label}'


def differences(
  ours: groups_lib.Variant, theirs: groups_lib.Variant
) -> list[Difference]:
  """All that differs but should not.

  Seeds are compared, fields of config and manifest that are no part of an arm,
  and how tasks were done; of each pair of runs, of a field the first that
  differs.
  """
  pairs = pairing.pairs(ours, theirs)
  found = _of_pairs(pairs or [(ours.first, theirs.first)])
  if ours.seeds != theirs.seeds:
    seeds = (', '.join(map(str, v.seeds)) for v in (ours, theirs))
    follows = (
      'the seeds in common count'
      if pairs
      else 'unpaired, so without an interval'
    )
    found.append(Difference('seeds', *seeds, follows))
  return found


def within(variant: groups_lib.Variant) -> list[Difference]:
  """As `differences`, of the first run of a variant and its others."""
  return _of_pairs([(variant.first, run) for run in variant.runs[1:]])


def _of_pairs(
  pairs: Sequence[tuple[runs.Run, runs.Run]],
) -> list[Difference]:
  found: dict[str, tuple[Any, Any]] = {}
  for a, b in reversed(pairs):
    fields = config_lib.differences(
      *(rundir.identity(run.config, run.manifest) for run in (a, b))
    )
    found |= {k: v for k, v in fields.items() if _counts(k, v)}
    ours, theirs = _protocols(a), _protocols(b)
    for name in ours.keys() & theirs.keys():
      found |= config_lib.differences(ours[name], theirs[name])
  return [
    Difference(field, str(value), str(other))
    for field, (value, other) in found.items()
  ]


def _counts(field: str, values: tuple[Any, Any]) -> bool:
  """Whether it is a difference that runs of two arms should not have."""
  if field.startswith(VERSIONS) and None in values:
    return False  # A run of before that library was noted, or with it missing.
  return not field.startswith((*ARM, *FREE)) and field != groups_lib.SEED


def _protocols(run: runs.Run) -> dict[str, dict[str, Any]]:
  """{'TASK SET': how it was done}, flat; early versions did not say."""
  of_run = ('step', 'manifest_sha256')
  return {
    f'{task} {name}': config_lib.flatten(
      {k: v for k, v in figures['protocol'].items() if k not in of_run},
      f'{task} {name}',
    )
    for task, sets in run.results.items()
    for name, figures in sets.items()
    if 'protocol' in figures
  }


def compared(groups: groups_lib.Groups) -> document.Section:
  """The runs, and the fields in which they differ at all."""
  parts = [_runs(groups)]
  if fields := _differing([r for v in groups.variants for r in v.runs]):
    caption = 'Fields of the configs that are not the same in all runs.'
    header = ['field', *(variant.label for variant in groups.variants)]
    rows = [
      [field, *(_value(variant, field) for variant in groups.variants)]
      for field in fields
    ]
    parts.append(document.Table('configs', caption, header, rows))
  return document.Section('What was compared', parts)


def _runs(groups: groups_lib.Groups) -> document.Table:
  """A row a run; versions that are the same in all stand above it."""
  header = [
    'arm', 'seed', 'step', 'tokens',
    *(f'nats per token on {name}' for name in groups.datasets),
    'training data', 'directory', 'versions',
  ]  # fmt: skip
  rows, values = [], []
  for variant in groups.variants:
    for run in variant.runs:
      nats = [compare.nats(name)(run) for name in groups.datasets]
      versions = (f'{k} {v}' for k, v in run.manifest['versions'].items())
      words = run.dataset_fingerprint[:12], str(run.path), ', '.join(versions)
      values.append(
        [variant.label, run.seed, run.step, run.tokens, *nats, *words]
      )
      rows.append(
        [variant.label, str(run.seed), f'{run.step:,}', f'{run.tokens:,}']
        + [*(f'{value:.4f}' for value in nats), *words]
      )
  values.insert(0, [word.replace(' ', '_') for word in header])
  caption = 'Runs, at the step that is shown.'
  if len({row[-1] for row in rows}) == 1:
    caption += f' All by {rows[0][-1]}.'
    header, *rows = (row[:-1] for row in (header, *rows))
  return document.Table('runs', caption, header, rows, values)


def _differing(every: Sequence[runs.Run]) -> list[str]:
  first, *others = (config_lib.flatten(run.config) for run in every)
  found = (config_lib.differences(first, other) for other in others)
  return sorted({field for fields in found for field in fields})


def _value(variant: groups_lib.Variant, field: str) -> str:
  """Of its runs, each value once."""
  values = (
    config_lib.flatten(run.config).get(field, '-') for run in variant.runs
  )
  return ', '.join(dict.fromkeys(map(str, values)))
