"""Reads a compiled program's text (HLO): what it sends, and its large arrays.

Everything here is a function of the text. It is that of one device.
"""

from collections import defaultdict
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import re

from leviathan import replica_groups

# What one device passes on, at least, for an array of one byte among n: the
# best that any algorithm does.
MOVED = {
  'all-gather': lambda n: (n - 1) / n,
  'reduce-scatter': lambda n: (n - 1) / n,
  'all-reduce': lambda n: 2 * (n - 1) / n,
  'all-to-all': lambda n: (n - 1) / n,
  'collective-permute': lambda n: 1.0,
}
# What makes no array of its own.
_VIEWS = {
  'parameter', 'tuple', 'get-tuple-element', 'bitcast', 'while', 'conditional',
  'call', 'optimization-barrier', 'constant', 'dynamic-update-slice',
  'after-all', 'partition-id', 'add-dependency', 'async-update',
}  # fmt: skip
_ARRAY = re.compile(r'([a-z]+\d*\w*)\[([\d,]*)\](?:\{([^}]*)\})?')


@dataclasses.dataclass(frozen=True)
class Instruction:
  """One line.

  Attributes:
    name: without %.
    shape: of what it makes, with its layout, as 'f32[8,128]{1,0}'.
    opcode: 'fusion'.
    operands: between the parentheses.
    attributes: all after them.
    is_root: whether it is what its computation gives.
  """

  name: str
  shape: str
  opcode: str
  operands: str
  attributes: str
  is_root: bool

  @property
  def op_name(self) -> str:
    """Where in the program it comes from; '' if nothing is said."""
    # One without a slash is a name that the compiler has made up.
    found = re.search(r'op_name="([^"]*/[^"]*)"', self.attributes)
    return found[1] if found else ''

  def called(self) -> Iterator[tuple[str, str]]:
    """(how, computation) of those it calls: 'body', 'condition', 'calls'."""
    for how, names in re.findall(
      r'(calls|body|condition|to_apply|branch_computations|true_computation|'
      r'false_computation)=(\{[^}]*\}|%?[\w.\-]+)',
      self.attributes,
    ):
      for name in re.findall(r'[\w.\-]+', names):
        yield how, name


@dataclasses.dataclass(frozen=True)
class Program:
  """{computation: its instructions}, and which of them is the whole."""

  computations: dict[str, list[Instruction]]
  entry: str


def parse(text: str) -> Program:
  """The program of `compiled.as_text()`."""
  computations: dict[str, list[Instruction]] = {}
  entry, current = '', None
  for line in _lines(text):
    head = re.match(r'(ENTRY )?%?([\w.\-]+) \(.*\{$', line)
    if head:
      current = computations[head[2]] = []
      entry = head[2] if head[1] else entry
    elif current is not None and (instruction := _instruction(line)):
      current.append(instruction)
  return Program(computations, entry)


def _lines(text: str) -> Iterator[str]:
  """Of the text, but an instruction that is broken over several is one."""
  whole = ''
  for line in text.splitlines():
    starts = re.match(r'\s+(ROOT )?%?[\w.\-]+ = |(ENTRY )?%?[\w.\-]+ \(', line)
    if starts or line == '}':
      yield whole
      whole = ''
    whole += line
  yield whole


def _instruction(line: str) -> Instruction | None:
  found = re.match(r'\s+(ROOT )?%?([\w.\-]+) = ', line)
  if not found:
    return None
  rest = line[found.end() :]
  shape, rest = _until(rest, ' ')
  opcode, _, rest = rest.partition('(')
  operands, attributes = _until(rest, ')')
  return Instruction(
    found[2], shape, opcode, operands, attributes, bool(found[1])
  )


def _until(text: str, end: str) -> tuple[str, str]:
  """What stands before the first `end` outside of brackets, and after it."""
  depth = 0
  for at, letter in enumerate(text):
    if letter == end and not depth:
      return text[:at], text[at + 1 :]
    depth += (letter in '([{') - (letter in ')]}')
  return text, ''


def bytes_of(shape: str, memory: bool = False) -> int:
  """Bytes of all arrays of a shape.

  Args:
    shape: of an instruction, or of several, as text.
    memory: as they lie in the main memory: with what tiles pad, and without
      arrays that lie elsewhere.
  """
  total = 0
  for kind, lengths, layout in _ARRAY.findall(shape):
    if kind == 'token' or (memory and re.search(r'S\([1-9]', layout)):
      continue
    sizes = [int(n) for n in lengths.split(',') if n]
    if memory:
      sizes = _padded(sizes, layout)
    bits = re.search(r'\d+', kind)
    total += math.prod(sizes) * max(8, int(bits[0]) if bits else 8) // 8
  return total


def _padded(sizes: list[int], layout: str) -> list[int]:
  """Lengths rounded up to whole tiles."""
  order, _, tiles = layout.partition(':')
  tile = re.match(r'T\(([\d,]+)\)', tiles)
  if not tile or not order:
    return sizes
  sizes, minor = list(sizes), [int(n) for n in order.split(',')]
  lengths = reversed([int(n) for n in tile[1].split(',')])
  for axis, length in zip(minor, lengths, strict=False):
    sizes[axis] = -(-sizes[axis] // length) * length
  return sizes


def executions(program: Program) -> dict[str, int]:
  """{computation: how often a step goes through it}; 0 is absent.

  A loop's body counts as often as it is known to; a branch counts once.
  """
  times: dict[str, int] = defaultdict(int)

  def visit(name, count):
    times[name] += count
    for instruction in program.computations.get(name, ()):
      for how, called in instruction.called():
        if how == 'to_apply' and instruction.opcode != 'call':
          continue  # How two numbers are added.
        loop = how in ('body', 'condition')
        trips = _trips(program, instruction) if loop else 1
        visit(called, count * trips)

  visit(program.entry, 1)
  return dict(times)


def _trips(program: Program, loop: Instruction) -> int:
  """How often a loop is gone through; 1 where that cannot be read."""
  found = re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.attributes)
  if found:
    return int(found[1])
  # Otherwise it counts up from 0, by a step, while below a number.
  called = dict(loop.called())
  condition = program.computations.get(called.get('condition', ''), [])
  limits = [c for i in condition if (c := _constant(i)) is not None]
  counters = [i for i in condition if i.opcode == 'get-tuple-element']
  if len(limits) != 1 or len(counters) != 1:
    return 1
  index = re.search(r'index=(\d+)', counters[0].attributes)
  body = program.computations.get(called.get('body', ''), [])
  step = _step(body, int(index[1])) if index else 1
  return max(1, -(-limits[0] // step))


def _constant(instruction: Instruction) -> int | None:
  """A whole number."""
  number = re.match(r'[su]32\[\]', instruction.shape)
  if instruction.opcode != 'constant' or not number:
    return None
  return int(instruction.operands) if instruction.operands.isdigit() else None


def _step(body: Sequence[Instruction], index: int) -> int:
  """What is added to a counter in a loop; 1 where that cannot be read."""
  named = {i.name: i for i in body}
  (root,) = [i for i in body if i.is_root] or [None]
  if root is None or root.opcode != 'tuple':
    return 1
  counter = named.get(_operands(root)[index])
  if counter is None or counter.opcode != 'add':
    return 1
  added = [named.get(name) for name in _operands(counter)]
  constants = [c for i in added if i and (c := _constant(i))]
  return constants[0] if constants else 1


def _operands(instruction: Instruction) -> list[str]:
  """Their names."""
  return re.findall(r'%([\w.\-]+)', instruction.operands)


@dataclasses.dataclass(frozen=True)
class Collective:
  """What devices tell each other in a step, all of one kind and direction.

  Attributes:
    kind: 'all-gather', 'all-reduce', 'reduce-scatter', ...
    axes: the mesh axes that it goes along, as 'data+fsdp'; '?' if it goes
      along none of them as a whole.
    count: how many.
    bytes: of the whole arrays, gathered or before they are scattered.
    moved: bytes that one device must pass on for them, at least.
  """

  kind: str
  axes: str
  count: int
  bytes: int
  moved: int


def collectives(program: Program, mesh: Mapping[str, int]) -> list[Collective]:
  """What a step sends, most bytes first.

  Args:
    program: of one device of the mesh.
    mesh: {axis: devices}, in the order in which devices are numbered.
  """
  times, seen = executions(program), set()
  sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
  fused = _fused(program)
  for name, instructions in program.computations.items():
    for i in instructions:
      kind = _kind(i)
      if kind not in MOVED or not times.get(name):
        continue
      if name in fused:
        # A TPU spreads one over the fusions that it runs beside.
        channel = re.search(r'channel_id=(\d+)', i.attributes)
        key = kind, channel and channel[1], re.sub(r'\{[^}]*\}', '', i.shape)
        if key in seen:
          continue
        seen.add(key)
      axes, members = replica_groups.axes(i.attributes, mesh)
      if members == 1:
        continue
      size = bytes_of(_made(i))
      if kind == 'reduce-scatter' and members:
        size *= members
      count = times[name]
      row = sums[kind, axes]
      row[0] += count
      row[1] += count * size
      row[2] += round(count * size * MOVED[kind](members or 2))
  found = [Collective(*key, *row) for key, row in sums.items()]
  return sorted(found, key=lambda c: -c.bytes)


def _fused(program: Program) -> set[str]:
  """Computations that are called by a fusion."""
  return {
    called
    for instructions in program.computations.values()
    for i in instructions
    if i.opcode == 'fusion'
    for _, called in i.called()
  }


def _kind(instruction: Instruction) -> str:
  """'all-reduce', also of one between slices, which a host sends."""
  across = re.search(
    r'_megascale_transfer_type="(\w+)"', instruction.attributes
  )
  if instruction.opcode != 'send' or not across:
    return instruction.opcode.removesuffix('-start')
  kind = across[1].lower().replace('_', '-')
  return kind if kind in MOVED else 'collective-permute'


def _made(instruction: Instruction) -> str:
  """The shape of what an operation makes, on one device."""
  opcode, shape = instruction.opcode, instruction.shape
  if opcode == 'send':
    return _parts(shape)[0]
  if not opcode.endswith('-start') or opcode == 'all-reduce-start':
    return shape
  # What goes in stands beside what comes out: behind it if it is copied.
  parts = _parts(shape) if shape.startswith('(') else [shape]
  return parts[0] if opcode == 'copy-start' else parts[min(1, len(parts) - 1)]


def _parts(shape: str) -> list[str]:
  """Of a tuple."""
  parts, rest = [], shape[1:-1]
  while rest:
    part, rest = _until(rest, ',')
    parts.append(part)
  return parts


@dataclasses.dataclass(frozen=True)
class Buffer:
  """An array that a step holds for a while.

  Attributes:
    name: the operation that it comes from, or that it goes into.
    bytes: with what tiles pad.
    shape: as 'f32[200064,2048]'.
  """

  name: str
  bytes: int
  shape: str


def largest(program: Program, count: int) -> list[Buffer]:
  """The largest arrays that operations make in the main memory.

  Of operations that write into an array that was there, none counts. What is
  listed is not all there at one time, and two may share their place.
  """
  times, fused = executions(program), _fused(program)
  in_place = {
    name
    for name, instructions in program.computations.items()
    for i in instructions
    if i.is_root and i.opcode == 'dynamic-update-slice'
  }
  found: dict[tuple[str, str], int] = {}
  for name, instructions in program.computations.items():
    if name in fused or not times.get(name):
      continue
    users = defaultdict(list)
    for i in instructions:
      for operand in _operands(i):
        users[operand].append(i)
    for i in instructions:
      writes = any(called in in_place for _, called in i.called())
      if i.opcode in _VIEWS or writes or i.opcode.endswith('-done'):
        continue
      owner = _owner(i, users)
      for kind, lengths, layout in _ARRAY.findall(_made(i)):
        array = f'{kind}[{lengths}]'
        size = bytes_of(f'{array}{{{layout}}}', memory=True)
        # The same may lie otherwise elsewhere: what takes most is told.
        if size > found.get((owner, array), 0):
          found[owner, array] = size
  buffers = [Buffer(name, size, array) for (name, array), size in found.items()]
  return sorted(buffers, key=lambda b: -b.bytes)[:count]


def _owner(
  instruction: Instruction, users: Mapping[str, Sequence[Instruction]]
) -> str:
  """The `op_name` that is nearest, along what a value goes into."""
  reached = [instruction]
  for i in reached:
    if i.op_name:
      return i.op_name
    reached += [user for user in users.get(i.name, ()) if user not in reached]
  return instruction.name


_UNITS = {'': 1, 'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30, 'T': 1 << 40}


def is_of_hbm(message: str) -> bool:
  """Whether a compiler's refusal is of the main memory."""
  return 'memory space hbm' in message or 'on HBM' in message


def exhausted(message: str) -> int | None:
  """Bytes of main memory that a refused program would need; None if unsaid.

  Two ways to say it are known: '(52.07G) exceeds available HBM' and 'Used
  52.07G of 15.75G hbm'.
  """
  found = re.search(
    r'\(([\d.]+)([KMGT]?)\) exceeds available HBM|'
    r'Used ([\d.]+)([KMGT]?) of [\d.]+[KMGT]? hbm',
    message,
  )
  if not found:
    return None
  number, unit = [g for g in found.groups() if g is not None]
  return int(float(number) * _UNITS[unit])
