"""What is known of chips, from their makers' data sheets, and slices of TPUs.

A TPU slice is written as the maker does, `v5e:8x8`: the chip and its sides.
"""

from collections.abc import Sequence
import dataclasses
import math
import re

from leviathan import config as config_lib
from leviathan import errors

GIB = 1 << 30
CPU = 'cpu'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
  """A kind of TPU. Figures are those of one device, as JAX counts devices.

  Attributes:
    name: as in `v5e:8x8`.
    device_kind: as JAX spells it.
    devices: of a chip; a TPU7x is two.
    hbm: bytes of memory.
    usable: of those, the bytes that a program may have: the compiler (libtpu
      0.0.42) refuses one that needs more, and keeps the rest for itself.
    bandwidth: bytes a second to and from that memory.
    interconnect: bytes a second that leave by all links to other chips of the
      slice together, half of what is sold as bidirectional.
    peak: dense bfloat16 FLOP/s.
    shapes: slices that are sold, smallest first.
    cubes: whether any sides that are multiples of 4 are sold too, up to `most`
      chips.
    most: chips of the largest slice.
    options: of `topologies.get_topology_desc`, beside the name.
  """

  name: str
  device_kind: str
  devices: int = 1
  hbm: int
  usable: int
  bandwidth: float
  interconnect: float
  peak: float
  shapes: tuple[str, ...]
  cubes: bool
  most: int
  options: tuple[tuple[str, str], ...] = ()


_FLAT = ('1x1', '2x2', '2x4', '4x4', '4x8', '8x8', '8x16', '16x16')
_CUBES = (
  ('2x2x1', '2x2x2', '2x2x4', '2x4x4', '4x4x4', '4x4x8', '4x8x8', '8x8x8')
  + ('8x8x16', '8x16x16', '16x16x16')
)  # fmt: skip

CHIPS = {
  chip.name: chip
  for chip in (
    Chip(
      name='v4',
      device_kind='TPU v4',
      hbm=32 * GIB,
      usable=int(30.75 * GIB),
      bandwidth=1228e9,
      interconnect=300e9,
      peak=275e12,
      shapes=_CUBES,
      cubes=True,
      most=4096,
      # A chip is one device, as it is where it is rented.
      options=(('chip_config_name', 'megacore'),),
    ),
    Chip(
      name='v5e',
      device_kind='TPU v5 lite',
      hbm=16 * GIB,
      usable=int(15.75 * GIB),
      bandwidth=819e9,
      interconnect=200e9,
      peak=197e12,
      shapes=_FLAT,
      cubes=False,
      most=256,
    ),
    Chip(
      name='v5p',
      device_kind='TPU v5',
      hbm=96 * GIB,  # Sold as 95, but programs may have more.
      usable=int(95.74 * GIB),
      bandwidth=2765e9,
      interconnect=600e9,
      peak=459e12,
      shapes=(*_CUBES, '16x16x24'),
      cubes=True,
      most=6144,
    ),
    Chip(
      name='v6e',
      device_kind='TPU v6 lite',
      hbm=32 * GIB,
      usable=int(31.25 * GIB),
      bandwidth=1638e9,
      interconnect=400e9,
      peak=918e12,
      shapes=_FLAT,
      cubes=False,
      most=256,
    ),
    Chip(
      name='tpu7x',
      device_kind='TPU7x',
      devices=2,
      hbm=96 * GIB,
      usable=int(94.75 * GIB),
      bandwidth=3690e9,
      interconnect=300e9,
      peak=1153.5e12,
      shapes=(*_CUBES, '16x16x24'),
      cubes=True,
      most=9216,
    ),
  )
}

# Dense bfloat16 FLOP/s of GPUs, without sparsity, by JAX's `device_kind`.
_GPU_PEAK = {
  'NVIDIA A100-SXM4-40GB': 312e12,
  'NVIDIA A100-SXM4-80GB': 312e12,
  'NVIDIA A100-PCIE-40GB': 312e12,
  'NVIDIA A100 80GB PCIe': 312e12,
  'NVIDIA H100 80GB HBM3': 989e12,
  'NVIDIA H100 PCIe': 756e12,
  'NVIDIA H200': 989e12,
  'NVIDIA B200': 2250e12,
}


def peak(device_kind: str) -> float | None:
  """Dense bfloat16 FLOP/s of one device; None for one that is not known."""
  known = {chip.device_kind: chip.peak for chip in CHIPS.values()}
  return (known | _GPU_PEAK).get(device_kind)


@dataclasses.dataclass(frozen=True)
class Topology:
  """Devices to compile for, which need not be here.

  Attributes:
    chip: None for virtual devices of the CPU.
    sides: of a slice, in chips.
    slices: how many of them.
  """

  chip: Chip | None
  sides: tuple[int, ...]
  slices: int = 1

  @property
  def shape(self) -> str:
    """'8x8'."""
    return 'x'.join(map(str, self.sides))

  @property
  def name(self) -> str:
    """As `parse` takes it, but for the slices."""
    return f'{self.chip.name if self.chip else CPU}:{self.shape}'

  def __str__(self) -> str:
    """'v5e:8x8', '2xv5e:16x16'."""
    return f'{self.slices}x{self.name}' if self.slices > 1 else self.name

  @property
  def chips(self) -> int:
    """Of all slices."""
    return math.prod(self.sides) * self.slices

  @property
  def devices(self) -> int:
    """Of all slices, as JAX counts."""
    return self.chips * (self.chip.devices if self.chip else 1)

  @property
  def options(self) -> dict[str, object]:
    """Arguments of `topologies.get_topology_desc` beside the name."""
    found: dict[str, object] = dict(self.chip.options if self.chip else ())
    if self.slices > 1:
      found['num_slices'] = self.slices
    if math.prod(self.sides) == 1:
      # A host is taken to have four chips, of which one slice is one.
      found['chips_per_host_bounds'] = (1, 1, 1)
    return found


def parse(text: str, slices: int = 1) -> Topology:
  """The topology of 'v5e:8x8', '2xv5e:16x16' or 'cpu:8'.

  Args:
    text: a chip and the sides of a slice; the number of slices may stand
      before it.
    slices: how many, where the text does not say.

  Raises:
    ConfigError: there is no such chip, or no such slice of it. Asked for a
      slice that does not exist, the TPU's compiler ends the whole process.
  """
  count, name, shape = _split(text, slices)
  known = [*CHIPS, CPU]
  if name not in known:
    raise errors.ConfigError(
      f'--topology={text!r}: there is no chip '
      f'{name!r}{config_lib.nearest(name, known)}, as v5e:8x8 or cpu:8'
    )
  sides = _sides(shape)
  chip = CHIPS.get(name)
  if chip is None:
    if len(sides) != 1 or count != 1:
      raise errors.ConfigError(
        f'--topology={text!r}: virtual devices have one side and one slice; '
        'give cpu:8'
      )
  elif not _is_sold(chip, shape, sides):
    more = f', and any multiples of 4 up to {chip.most} chips'
    raise errors.ConfigError(
      f'--topology={text!r}: there is no such slice of {name}; the nearest is '
      f'{name}:{_nearest(chip, sides)} (of {", ".join(chip.shapes)}'
      f'{more if chip.cubes else ""})'
    )
  return Topology(chip, sides, count)


def _split(text: str, slices: int) -> tuple[int, str, str]:
  """(slices, chip, shape)."""
  found = re.fullmatch(r'(?:(\d+)x)?([^:]+):(.+)', text.strip())
  if not found:
    raise errors.ConfigError(
      f'--topology={text!r} is not CHIP:SIDES; give v5e:8x8, v5p:4x4x4 or cpu:8'
    )
  count = int(found[1] or slices)
  if count < 1 or (found[1] and slices not in (1, count)):
    raise errors.ConfigError(
      f'--topology={text!r} with --num_slices={slices}; give 1 or more, once'
    )
  return count, found[2], found[3]


def _sides(shape: str) -> tuple[int, ...]:
  """() for what is no shape at all."""
  if not re.fullmatch(r'[1-9]\d{0,4}(x[1-9]\d{0,4}){0,2}', shape):
    return ()
  return tuple(map(int, shape.split('x')))


def _is_sold(chip: Chip, shape: str, sides: Sequence[int]) -> bool:
  if shape in chip.shapes:
    return True
  cube = len(sides) == 3 and all(side % 4 == 0 for side in sides)
  return chip.cubes and cube and math.prod(sides) <= chip.most


def _nearest(chip: Chip, sides: Sequence[int]) -> str:
  """The listed slice whose number of chips is nearest, by ratio."""
  wanted = math.prod(sides or (1,))
  return min(
    chip.shapes, key=lambda s: abs(math.log(math.prod(_sides(s)) / wanted))
  )
