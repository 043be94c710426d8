"""What runs came to in tasks: accuracies, perplexities of other texts."""

import math
import statistics
from typing import Any

from leviathan.report import compare
from leviathan.report import document
from leviathan.report import groups as groups_lib
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
  rows = [
    [' '.join(key), *(_cell(v, key) for v in groups.variants)] for key in found
  ]
  if not rows:
    return None
  caption = (
    'Values and their standard errors over the items of the task; of several '
    'seeds, the means of both, since all answer the same items.'
  )
  header = ['task', *(variant.label for variant in groups.variants)]
  parts = [document.Table('tasks', caption, header, rows)]
  rivals = groups.rivals()
  if rivals:
    rows = [
      [' '.join(key), *(_gain(*pair, key) for pair in rivals)] for key in found
    ]
    caption = (
      'Over the baseline, paired by seed: the gain in % of a perplexity, the '
      'difference of other figures; intervals are over seeds.'
    )
    header = ['task', *(variant.label for variant, _ in rivals)]
    parts.append(document.Table('tasks_gain', caption, header, rows))
  return document.Section('Tasks', parts)


def _gain(
  variant: groups_lib.Variant,
  baseline: groups_lib.Variant,
  key: Key,
) -> str:
  task, name, metric = key
  if any(key not in _metrics(r) for r in (*variant.runs, *baseline.runs)):
    return tables.NONE

  def value(run):
    return run.results[task][name][metric]

  if not metric.endswith('perplexity'):
    return tables.said(compare.difference(variant, baseline, value), '+.4f')
  gains = compare.gains(variant, baseline, lambda run: math.log(value(run)))
  return f'{tables.said(gains, "+.2f")} %'


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


def _cell(variant: groups_lib.Variant, key: Key) -> str:
  task, name, metric = key
  figures: list[dict[str, Any]] = [
    run.results.get(task, {}).get(name, {}) for run in variant.runs
  ]
  if not all(f'{metric}_stderr' in row for row in figures):
    return tables.NONE
  value, error = (
    statistics.fmean(row[m] for row in figures)
    for m in (metric, f'{metric}_stderr')
  )
  return f'{value:,.4f} +- {error:,.4f}'
