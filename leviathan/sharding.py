"""The mesh, and which mesh axes a logical axis lies on.

Parameters and activations name logical axes; `RULES` alone knows the mesh.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math
from typing import Any

from flax import linen as nn
import jax
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
    """(data, fsdp, tensor) for `num_devices`, -1 filled in."""
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
  """The mesh over `devices`, by default over all there are."""
  devices = devices or jax.devices()
  return jax.make_mesh(
    config.sizes(len(devices)),
    AXES,
    axis_types=(AxisType.Auto,) * len(AXES),
    devices=devices,
  )


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
  """Pins an activation to the mesh in force; without a mesh, `x` itself."""
  if jax.sharding.get_abstract_mesh().empty:
    return x
  return jax.lax.with_sharding_constraint(x, spec(logical_axes))


def batch_sharding(mesh: jax.sharding.Mesh) -> NamedSharding:
  """Of arrays whose first dimension is the batch."""
  return NamedSharding(mesh, spec(('batch',)))


def tree_shardings(boxed: Any, mesh: jax.sharding.Mesh) -> Any:
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
