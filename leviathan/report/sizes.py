"""Sections of a report: what each arm consists of, and what it costs."""

from leviathan.report import compare
from leviathan.report import document
from leviathan.report import groups as groups_lib
from leviathan.report import runs
from leviathan.report import tables

PARTS = ('input', 'backbone', 'head', 'total')


def parameters(groups: groups_lib.Groups) -> document.Section:
  """What each arm consists of."""
  rows = []
  values: list[list] = [['arm', *PARTS, 'total_over_percent']]
  for variant in groups.variants:
    counts = variant.first.parameters
    baseline = groups.baseline(variant)
    total = baseline.first.parameters['total'] if baseline else 0
    of_parts = [counts[part] for part in PARTS]
    rows.append(
      [variant.label, *(f'{count:,}' for count in of_parts)]
      + [tables.change(counts['total'], total)]
    )
    values.append(
      [variant.label, *of_parts, tables.percent(counts['total'], total)]
    )
  header = ['arm', *PARTS, f'over {_names(groups)}']
  caption = 'Parameters of the models as defined, without rows that only pad.'
  table = document.Table('parameters', caption, header, rows, values)
  return document.Section('Parameters', [table])


def cost(groups: groups_lib.Groups) -> document.Section:
  """Throughput, time and FLOPs, and what they are over the baseline's."""
  rows = []
  values: list[list] = [
    [
      'arm', 'tokens_per_second', 'speed_over_percent', 'seconds',
      'flops_per_token', 'flops_over_percent', 'flops_of_input', 'flops',
    ]
  ]  # fmt: skip
  for variant in groups.variants:
    of_token = variant.first.flops
    speed = compare.mean(variant, _speed)
    seconds = compare.mean(variant, lambda run: run.seconds)
    whole = of_token['total'] * variant.first.tokens
    over = [0.0, 0.0]  # Nothing can be told of it.
    if baseline := groups.baseline(variant):
      over = [compare.mean(baseline, _speed), baseline.first.flops['total']]
    rows.append(
      [
        variant.label,
        f'{speed:,.0f}',
        tables.change(speed, over[0]),
        f'{seconds:,.0f}',
        f'{of_token["total"]:.4g}',
        tables.change(of_token['total'], over[1]),
        f'{of_token["embedder"]:.4g}',
        f'{whole:.4g}',
      ]
    )
    values.append(
      [
        variant.label,
        speed,
        tables.percent(speed, over[0]),
        seconds,
        of_token['total'],
        tables.percent(of_token['total'], over[1]),
        of_token['embedder'],
        whole,
      ]
    )
  names = _names(groups)
  header = [
      'arm', 'tokens per second', f'speed over {names}', 'seconds',
      'FLOPs per token', f'FLOPs over {names}', 'of the input', 'FLOPs in all',
  ]  # yapf: disable
  caption = (
    'Tokens per second are the median over the steps, then the mean over '
    'seeds; they compare runs on one machine alone. Seconds are those of the '
    'training steps, without evaluation, saving and compiling. FLOPs are '
    "counted from the model's sizes, forward and backward."
  )
  table = document.Table('cost', caption, header, rows, values)
  return document.Section('Cost', [table])


def _speed(run: runs.Run) -> float:
  return run.tokens_per_second


def _names(groups: groups_lib.Groups) -> str:
  """Of the baselines."""
  if len(groups.baselines) == 1:
    return groups.baselines[0].label
  return groups.baselines[0].first.label
