"""The mesh, and which mesh axes a logical axis lies on.

Parameters and activations name logical axes; `RULES` alone knows the mesh.
`table` tells what a mesh splits and what lies whole on every device.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math
from typing import Any

from flax import linen as nn
import jax
from jax.experimental import mesh_utils
from jax.sharding import AxisType
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec

from leviathan import errors

AXES = ('data', 'fsdp', 'tensor')

# Logical axis -> mesh axes; None is replicated. LEV's parameters name no axis:
# they are small, and its work is split by tokens, over the axes of the batch.
RULES: tuple[tuple[str, tuple[str, ...] | None], ...] = (
  ('batch', ('data', 'fsdp')),
  ('vocab', ('tensor',)),
  ('heads', ('tensor',)),
  ('mlp', ('tensor',)),
  ('embed', ('fsdp',)),
  ('layers', None),
  ('norm', None),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig:
  """Devices along each mesh axis; at most one -1 takes what is left."""

  data: int
  fsdp: int
  tensor: int

  def __post_init__(self):
    sizes = dataclasses.astuple(self)
    if sizes.count(-1) > 1 or any(s < 1 and s != -1 for s in sizes):
      raise errors.ConfigError(
        f'config.mesh={dataclasses.asdict(self)}: give positive sizes, at '
        'most one of them -1'
      )

  def sizes(self, num_devices: int) -> tuple[int, ...]:
    """(data, fsdp, tensor) for `num_devices`, -1 filled in.

    Raises:
      ConfigError: their product is not `num_devices`.
    """
    sizes = dataclasses.astuple(self)
    known = math.prod(s for s in sizes if s != -1)
    filled = tuple(num_devices // known if s == -1 else s for s in sizes)
    if math.prod(filled) != num_devices:
      raise errors.ConfigError(
        f'config.mesh={dataclasses.asdict(self)} does not fill '
        f'{num_devices} devices; give sizes whose product is {num_devices}, '
        'or -1 for one of them'
      )
    return filled


def make_mesh(
  config: MeshConfig, devices: Sequence[Any] | None = None
) -> jax.sharding.Mesh:
  """The mesh over `devices`, by default over all there are.

  Only `data` crosses from one TPU slice to another, where the network is slow.
  The hosts of a GPU cluster are no slices: their network may carry any axis.

  Raises:
    ConfigError: the sizes do not fill the devices, or `data` does not divide
      over the slices.
  """
  devices = devices or jax.devices()
  data, fsdp, tensor = sizes = config.sizes(len(devices))
  slices = 1
  if devices[0].platform == 'tpu':
    slices = len({getattr(d, 'slice_index', 0) for d in devices})
  if data % slices:
    legal = _legal_data(len(devices), slices, data, tensor)
    raise errors.ConfigError(
      f'config.mesh.data={data} does not divide over {slices} slices, and '
      f'nothing else may cross them; the nearest that does is {legal}, with '
      'config.mesh.fsdp=-1'
    )
  if slices > 1:
    placed = mesh_utils.create_hybrid_device_mesh(
      (data // slices, fsdp, tensor),
      (slices, 1, 1),
      devices,
      allow_split_physical_axes=True,
    )
  else:
    placed = mesh_utils.create_device_mesh(
      sizes, devices, allow_split_physical_axes=True
    )
  return jax.sharding.Mesh(
    placed, AXES, axis_types=(AxisType.Auto,) * len(AXES)
  )


def _legal_data(devices: int, slices: int, data: int, tensor: int) -> int:
  """The nearest to `data` of those that fill all slices, `tensor` as it is."""
  legal = [
    n for n in range(slices, devices + 1, slices) if devices % (n * tensor) == 0
  ]
  return min(legal or [slices], key=lambda n: abs(n - data))


def mesh_axes(logical_axis: str | None) -> tuple[str, ...]:
  """The mesh axes that one logical axis lies on; none when replicated."""
  return (logical_axis and dict(RULES)[logical_axis]) or ()


def _ways(mesh: Any, logical_axis: str | None) -> int:
  """Into how many parts a mesh splits a logical axis."""
  return math.prod(mesh.shape[axis] for axis in mesh_axes(logical_axis))


def spec(logical_axes: tuple[str | None, ...]) -> PartitionSpec:
  """The mesh axes of an array whose dimensions bear `logical_axes`.

  Raises:
    ValueError: two dimensions would lie on one mesh axis.
  """
  axes = [mesh_axes(axis) for axis in logical_axes]
  used = [axis for group in axes for axis in group]
  if len(used) != len(set(used)):
    raise ValueError(f'{logical_axes} puts two dimensions on one mesh axis')
  return PartitionSpec(*(group or None for group in axes))


def constrain(x: jax.Array, *logical_axes: str | None) -> jax.Array:
  """Pins an activation to the mesh in force; without a mesh, `x` itself.

  Args:
    x: of any shape; a length that its mesh axes do not divide is replicated.
    *logical_axes: one a dimension of `x`; None is not split.

  Returns:
    `x`, whose values are as they were.
  """
  if jax.sharding.get_abstract_mesh().empty:
    return x
  return jax.lax.with_sharding_constraint(x, spec(logical_axes))


def batch_sharding(mesh: jax.sharding.Mesh) -> NamedSharding:
  """Of arrays whose first dimension is the batch."""
  return NamedSharding(mesh, spec(('batch',)))


def tree_shardings(
  boxed: Any, mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh
) -> Any:
  """Shardings of a tree of abstract arrays boxed with their logical axes.

  Raises:
    ConfigError: the mesh does not divide a dimension; names the parameter and
      the nearest length that it does divide.
  """

  def leaf(path, box):
    if not isinstance(box, nn.Partitioned | nn.LogicallyPartitioned):
      return NamedSharding(mesh, PartitionSpec())
    for length, axis in zip(box.value.shape, box.names, strict=True):
      parts = _ways(mesh, axis)
      if length % parts:
        name = jax.tree_util.keystr(path, simple=True, separator='/')
        raise errors.ConfigError(
          f'{name}: axis {axis!r} of length {length} does not divide over '
          f'{parts} devices; the nearest length that does is '
          f'{max(1, round(length / parts)) * parts}, or change config.mesh'
        )
    return NamedSharding(mesh, spec(box.names))

  return jax.tree_util.tree_map_with_path(
    leaf, boxed, is_leaf=lambda x: isinstance(x, nn.meta.AxisMetadata)
  )


@dataclasses.dataclass(frozen=True)
class Row:
  """One array on a mesh.

  Attributes:
    name: its path, as 'blocks/mlp/up_DF'.
    shape: in all.
    axes: of each dimension the mesh axes that split it, as 'data+fsdp'; ''
      where none does.
    bytes: in all.
    bytes_per_device: of what one device holds.
  """

  name: str
  shape: tuple[int, ...]
  axes: tuple[str, ...]
  bytes: int
  bytes_per_device: int

  @property
  def is_replicated(self) -> bool:
    """Whether every device holds all of it."""
    return not any(self.axes)


@dataclasses.dataclass(frozen=True)
class Table:
  """What a mesh splits, and what lies whole on every device."""

  mesh: dict[str, int]
  rows: tuple[Row, ...]

  def totals(self) -> dict[str, tuple[int, int]]:
    """{'sharded' | 'replicated' | 'total': bytes in all, on one device}."""
    groups = {
      'sharded': [row for row in self.rows if not row.is_replicated],
      'replicated': [row for row in self.rows if row.is_replicated],
      'total': self.rows,
    }
    return {
      name: (sum(r.bytes for r in rows), sum(r.bytes_per_device for r in rows))
      for name, rows in groups.items()
    }

  def as_dict(self) -> dict[str, Any]:
    """For JSON."""
    return {
      'mesh': self.mesh,
      'arrays': [dataclasses.asdict(row) for row in self.rows],
      **{
        name: {'bytes': whole, 'bytes_per_device': part}
        for name, (whole, part) in self.totals().items()
      },
    }

  def lines(self) -> list[str]:
    """For people; a dimension is written 640/fsdp where `fsdp` splits it."""
    cells = [('array', 'shape/split by', 'bytes', 'bytes a device')]
    for row in self.rows:
      shape = ' x '.join(
        f'{length}/{axes}' if axes else str(length)
        for length, axes in zip(row.shape, row.axes, strict=True)
      )
      cells.append(
        (row.name, shape, f'{row.bytes:,}', f'{row.bytes_per_device:,}')
      )
    for name, (whole, part) in self.totals().items():
      cells.append((name, '', f'{whole:,}', f'{part:,}'))
    a, b, c, d = (max(map(len, column)) for column in zip(*cells, strict=True))
    return [
      f'{name:{a}}  {shape:{b}}  {whole:>{c}}  {part:>{d}}'
      for name, shape, whole, part in cells
    ]


def table(abstract: Any) -> Table:
  """The table of a tree of arrays, or of their shapes, types and shardings.

  Args:
    abstract: with a NamedSharding on one mesh in each leaf, as the params of
      `state.abstract` or the whole state. The mesh may be an abstract one.
  """
  leaves, _ = jax.tree_util.tree_flatten_with_path(abstract)
  rows = []
  for path, x in leaves:
    mesh = x.sharding.mesh.shape
    groups = [
      (group,) if isinstance(group, str) else group or ()
      for group in x.sharding.spec
    ]
    groups += [()] * (len(x.shape) - len(groups))
    rows.append(
      Row(
        name=jax.tree_util.keystr(path, simple=True, separator='/'),
        shape=tuple(x.shape),
        axes=tuple(
          '+'.join(axis for axis in group if mesh[axis] > 1) for group in groups
        ),
        bytes=x.dtype.itemsize * math.prod(x.shape),
        bytes_per_device=x.dtype.itemsize
        * math.prod(x.sharding.shard_shape(x.shape)),
      )
    )
  return Table(dict(leaves[0][1].sharding.mesh.shape), tuple(rows))


def platform() -> str:
  """'cpu', 'gpu' or 'tpu': of the mesh in force, else of JAX's default."""
  device = jax.sharding.get_abstract_mesh().abstract_device
  return device.platform if device else jax.default_backend()


def by_rows(
  function: Callable[[Any, jax.Array], jax.Array], params: Any, x_BL: jax.Array
) -> jax.Array:
  """function(params, x_BL), each device by itself on its own rows of a batch.

  Nothing but the gradient of `params` crosses the mesh in force. Where the mesh
  does not divide the batch, as when a model is made, every device computes all;
  batches to train and evaluate on are checked where they enter.

  Args:
    function: (params, x_BL) -> an array whose first axis is the batch.
    params: replicated.
    x_BL: split by its first axis, as is what comes back.
  """
  if jax.sharding.get_abstract_mesh().empty:
    return function(params, x_BL)
  rows = _dividing(x_BL, ('batch',))
  return jax.shard_map(
    function,
    in_specs=(PartitionSpec(), rows),
    out_specs=rows,
    check_vma=False,  # A kernel does not say along which axes it varies.
  )(params, x_BL)


def by_parts(
  function: Callable[..., jax.Array],
  arrays: tuple[jax.Array | None, ...],
  logical_axes: tuple[tuple[str | None, ...], ...],
) -> jax.Array:
  """function(*arrays), each device by itself on its own part of each.

  Nothing crosses the mesh in force. Along a dimension that the mesh does not
  divide, as one row of a prompt, every device computes all.

  Args:
    function: of the arrays, to one that is split as the first is.
    arrays: None for one that is not there.
    logical_axes: of the dimensions of each array.
  """
  if jax.sharding.get_abstract_mesh().empty:
    return function(*arrays)
  specs = tuple(
    None if x is None else _dividing(x, axes)
    for x, axes in zip(arrays, logical_axes, strict=True)
  )
  return jax.shard_map(
    function,
    in_specs=specs,
    out_specs=specs[0],
    check_vma=False,  # A kernel does not say along which axes it varies.
  )(*arrays)


def _dividing(x: jax.Array, axes: tuple[str | None, ...]) -> PartitionSpec:
  """`spec`, but of the dimensions alone that the mesh in force divides."""
  mesh = jax.sharding.get_abstract_mesh()
  return spec(
    tuple(
      None if length % _ways(mesh, axis) else axis
      for length, axis in zip(x.shape, axes, strict=False)
    )
  )
