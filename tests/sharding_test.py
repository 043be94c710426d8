"""The mesh, the one table of logical axes, and errors that name the remedy."""

from flax import linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from leviathan import errors
from leviathan import sharding


def config(data, fsdp, tensor):
  return sharding.MeshConfig(data=data, fsdp=fsdp, tensor=tensor)


@pytest.mark.parametrize(
  'sizes, devices, filled',
  [
    ((1, -1, 1), 8, (1, 8, 1)),
    ((-1, 2, 2), 8, (2, 2, 2)),
    ((2, 2, -1), 8, (2, 2, 2)),
    ((8, 1, -1), 8, (8, 1, 1)),
    ((1, -1, 1), 1, (1, 1, 1)),
    ((2, 3, 1), 6, (2, 3, 1)),
  ],
)
def test_minus_one_takes_the_devices_that_are_left(sizes, devices, filled):
  assert config(*sizes).sizes(devices) == filled


@pytest.mark.parametrize(
  'sizes, devices',
  [
    ((1, 4, 1), 8),
    ((2, 8, 1), 8),
    ((3, -1, 1), 8),
    ((16, -1, 1), 8),
    ((1, 1, 1), 8),
  ],
)
def test_sizes_that_do_not_fill_the_devices_are_refused(sizes, devices):
  with pytest.raises(errors.ConfigError, match=f'fill {devices} devices') as e:
    config(*sizes).sizes(devices)
  assert f"'data': {sizes[0]}" in str(e.value)
  assert '\n' not in str(e.value)


@pytest.mark.parametrize('sizes', [(-1, -1, 1), (0, 1, 1), (1, -2, 1)])
def test_sizes_without_a_meaning_are_refused(sizes):
  with pytest.raises(errors.ConfigError, match='config.mesh='):
    config(*sizes)


def test_the_mesh_has_the_three_axes_and_every_device_once():
  mesh = sharding.make_mesh(config(2, 2, 2))
  assert mesh.axis_names == ('data', 'fsdp', 'tensor')
  assert mesh.devices.shape == (2, 2, 2)
  assert set(mesh.devices.flat) == set(jax.devices())


def test_a_mesh_may_have_some_devices_only():
  mesh = sharding.make_mesh(config(1, 1, 1), jax.devices()[3:4])
  assert list(mesh.devices.flat) == jax.devices()[3:4]


def test_rules_name_mesh_axes_and_each_logical_axis_once():
  names = [name for name, _ in sharding.RULES]
  assert len(names) == len(set(names))
  for _, axes in sharding.RULES:
    assert set(axes or ()) <= set(sharding.AXES)


@pytest.mark.parametrize(
  'axes, expected',
  [
    (('embed', 'heads', None), P(('fsdp',), ('tensor',), None)),
    (('vocab', 'embed'), P(('tensor',), ('fsdp',))),
    (('layers', 'norm'), P(None, None)),
    (('batch', None, 'vocab'), P(('data', 'fsdp'), None, ('tensor',))),
  ],
)
def test_logical_axes_lie_on_mesh_axes_by_hand(axes, expected):
  assert sharding.spec(axes) == expected


@pytest.mark.parametrize(
  'axes', [('heads', 'mlp'), ('vocab', None, 'heads'), ('batch', 'embed')]
)
def test_two_dimensions_on_one_mesh_axis_raise(axes):
  with pytest.raises(ValueError, match='two dimensions on one mesh axis'):
    sharding.spec(axes)


def test_the_batch_is_split_over_data_and_fsdp():
  mesh = sharding.make_mesh(config(2, 2, 2))
  x_BL = jax.device_put(
    np.arange(24).reshape(8, 3), sharding.batch_sharding(mesh)
  )
  rows = {s.data.tobytes() for s in x_BL.addressable_shards}
  assert {s.data.shape for s in x_BL.addressable_shards} == {(2, 3)}
  assert len(rows) == 4  # Each quarter twice, along `tensor`.


def test_without_a_mesh_an_activation_is_left_alone():
  x_BLD = jnp.ones((2, 3, 4))
  assert sharding.constrain(x_BLD, 'batch', None, None) is x_BLD


def test_on_a_mesh_an_activation_is_pinned():
  mesh = sharding.make_mesh(config(1, 4, 2))
  with jax.set_mesh(mesh):
    pinned = jax.jit(lambda x: sharding.constrain(x, 'batch', None, 'vocab'))(
      jnp.ones((4, 3, 6))
    )
  assert {s.data.shape for s in pinned.addressable_shards} == {(1, 3, 3)}


def boxed(shape, axes):
  array = jax.ShapeDtypeStruct(shape, jnp.float32)
  return {'mlp': {'up_DF': nn.LogicallyPartitioned(array, axes)}}


def test_a_tree_is_laid_out_by_its_names():
  mesh = sharding.make_mesh(config(1, 4, 2))
  tree = boxed((8, 6), ('embed', 'mlp')) | {
    'step': jax.ShapeDtypeStruct((), jnp.int32)
  }
  shardings = sharding.tree_shardings(tree, mesh)
  assert shardings['mlp']['up_DF'].shard_shape((8, 6)) == (2, 3)
  assert shardings['step'].is_fully_replicated


@pytest.mark.parametrize(
  'shape, axis, length, parts, nearest',
  [
    ((16, 7), 'mlp', 7, 2, 8),
    ((17, 6), 'embed', 17, 4, 16),
    ((3, 6), 'embed', 3, 4, 4),
    ((1, 6), 'embed', 1, 4, 4),
    ((23, 6), 'embed', 23, 4, 24),
  ],
)
def test_a_length_that_does_not_divide_is_refused_with_the_nearest_legal_one(
  shape, axis, length, parts, nearest
):
  mesh = sharding.make_mesh(config(1, 4, 2))
  with pytest.raises(errors.ConfigError) as caught:
    sharding.tree_shardings(boxed(shape, ('embed', 'mlp')), mesh)
  message = str(caught.value)
  assert message.startswith('mlp/up_DF: ')
  assert f'{axis!r} of length {length}' in message
  assert f'{parts} devices' in message
  assert f'nearest length that does is {nearest},' in message
  assert '\n' not in message


def test_a_batch_that_the_mesh_does_not_divide_is_computed_by_all():
  mesh = sharding.make_mesh(sharding.MeshConfig(data=-1, fsdp=1, tensor=1))
  with jax.set_mesh(mesh):
    found = jax.jit(lambda x, y: sharding.by_rows(lambda x, y: x * y, x, y))(
      2, jnp.arange(3)
    )
  np.testing.assert_array_equal(found, [0, 2, 4])
  assert len(found.sharding.device_set) == 8
