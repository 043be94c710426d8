"""What runs came to in tasks: accuracies, perplexities of other texts."""

from collections.abc import Mapping
from collections.abc import Sequence
import math
import statistics
from typing import Any

from leviathan.report import compare
from leviathan.report import document
from leviathan.report import groups as groups_lib
from leviathan.report import pairing
from leviathan.report import replicates
from leviathan.report import runs
from leviathan.report import tables

Key = tuple[str, str, str]  # task, set, metric


def section(groups: groups_lib.Groups) -> document.Section | None:
  """Figures with a standard error, and what is gained; None without tasks."""
  found = dict.fromkeys(
    key
    for variant in groups.variants
    for run in variant.runs
    for key in _metrics(run)
  )
  if not found:
    return None
  parts = [_values(groups.variants, list(found))]
  rivals = groups.rivals()
  gains = {
    (key, pair[0].label): gain
    for key in found
    for pair in rivals
    if (gain := _gain(*pair, key)) is not None
  }
  if gains:
    parts.append(_gains(gains, list(found), rivals))
  return document.Section('Tasks', parts)


def _values(
  variants: Sequence[groups_lib.Variant], keys: Sequence[Key]
) -> document.Table:
  """A row a figure, a column a variant."""
  rows = []
  values: list[list] = [
    ['task', 'set', 'metric', 'arm', 'value', 'standard_error']
  ]
  for key in keys:
    known = {v.label: value for v in variants if (value := _value(v, key))}
    cells = [
      '{:,.4f} +- {:,.4f}'.format(*known[v.label])
      if v.label in known
      else tables.NONE
      for v in variants
    ]
    rows.append([' '.join(key), *cells])
    values += [[*key, label, *value] for label, value in known.items()]
  caption = (
    'Values and their standard errors over the items of the task; of several '
    'seeds, the means of both, since all answer the same items.'
  )
  header = ['task', *(v.label for v in variants)]
  return document.Table('tasks', caption, header, rows, values)


def _gains(
  gains: Mapping[tuple[Key, str], replicates.Estimate],
  keys: Sequence[Key],
  rivals: Sequence[tuple[groups_lib.Variant, groups_lib.Variant]],
) -> document.Table:
  """A row a figure, a column a rival."""
  labels = [variant.label for variant, _ in rivals]
  rows = [
    [
      ' '.join(key),
      *(
        _said(gains[key, label], key) if (key, label) in gains else tables.NONE
        for label in labels
      ),
    ]
    for key in keys
  ]
  values: list[list] = [
    ['task', 'set', 'metric', 'arm', 'unit', 'mean', 'low', 'high']
  ]
  for (key, label), gain in gains.items():
    unit = 'percent' if _in_percent(key) else key[-1]
    values.append([*key, label, unit, *tables.ends(gain)])
  gained = {label for _, label in gains}
  caption = (
    'Over the baseline: the gain in % of a perplexity, the difference of other '
    'figures; above 0 is better, but below 0 of bits per byte. '
    + pairing.of_rivals(r for r in rivals if r[0].label in gained)
  )
  return document.Table('tasks_gain', caption, ['task', *labels], rows, values)


def _gain(
  variant: groups_lib.Variant,
  baseline: groups_lib.Variant,
  key: Key,
) -> replicates.Estimate | None:
  """Over the baseline; None where one has no such figure."""
  task, name, metric = key
  if any(key not in _metrics(r) for r in (*variant.runs, *baseline.runs)):
    return None

  def value(run):
    return run.results[task][name][metric]

  if not _in_percent(key):
    return compare.difference(variant, baseline, value)
  return compare.gains(variant, baseline, lambda run: math.log(value(run)))


def _in_percent(key: Key) -> bool:
  return key[-1].endswith('perplexity')


def _said(gain: replicates.Estimate, key: Key) -> str:
  if _in_percent(key):
    return f'{tables.said(gain, "+.2f")} %'
  return tables.said(gain, '+.4f')


def _metrics(run: runs.Run) -> list[Key]:
  """(task, set, metric) of the figures with a standard error."""
  return [
    (task, name, metric)
    for task, sets in run.results.items()
    if task not in runs.TASKS
    for name, figures in sets.items()
    for metric in figures
    if f'{metric}_stderr' in figures
  ]


def _value(variant: groups_lib.Variant, key: Key) -> tuple[float, float] | None:
  """(mean, standard error), of a figure that all its runs have."""
  task, name, metric = key
  rows: list[dict[str, Any]] = [
    run.results.get(task, {}).get(name, {}) for run in variant.runs
  ]
  if not all(f'{metric}_stderr' in row for row in rows):
    return None
  value, error = (
    statistics.fmean(row[m] for row in rows)
    for m in (metric, f'{metric}_stderr')
  )
  return value, error
