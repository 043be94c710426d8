"""What a compile found, as lines, as a refusal and as a row of a table."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from leviathan import aot
from leviathan import chips
from leviathan import experiment
from leviathan import fitting
from leviathan import units
from leviathan.report import markdown

MEMORY = ('arguments', 'temporaries', 'outputs', 'code', 'peak', 'capacity')
NONE = '-'


def lines(facts: aot.Facts) -> Iterator[str]:
  """For people."""
  mesh = ', '.join(f'{axis} {n}' for axis, n in facts['mesh'].items())
  yield (
    f'{facts["arm"]} on {facts["topology"]}: {facts["devices"]} devices, mesh '
    f'{mesh}, {facts["rows_per_device"]:g} sequences each'
  )
  yield f'compiled in {facts["compile_seconds"]} s'
  yield 'memory of a device:'
  for name in MEMORY:
    note = ' (less what is aliased)' if name == 'outputs' else ''
    value = facts['memory'][name]
    none = name == 'capacity' and value is None
    said = 'of this device none' if none else units.size(value)
    yield f'  {name}{note}: {said}'
  if facts.get('buffers'):
    yield 'largest arrays:'
    for b in facts['buffers']:
      yield f'  {units.size(b["bytes"])}  {b["of"]}  {b["name"]}'
  yield 'state, whole and on a device:'
  for name, part in facts['state'].items():
    yield (
      f'  {name}: {part["parameters"]:,} parameters, '
      f'{units.size(part["bytes"])}, '
      f'{units.size(part["bytes_per_device"])}; optimizer '
      f'{units.size(part["optimizer_bytes"])}, '
      f'{units.size(part["optimizer_bytes_per_device"])}'
    )
  if 'collectives' in facts:
    yield (
      'collectives of a step:'
      if facts['collectives']
      else ('collectives of a step: none')
    )
    for c in facts['collectives']:
      yield (
        f'  {c["kind"]} over {c["axes"]}: {c["count"]} of '
        f'{units.size(c["bytes"])}; a device passes on {units.size(c["moved"])}'
      )
  yield from _cost(facts)


def _cost(facts: aot.Facts) -> Iterator[str]:
  """FLOPs, and what they and the rest come to in time."""
  whole = facts['flops']['total']
  yield f'model FLOPs of a step: {whole:.4g}'
  for name, value in facts['flops'].items():
    if name != 'total':
      yield f'  {name}: {value:.4g} ({value / whole:.1%})'
  estimate = facts['estimate']
  if estimate is None:
    return
  yield 'estimate of a step, each alone and used to the full:'
  for name in ('compute', 'memory', 'collective'):
    yield f'  {name}: {units.duration(estimate[f"{name}_seconds"])}'
  if estimate['across_slices_bytes']:
    across = units.size(estimate['across_slices_bytes'])
    yield f'  across slices: {across} a device, which are not timed'
  yield (
    f'  best MFU that may be hoped for: {estimate["best_mfu"]:.0%}, were all '
    'three done at once'
  )


def too_large(
  config: experiment.Config, topology: chips.Topology, facts: aot.Facts
) -> str:
  """Why a config that was compiled does not fit, and what to change."""
  needed, had = (
    units.size(facts['memory'][name]) for name in ('peak', 'capacity')
  )
  idea = next((fitting.flags(f) for f in fitting.tries(config, topology)), '')
  return (
    f'--topology={topology}: a device needs {needed} of {had}; '
    f'{f"try {idea}, or " if idea else ""}--suggest finds what fits'
  )


def elsewhere(
  config: experiment.Config,
  topology: chips.Topology,
  *,
  suggest: bool,
  say: Callable[[str], None],
  compile_: aot.Compile = aot.in_child,
) -> str:
  """Why nothing need be compiled for a slice, and the smallest that will do.

  Args:
    config: of which state and gradients alone are too large.
    topology: of a chip.
    suggest: whether to compile for the smallest, with what it takes to fit.
    say: prints a line for the person who waits.
    compile_: see `aot.in_child`.
  """
  chip = topology.chip
  assert chip is not None  # The CPU has no capacity.
  said = (
    f'--topology={topology}: parameters, moments and gradients alone are '
    f'{units.size(aot.floor(config, topology))} on a device of '
    f'{units.size(chip.usable)}; '
  )
  for larger, fields in fitting.smallest(config, chip):
    with_fields = fitting.changed(config, fields)
    if not suggest:
      return (
        f'{said}the smallest slice that has room for them is {larger}'
        f'{_with(fields)} (--suggest compiles for it)'
      )
    fit = fitting.first(with_fields, larger, compile_=compile_, say=say)
    if fit is not None:
      return (
        f'{said}the smallest slice on which it fits is {larger}'
        f'{_with(fields | fit.fields)}: '
        f'{units.size(fit.facts["memory"]["peak"])} on a device'
      )
  return (
    f'{said}it fits none of those listed ({", ".join(chip.shapes)}); give a '
    'larger slice or another chip'
  )


def _with(fields: fitting.Fields) -> str:
  return f', with {fitting.flags(fields)}' if fields else ''


HEADER = (
  'slice', 'chips', 'fits', 'memory, GB', 'of GB', 'collectives, GB',
  'compute, ms', 'memory, ms', 'collectives, ms', 'best MFU', 'embedder FLOPs',
  'compile, s',
)  # fmt: skip


def row(
  topology: chips.Topology, fit: fitting.Fit | None, why: str
) -> dict[str, Any]:
  """What the table has of one slice, as JSON; `why` where nothing fits."""
  return {
    'topology': str(topology),
    'chips': topology.chips,
    'fields': fit and fit.fields,
    'why': why,
    'facts': fit and fit.facts,
  }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
  """Markdown: a row a slice, of what `row` gives."""
  return markdown.table(HEADER, [_cells(r) for r in rows])


def verdict(row_: Mapping[str, Any]) -> str:
  """Whether a row fits, and with which flags or why not."""
  if row_['facts'] is None:
    return f'no: {row_["why"]}'
  said = fitting.flags(row_['fields'])
  fits = 'not known' if row_['facts']['fits'] is None else 'yes'
  return f'{fits}, with {said}' if said else fits


def _cells(row_: Mapping[str, Any]) -> list[str]:
  facts = row_['facts']
  cells = [row_['topology'], f'{row_["chips"]:,}', verdict(row_)]
  if facts is None:
    return cells + [NONE] * (len(HEADER) - len(cells))
  memory, estimate = facts['memory'], facts['estimate']
  times = [NONE] * 4
  if estimate is not None:
    names = ('compute', 'memory', 'collective')
    times = [f'{1e3 * estimate[f"{n}_seconds"]:.3g}' for n in names]
    times.append(f'{estimate["best_mfu"]:.0%}')
  capacity = memory['capacity']
  flops = facts['flops']
  return [
    *cells,
    f'{memory["peak"] / 1e9:.2f}',
    f'{capacity / 1e9:.2f}' if capacity else NONE,
    f'{sum(c["moved"] for c in facts["collectives"]) / 1e9:.2f}',
    *times,
    f'{flops["embedder"] / flops["total"]:.2%}',
    f'{facts["compile_seconds"]:.0f}',
  ]
