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
    against: what the one is compared with.
    other: the value of that.
    follows: what the report does about it.
  """

  what: str
  value: str
  against: str
  other: str
  follows: str = tables.NONE


def warnings(groups: groups_lib.Groups) -> document.Section | None:
  """What differs besides the arm, and which runs go on: a row a difference."""
  alike: dict[Difference, list[str]] = {}
  for who, difference in _all(groups):
    alike.setdefault(difference, []).append(who)
  if not alike:
    return None
  rows = [
    [difference.what, '; '.join(who), *difference[1:]]
    for difference, who in sorted(alike.items(), key=lambda item: item[0].what)
  ]
  header = [
    'what differs', 'of', 'value', 'compared with', 'its value', 'what follows',
  ]  # fmt: skip
  caption = (
    'What is not alike in runs that are compared, besides the arm: in each '
    'variant and its baseline, and in the runs of a variant.'
  )
  return document.Section(
    'Differences besides the arm',
    [document.Table('differences', caption, header, rows)],
  )


def _all(groups: groups_lib.Groups) -> Iterator[tuple[str, Difference]]:
  """(of what, difference), one after another."""
  for variant in groups.variants:
    alone = tables.NONE if groups.peers(variant) else 'compared with none'
    for run in variant.runs:
      if run.step < run.planned_steps:
        steps = f'{run.step:,}', 'the config', f'{run.planned_steps:,}'
        yield str(run.path), Difference('steps', *steps, alone)
    for found in _of_pairs(
      [(run, variant.first) for run in variant.runs[1:]], 'its first run'
    ):
      yield variant.label, found
    baseline = groups.baseline(variant)
    if baseline is None and groups.peers(variant):
      setting = variant.setting
      size = f'{setting.scale}, {setting.vocabulary}, {variant.first.tokens:,}'
      yield (
        variant.label,
        Difference(
          'scale, vocabulary and tokens',
          size,
          'any baseline',
          tables.NONE,
          'compared with none',
        ),
      )
    elif baseline not in (variant, None):
      for found in differences(variant, baseline):
        yield variant.label, found


def differences(
  ours: groups_lib.Variant, theirs: groups_lib.Variant
) -> list[Difference]:
  """All that differs but should not.

  Seeds are compared, fields of config and manifest that are no part of an arm,
  and how tasks were done; of each pair of runs, of a field the first that
  differs.
  """
  pairs = pairing.pairs(ours, theirs)
  found = _of_pairs(pairs or [(ours.first, theirs.first)], theirs.label)
  if ours.seeds != theirs.seeds:
    value, other = (', '.join(map(str, v.seeds)) for v in (ours, theirs))
    follows = 'unpaired, without an interval'
    if pairs:
      follows = f'paired by the {pairing.of(ours, theirs)} in common'
    found.append(Difference('seeds', value, theirs.label, other, follows))
  return found


def _of_pairs(
  pairs: Sequence[tuple[runs.Run, runs.Run]], against: str
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
    Difference(field, str(value), against, str(other))
    for field, (value, other) in found.items()
  ]


def _counts(field: str, values: tuple[Any, Any]) -> bool:
  """Whether it is a difference that runs of two arms should not have.

  What one run does not say of its libraries is none.
  """
  if field.startswith(VERSIONS) and None in values:
    return False
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
