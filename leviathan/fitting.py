"""Finds settings with which a run fits devices that it does not fit as it is.

None of them changes what is learned, but for the last bits.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
from typing import Any
from typing import NamedTuple

from leviathan import aot
from leviathan import chips
from leviathan import errors
from leviathan import experiment
from leviathan import model

Fields = dict[str, Any]  # {'train.accumulation': 2}


class Fit(NamedTuple):
  """A config as it was, or with some fields changed, and what it came to."""

  fields: Fields
  facts: aot.Facts


def changed(
  config: experiment.Config, fields: Mapping[str, Any]
) -> experiment.Config:
  """The config with other fields.

  Raises:
    ConfigError: one of them cannot be.
  """
  found = dataclasses.asdict(config)
  for name, value in fields.items():
    section, _, key = name.partition('.')
    found[section][key] = value
  return experiment.read_config(found)


def flags(fields: Mapping[str, Any]) -> str:
  """'--config.train.accumulation=2 --config.model.remat=full'."""
  return ' '.join(f'--config.{name}={value}' for name, value in fields.items())


def candidates(
  config: experiment.Config, topology: chips.Topology
) -> Iterator[Fields]:
  """What may make a run smaller: each thing alone, then more and more of them.

  In this order: micro-batches, layers that are computed again, parameters in
  more parts, the loss in more parts. Together, each is as strong as it can be.
  """
  levers = [
    [{'train.accumulation': n} for n in _accumulations(config, topology)],
    [{'model.remat': name} for name in _remats(config)],
    [_more_fsdp(config, topology)],
    [{'train.loss_chunks': n} for n in _chunks(config)],
  ]
  levers = [[fields for fields in lever if fields] for lever in levers]
  levers = [lever for lever in levers if lever]
  for lever in levers:
    yield from lever
  together = dict(levers[0][-1]) if levers else {}
  for lever in levers[1:]:
    together |= lever[-1]
    yield dict(together)


def _accumulations(config, topology) -> list[int]:
  """Doublings, down to one row a device."""
  data, fsdp, _ = config.mesh.sizes(topology.devices)
  rows = config.data.batch_size // (data * fsdp)
  now = config.train.accumulation
  found = [now * 2**n for n in range(1, rows.bit_length())]
  return [n for n in found if n <= rows and rows % n == 0]


def _remats(config) -> list[str]:
  """Those that keep less."""
  names = list(model.REMAT_POLICIES)
  return names[names.index(config.model.remat) + 1 :]


def _more_fsdp(config, topology) -> Fields:
  """All that `data` need not have; nothing where that changes nothing."""
  data, _, tensor = config.mesh.sizes(topology.devices)
  for sizes in _meshes(topology, [tensor]):
    if sizes['mesh.data'] >= data:
      break
    fields = _differing(config, sizes)
    if _suits(config, fields, topology, math.inf):
      return fields
  return {}


def _meshes(
  topology: chips.Topology, tensors: Sequence[int]
) -> Iterator[Fields]:
  """Those of which `data` divides over slices; parameters in most parts first.

  So much `fsdp` may divide no width: 640 does not divide by 256.
  """
  of_slice = topology.devices // topology.slices
  for tensor in dict.fromkeys(tensors):
    for n in range(of_slice.bit_length()):
      if of_slice % (tensor * 2**n) == 0:
        data = topology.slices * 2**n
        yield {'mesh.data': data, 'mesh.fsdp': -1, 'mesh.tensor': tensor}


def _differing(config: experiment.Config, sizes: Fields) -> Fields:
  """Those of a mesh that are not so already."""
  now = dataclasses.asdict(config.mesh)
  return {k: v for k, v in sizes.items() if now[k.partition('.')[2]] != v}


def _chunks(config) -> list[int]:
  """By fours, as far as they divide the length."""
  now, length = config.train.loss_chunks, config.data.seq_len
  found = [now * 4**n for n in range(1, 6)]
  return [n for n in found if length % n == 0]


def _capacity(topology: chips.Topology, capacity: int | None) -> float:
  if capacity is None:
    return topology.chip.usable if topology.chip else math.inf
  return capacity


def can_fit(
  config: experiment.Config,
  topology: chips.Topology,
  capacity: int | None = None,
) -> bool:
  """Whether state and gradients alone leave any room; from shapes alone.

  Raises:
    ConfigError: the config does not suit the devices.
  """
  return aot.floor(config, topology) < _capacity(topology, capacity)


def hopeless(
  config: experiment.Config,
  topology: chips.Topology,
  capacity: int | None = None,
) -> bool:
  """Whether no setting of `candidates` can fit, and nothing need be compiled.

  Raises:
    ConfigError: the config does not suit the devices.
  """
  more = _more_fsdp(config, topology)
  return not can_fit(config, topology, capacity) and not (
    more and _suits(config, more, topology, capacity)
  )


def _suits(config, fields, topology, capacity) -> bool:
  """Whether a changed config can be, and can fit."""
  try:
    return can_fit(changed(config, fields), topology, capacity)
  except errors.ConfigError:
    return False


def tries(
  config: experiment.Config,
  topology: chips.Topology,
  capacity: int | None = None,
) -> Iterator[Fields]:
  """Those of `candidates` of which the formula does not say that they cannot.

  Raises:
    ConfigError: the config does not suit the devices.
  """
  for fields in candidates(config, topology):
    if _suits(config, fields, topology, capacity):
      yield fields


def first(
  config: experiment.Config,
  topology: chips.Topology,
  capacity: int | None = None,
  *,
  compile_: aot.Compile = aot.in_child,
  say: Callable[[str], None] = lambda line: None,
) -> Fit | None:
  """The first that compiles and fits: as it is, or changed; None if none does.

  Raises:
    UserError: the config does not suit the devices, or the compiler came to a
      sudden end.
  """
  asked: list[Fields] = []

  def ask(fields: Fields) -> Fit | None:
    asked.append(fields)
    say(f'{topology}: compiling {flags(fields) or "as it is"}')
    facts = compile_(changed(config, fields), topology, capacity)
    return None if facts['fits'] is False else Fit(fields, facts)

  settings: Sequence[Fields] = list(tries(config, topology, capacity))
  if can_fit(config, topology, capacity):
    settings = [{}, *settings]
  fit = next(filter(None, map(ask, settings)), None)
  found = fit
  while found is not None:
    # All things together are more than it may need.
    fit, fields = found, _half(config, found.fields)
    found = None if fields is None or fields in asked else ask(fields)
  return fit


def _half(config: experiment.Config, fields: Fields) -> Fields | None:
  """The same with half the micro-batches; None where they are not changed."""
  key, now = 'train.accumulation', config.train.accumulation
  if key not in fields:
    return None
  half = fields[key] // 2
  rest = {k: v for k, v in fields.items() if k != key}
  return {key: half} | rest if half > now else rest


def suited(config: experiment.Config, topology: chips.Topology) -> Fields:
  """What a mesh needs to be one of these devices; {} where it is one.

  Raises:
    ConfigError: nothing will do.
  """
  tensor = max(1, config.mesh.tensor)
  refusal = None
  for sizes in ({}, *_meshes(topology, [tensor, 1])):
    fields = _differing(config, sizes)
    try:
      on_mesh = changed(config, fields)
      aot.floor(on_mesh, topology)
    except errors.ConfigError as e:
      refusal = e
      continue
    if on_mesh.mesh.sizes(topology.devices)[0] % topology.slices == 0:
      return fields
  assert refusal is not None  # All but the first divide over the slices.
  raise refusal


def anyhow(
  config: experiment.Config,
  topology: chips.Topology,
  *,
  say: Callable[[str], None] = lambda line: None,
) -> tuple[Fit | None, str]:
  """`first`, on a mesh that suits the devices; and why, where nothing fits.

  Raises:
    CompilerError: nobody knows whether it fits.
  """
  try:
    fields = suited(config, topology)
    on_mesh = changed(config, fields)
    if hopeless(on_mesh, topology):
      return None, 'state and gradients alone are too large'
    fit = first(on_mesh, topology, say=say)
  except errors.ConfigError as e:
    return None, str(e)
  if fit is None:
    return None, 'not with any setting that was tried'
  return fit._replace(fields=fields | fit.fields), ''


def smallest(
  config: experiment.Config, chip: chips.Chip
) -> Iterator[tuple[chips.Topology, Fields]]:
  """Slices of a chip on which state and gradients fit, smallest first."""
  for shape in chip.shapes:
    topology = chips.parse(f'{chip.name}:{shape}')
    try:
      fields = suited(config, topology)
      if can_fit(changed(config, fields), topology):
        yield topology, fields
    except errors.ConfigError:
      continue  # The batch does not divide over so many.
