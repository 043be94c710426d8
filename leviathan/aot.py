"""Compiles the training step for devices that need not be here.

`in_child` does so in a process of its own: asked for what it does not know, a
TPU's compiler ends the process that it runs in.
"""

from collections.abc import Callable
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import jax
from jax.experimental import topologies
import jax.numpy as jnp

from leviathan import arrays
from leviathan import chips
from leviathan import errors
from leviathan import experiment
from leviathan import flops
from leviathan import hlo
from leviathan import parameters
from leviathan import replica_groups
from leviathan import sharding

BUFFERS = 5  # The largest, that are named.
# Nobody is asked for a TPU, and several processes may compile for one.
ENVIRONMENT = {
  'JAX_PLATFORMS': 'cpu',
  'TPU_SKIP_MDS_QUERY': '1',
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
}
INSTALL = "pip install 'leviathan[tpu]'"

# What `of` gives: plain numbers, texts, lists and dicts, as in JSON.
Facts = dict[str, Any]
# (config, topology, bytes that a device may hold) -> what a compile found.
Compile = Callable[[experiment.Config, chips.Topology, int | None], Facts]


class CompilerError(errors.UserError):
  """The compiler came to a sudden end: whether a run fits is not known."""

  exit_code = 2


def devices_of(topology: chips.Topology) -> list[Any]:
  """The topology's devices, of which none need be here but those of the CPU."""
  if topology.chip is None:
    return jax.devices()[: topology.devices]
  return list(
    topologies.get_topology_desc(
      topology.name, platform='tpu', **topology.options
    ).devices
  )


def abstract_batch(parts: experiment.Experiment) -> arrays.Batch:
  """Shapes, types and shardings of a batch as training has it."""
  data, rows = parts.config.data, sharding.batch_sharding(parts.mesh)

  def like(dtype):
    shape = data.batch_size, data.seq_len
    return jax.ShapeDtypeStruct(shape, dtype, sharding=rows)

  return arrays.Batch(
    inputs_BL=like(jnp.int32),
    targets_BL=like(jnp.int32),
    weights_BL=like(jnp.float32),
    segments_BL=like(jnp.int32) if data.document_mask else None,
  )


def compile_step(parts: experiment.Experiment) -> jax.stages.Compiled:
  """The step that training runs, compiled for the experiment's mesh.

  Raises:
    ConfigError: the mesh does not divide the batch or a parameter.
  """
  parts.check_train_batch()
  state = parts.abstract_state  # Makes a key, which no absent device can.
  step = parts.train_step()
  with jax.set_mesh(parts.mesh):
    return step.lower(state, abstract_batch(parts)).compile()


def of(
  config: experiment.Config,
  topology: chips.Topology,
  capacity: int | None = None,
) -> Facts:
  """Compiles, here, and says what came of it.

  Args:
    config: of the run.
    topology: what to compile for.
    capacity: bytes that a device may hold; None for the chip's, which virtual
      devices of the CPU do not have.

  Raises:
    ConfigError: the config does not suit the devices, or the compiler refuses
      the program for other reasons than the memory that it needs.
  """
  chip = topology.chip
  if capacity is None and chip is not None:
    capacity = chip.usable
  mesh = sharding.make_mesh(config.mesh, devices_of(topology))
  parts = experiment.Experiment(config, mesh)
  start = time.perf_counter()
  try:
    compiled = compile_step(parts)
  except jax.errors.JaxRuntimeError as e:
    if 'RESOURCE_EXHAUSTED' not in str(e):
      raise
    if not hlo.is_of_hbm(str(e)):
      # A kernel has asked for more than there is on the chip itself.
      raise errors.ConfigError(
        f'--topology={topology}: the compiler refuses the program '
        f'({errors.first_line(e)}); give other settings'
      ) from e
    memory, found = _refused(parts, str(e)), {}
  else:
    memory = _memory(compiled.memory_analysis())
    found = _program(parts, compiled.as_text() or '')
  seconds = time.perf_counter() - start
  memory['capacity'] = capacity
  fits = None  # Nobody knows.
  if capacity is not None:
    peak = memory['peak']
    fits = bool(found) and peak is not None and peak <= capacity
  return {
    'arm': config.arm,
    'topology': str(topology),
    'devices': topology.devices,
    'mesh': dict(mesh.shape),
    'rows_per_device': config.data.batch_size
    / (mesh.shape['data'] * mesh.shape['fsdp']),
    'fits': fits,
    'memory': memory,
    **found,
    'state': state_by_component(parts),
    'flops': _flops(config),
    'estimate': _estimate(config, topology, memory, found.get('collectives')),
    'compile_seconds': round(seconds, 1),
  }


def _memory(stats: Any) -> dict[str, int | None]:
  """Bytes of one device.

  The peak is what the program asks for at once when it starts: its temporaries
  are one block. XLA's own `peak_memory` is left out, since on TPUs it counts
  what lies on the chip itself.
  """
  parts = {
    'arguments': stats.argument_size_in_bytes,
    'temporaries': stats.temp_size_in_bytes,
    'outputs': stats.output_size_in_bytes - stats.alias_size_in_bytes,
    'code': stats.generated_code_size_in_bytes,
  }
  return parts | {'peak': sum(parts.values())}


def _refused(
  parts: experiment.Experiment, message: str
) -> dict[str, int | None]:
  """The same of a program that the compiler has refused as too large."""
  _, arguments = sharding.table(parts.abstract_state).totals()['total']
  needed = hlo.exhausted(message)
  known = needed is not None and 'temporaries' in message
  peak = needed and needed + arguments * known
  return {
    'arguments': arguments,
    'temporaries': needed if known else None,
    'outputs': None,
    'code': None,
    'peak': peak,
  }


def _program(parts: experiment.Experiment, text: str) -> dict[str, Any]:
  """What the compiled text says: collectives, and the largest arrays."""
  program = hlo.parse(text)
  arguments = [
    {'bytes': row.bytes_per_device, 'of': 'argument', 'name': row.name}
    for row in sharding.table(parts.abstract_state).rows
  ]
  temporaries = [
    {'bytes': b.bytes, 'of': 'temporary', 'name': f'{b.name} {b.shape}'}
    for b in hlo.largest(program, BUFFERS)
  ]
  largest = sorted(arguments + temporaries, key=lambda b: -b['bytes'])
  return {
    'buffers': largest[:BUFFERS],
    'collectives': [
      dataclasses.asdict(c)
      for c in hlo.collectives(program, dict(parts.mesh.shape))
    ],
  }


def state_by_component(
  parts: experiment.Experiment,
) -> dict[str, dict[str, int]]:
  """{'input': {'parameters', 'bytes', 'bytes_per_device', ...}, ...}.

  Bytes are those of parameters, `optimizer_bytes` those of moments; what pads
  the vocabulary is in the bytes and not in `parameters`.
  """
  table = sharding.table(parts.abstract_state)
  names = list(dict.fromkeys(parameters.COMPONENTS.values()))
  counts = parameters.count(
    parameters.shapes(parts.abstract_state.params),
    parts.config.model.vocab_size,
  )
  keys = 'bytes', 'bytes_per_device'
  keys += tuple(f'optimizer_{key}' for key in keys)
  found = {
    name: {'parameters': counts[name]} | dict.fromkeys(keys, 0)
    for name in names
  }
  for row in table.rows:
    path = row.name.split('/')
    of = next((p for p in path if p in parameters.COMPONENTS), None)
    if of is None:
      continue  # Counters, and the guard's window.
    prefix = '' if path[0] == 'params' else 'optimizer_'
    component = found[parameters.COMPONENTS[of]]
    component[f'{prefix}bytes'] += row.bytes
    component[f'{prefix}bytes_per_device'] += row.bytes_per_device
  return found


def floor(config: experiment.Config, topology: chips.Topology) -> int:
  """Bytes that one device holds whatever is compiled: state and gradients.

  From shapes alone.

  Raises:
    ConfigError: the config does not suit the devices.
  """
  sizes = config.mesh.sizes(topology.devices)
  mesh = jax.sharding.AbstractMesh(sizes, sharding.AXES)
  parts = experiment.Experiment(
    config,
    mesh,  # pyright: ignore[reportArgumentType]
  )
  parts.check_train_batch()
  state = sharding.table(parts.abstract_state).totals()['total']
  gradients = sharding.table(parts.abstract_state.params).totals()['total']
  return state[1] + gradients[1]


def _flops(config: experiment.Config) -> dict[str, float]:
  """Of a step of all devices, by part, from the formula."""
  tokens = config.data.batch_size * config.data.seq_len
  of_token = flops.per_token(config.model, config.data.seq_len)
  return {name: value * tokens for name, value in of_token.items()}


def _estimate(
  config: experiment.Config,
  topology: chips.Topology,
  memory: dict[str, int | None],
  collectives: list[dict[str, Any]] | None,
) -> dict[str, float] | None:
  """Seconds that a step takes at least, were each resource used to the full.

  None where the chip or the program is not known. Memory: the state once in
  and once out, temporaries written and read once. Collectives: the bytes that
  a device must pass on, over all its links at once; what crosses slices, or
  may, goes over another network, and is counted but not timed.
  """
  chip = topology.chip
  if chip is None or collectives is None:
    return None
  across = [
    c['moved']
    for c in collectives
    if topology.slices > 1
    and {'data', replica_groups.UNKNOWN} & {*c['axes'].split('+')}
  ]
  moved = sum(c['moved'] for c in collectives) - sum(across)
  touched = 2 * ((memory['arguments'] or 0) + (memory['temporaries'] or 0))
  seconds = {
    'compute_seconds': _flops(config)['total'] / topology.devices / chip.peak,
    'memory_seconds': touched / chip.bandwidth,
    'collective_seconds': moved / chip.interconnect,
  }
  return seconds | {
    'across_slices_bytes': sum(across),
    'best_mfu': seconds['compute_seconds'] / max(seconds.values()),
  }


def check_compiler(topology: chips.Topology) -> None:
  """Raises ConfigError where the compiler of TPUs is not installed."""
  if topology.chip is None or importlib.util.find_spec('libtpu'):
    return
  raise errors.ConfigError(
    f'--topology={topology} needs the compiler of TPUs, libtpu, which is not '
    f'installed; {INSTALL} (Linux on x86-64)'
  )


def in_child(
  config: experiment.Config,
  topology: chips.Topology,
  capacity: int | None = None,
) -> Facts:
  """`of`, in a process of its own.

  Raises:
    UserError: what `of` refuses; CompilerError if the process came to a sudden
      end.
  """
  check_compiler(topology)
  request = {
    'config': dataclasses.asdict(config),
    'topology': topology.name,
    'slices': topology.slices,
    'capacity': capacity,
  }
  environment = os.environ | ENVIRONMENT
  if topology.chip is None:
    count = f'--xla_force_host_platform_device_count={topology.devices}'
    # The last one counts.
    environment['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {count}'
  with tempfile.TemporaryDirectory() as directory:
    answer = pathlib.Path(directory) / 'answer.json'
    child = subprocess.run(
      [sys.executable, '-m', 'leviathan.aot', str(answer)],
      input=json.dumps(request),
      env=environment,
      stdout=subprocess.DEVNULL,  # Compilers talk.
      stderr=subprocess.PIPE,
      text=True,
      check=False,
    )
    if not answer.exists():
      raise _death(topology, child)
    found = json.loads(answer.read_text())
  if 'refused' in found:
    raise errors.of_exit_code(found['exit_code'])(found['refused'])
  return found


def _death(
  topology: chips.Topology, child: subprocess.CompletedProcess
) -> Exception:
  """One line for a compiler that ended its process; ours keeps its trace."""
  said = [line for line in child.stderr.splitlines() if line.strip()]
  if child.returncode == 1:
    return RuntimeError(f'compiling for {topology}:\n{child.stderr}')
  last = (said or ['nothing was said'])[-1].strip()[:200]
  compiler = 'the compiler'
  if topology.chip is not None:
    compiler = f'libtpu {importlib.metadata.version("libtpu")}'
  return CompilerError(
    f'--topology={topology}: {compiler} ended with code {child.returncode} '
    f'({last}); give another slice, or see whether memory is free here'
  )


def main() -> None:
  """The child: a request as JSON comes in, an answer goes into a file."""
  request = json.loads(sys.stdin.read())
  try:
    found = of(
      experiment.read_config(request['config']),
      chips.parse(request['topology'], request['slices']),
      request['capacity'],
    )
  except errors.UserError as e:
    found = {'refused': str(e), 'exit_code': e.exit_code}
  file = pathlib.Path(sys.argv[1])
  whole = file.with_suffix('.part')
  whole.write_text(json.dumps(found))
  whole.rename(file)


if __name__ == '__main__':
  main()
