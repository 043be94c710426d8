"""What a report compares: what is left out, what differs but should not."""

from collections.abc import Sequence
from typing import Any

from leviathan import config as config_lib
from leviathan import rundir
from leviathan.report import compare
from leviathan.report import document
from leviathan.report import groups as groups_lib
from leviathan.report import runs

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


def warnings(groups: groups_lib.Groups) -> document.Section | None:
  """What differs besides the arm, and which runs go on."""
  said = [
    f'{run.path} is not at its end: it is shown at step {run.step:,} of '
    f'{run.planned_steps:,}'
    + ('.' if groups.peers(variant) else ', and compared with none.')
    for variant in groups.variants
    for run in variant.runs
    if run.step < run.planned_steps
  ]
  for variant in groups.variants:
    said += [
      f'runs of {variant.label} differ in {field}: {ours!r} and {theirs!r}.'
      for field, (ours, theirs) in within(variant).items()
    ]
    baseline = groups.baseline(variant)
    if baseline is None and groups.peers(variant):
      said.append(
        f'{variant.label} has no baseline of its scale, vocabulary and budget, '
        'and is compared with none.'
      )
    elif baseline not in (variant, None):
      if not compare.pairs(variant, baseline):
        said.append(
          f'{variant.label} and {baseline.label} have no seed in common: what '
          'is said of their difference is unpaired, and has no interval.'
        )
      said += [
        f'{variant.label} and {baseline.label} differ in {field}: '
        f'{ours!r} and {theirs!r}.'
        for field, (ours, theirs) in differences(variant, baseline).items()
      ]
  return document.Section('Warnings', said) if said else None


def differences(
  ours: groups_lib.Variant, theirs: groups_lib.Variant
) -> dict[str, tuple[Any, Any]]:
  """{field: (ours, theirs)} of all that differs but should not.

  Seeds are compared, fields of config and manifest that are no part of an arm,
  and how tasks were done; of each pair of runs, of a field the first that
  differs.
  """
  found: dict[str, tuple[Any, Any]] = {}
  if ours.seeds != theirs.seeds:
    found['seeds'] = (ours.seeds, theirs.seeds)
  pairs = compare.pairs(ours, theirs) or [(ours.first, theirs.first)]
  return found | _of_pairs(pairs)


def within(variant: groups_lib.Variant) -> dict[str, tuple[Any, Any]]:
  """As `differences`, of the first run of a variant and its others."""
  return _of_pairs([(variant.first, run) for run in variant.runs[1:]])


def _of_pairs(
  pairs: Sequence[tuple[runs.Run, runs.Run]],
) -> dict[str, tuple[Any, Any]]:
  found: dict[str, tuple[Any, Any]] = {}
  for a, b in reversed(pairs):
    fields = config_lib.differences(
      *(rundir.identity(run.config, run.manifest) for run in (a, b))
    )
    for field, values in fields.items():
      if not field.startswith((*ARM, *FREE)) and field != groups_lib.SEED:
        found[field] = values
    ours, theirs = _protocols(a), _protocols(b)
    for name in ours.keys() & theirs.keys():
      found |= config_lib.differences(ours[name], theirs[name])
  return found


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
  every = [run for variant in groups.variants for run in variant.runs]
  rows = [
    [
      variant.label,
      str(run.seed),
      f'{run.step:,}',
      f'{run.tokens:,}',
      run.dataset_fingerprint[:12],
      ', '.join(f'{k} {v}' for k, v in run.manifest['versions'].items()),
      str(run.path),
    ]
    for variant in groups.variants
    for run in variant.runs
  ]
  header = [
      'arm', 'seed', 'step', 'tokens', 'training data', 'versions', 'directory',
  ]  # yapf: disable
  caption = 'Runs, at the step that is shown.'
  parts: list[str | document.Table] = [
    document.Table('runs', caption, header, rows)
  ]
  if fields := _differing(every):
    caption = 'Fields of the configs that are not the same in all runs.'
    header = ['field', *(variant.label for variant in groups.variants)]
    values = [
      [field, *(_value(variant, field) for variant in groups.variants)]
      for field in fields
    ]
    parts.append(document.Table('configs', caption, header, values))
  return document.Section('What was compared', parts)


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
