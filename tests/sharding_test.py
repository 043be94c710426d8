"""The mesh, the one table of logical axes, and errors that name the remedy."""

import os

from flax import linen as nn
import jax
from jax.experimental import topologies
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

from leviathan import errors
from leviathan import sharding
from leviathan import state as state_lib

# Several processes may compile at once, and none asks the network for a TPU.
os.environ['ALLOW_MULTIPLE_LIBTPU_LOAD'] = '1'
os.environ['TPU_SKIP_MDS_QUERY'] = '1'


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


def chips(slices):
  """TPUs v5e that are not here, 16 in each slice."""
  pytest.importorskip('libtpu', reason='only Linux on x86-64 has libtpu')
  return topologies.get_topology_desc(
    'v5e:4x4', platform='tpu', num_slices=slices
  ).devices


@pytest.mark.parametrize(
  'sizes', [(2, -1, 1), (2, 8, 2), (8, 2, 2), (-1, 1, 1), (4, 1, 8)]
)
def test_only_data_crosses_from_slice_to_slice(sizes):
  devices = chips(2)
  mesh = sharding.make_mesh(config(*sizes), devices[::-1])
  assert set(mesh.devices.flat) == set(devices)
  data, fsdp, tensor = config(*sizes).sizes(32)
  assert mesh.devices.shape == (data, fsdp, tensor)
  slices = np.vectorize(lambda d: d.slice_index)(mesh.devices)
  # Each slice has one range of `data`, and all of the other axes there.
  expected = np.repeat([0, 1], data // 2)[:, None, None]
  np.testing.assert_array_equal(slices, np.broadcast_to(expected, slices.shape))


@pytest.mark.parametrize(
  'slices, sizes, nearest',
  [
    (2, (1, -1, 1), 2),
    (2, (1, 4, 8), 2),
    (2, (1, 1, 32), 2),
    # Of 3, 6, 12, 24 and 48; with `tensor` of 4 there is no 24.
    (3, (16, 3, 1), 12),
    (3, (8, 6, 1), 6),
    (3, (4, 3, 4), 3),
  ],
)
def test_a_mesh_that_would_cross_slices_otherwise_is_refused(
  slices, sizes, nearest
):
  with pytest.raises(errors.ConfigError) as caught:
    sharding.make_mesh(config(*sizes), chips(slices))
  message = str(caught.value)
  assert message.startswith(f'config.mesh.data={sizes[0]} does not divide')
  assert f'over {slices} slices' in message
  assert f'nearest that does is {nearest},' in message
  assert '\n' not in message


def test_sizes_that_split_a_tpus_own_axes_are_laid_over_one_slice():
  """Of a torus of 4 x 4 x 4 no axes make up 8 or 32."""
  pytest.importorskip('libtpu', reason='only Linux on x86-64 has libtpu')
  devices = topologies.get_topology_desc('v5p:4x4x4', platform='tpu').devices
  for sizes in ((1, 8, 8), (2, 32, 1)):
    mesh = sharding.make_mesh(config(*sizes), devices)
    assert mesh.devices.shape == sizes
    assert set(mesh.devices.flat) == set(devices)


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


@pytest.mark.parametrize('batch, local', [(4, (1, 3)), (3, (3, 3))])
def test_parts_are_computed_where_they_lie(batch, local):
  mesh = sharding.make_mesh(config(2, 2, 2))
  x_BH = np.arange(batch * 6).reshape(batch, 6)
  seen = []

  def function(x_BH, none, y_B):
    seen.append((x_BH.shape, none))
    return x_BH * y_B[:, None]

  with jax.set_mesh(mesh):
    found = jax.jit(
      lambda x, y: sharding.by_parts(
        function, (x, None, y), (('batch', 'heads'), (), ('batch',))
      )
    )(x_BH, np.arange(batch))
  np.testing.assert_array_equal(found, x_BH * np.arange(batch)[:, None])
  assert set(seen) == {(local, None)}


@pytest.mark.parametrize(
  'changes, sizes, name, nearest',
  [
    (dict(model__head_width=16), (1, 1, 4), 'blocks/attention/key_DHK', 4),
    (
      dict(model__head_width=8, model__mlp_width=66),
      (1, 2, 4),
      'blocks/mlp/down_FD',
      64,
    ),
  ],
)
@pytest.mark.parametrize('arm', ['tied', 'lev'])
def test_heads_and_mlp_that_the_mesh_does_not_divide_are_refused(
  arm, changes, sizes, name, nearest, tiny
):
  """So attention and MLP split over `tensor` as their parameters do."""
  parts = tiny.config(arm, **changes)
  mesh = jax.sharding.AbstractMesh(sizes, sharding.AXES)
  with pytest.raises(errors.ConfigError, match=f'^params/{name}: ') as caught:
    state_lib.abstract(parts.model.make(), parts.optimizer.make(), mesh)
  assert f'nearest length that does is {nearest},' in str(caught.value)


def table_of(config_):
  mesh = sharding.make_mesh(config(2, 2, 2))
  return sharding.table(
    state_lib.abstract(
      config_.model.make(), config_.optimizer.make(), mesh
    ).params
  )


# D = 32, F = 64, V = 512, 2 layers, 2 heads of 16; 4 bytes a number.
BLOCKS = 4 * 2 * (4 * 32 * 32 + 3 * 32 * 64)
NORMS = 4 * (2 * 2 * 32 + 32)
VOCABULARY = 4 * 512 * 32


def test_the_table_of_a_tied_model_by_hand(tiny):
  table = table_of(tiny.config('tied'))
  rows = {row.name: row for row in table.rows}
  assert table.mesh == {'data': 2, 'fsdp': 2, 'tensor': 2}
  assert rows['blocks/mlp/up_DF'] == sharding.Row(
    name='blocks/mlp/up_DF',
    shape=(2, 32, 64),
    axes=('', 'fsdp', 'tensor'),
    bytes=16384,
    bytes_per_device=4096,
  )
  assert rows['embedder/table_VD'].axes == ('tensor', 'fsdp')
  assert {name for name, row in rows.items() if row.is_replicated} == {
    'blocks/attention_norm/scale_D',
    'blocks/mlp_norm/scale_D',
    'final_norm/scale_D',
  }
  sharded = BLOCKS + VOCABULARY
  assert table.totals() == {
    'sharded': (sharded, sharded // 4),
    'replicated': (NORMS, NORMS),
    'total': (sharded + NORMS, sharded // 4 + NORMS),
  }


def test_the_table_shows_that_every_device_holds_all_of_lev(tiny):
  config_ = tiny.config('lev')
  table = table_of(config_)
  for row in table.rows:
    if row.name.startswith('embedder/'):
      assert row.is_replicated and row.bytes_per_device == row.bytes > 0
  lev = 4 * config_.model.embedder.count(512, 32)
  sharded = BLOCKS + VOCABULARY  # The head's.
  assert table.totals() == {
    'sharded': (sharded, sharded // 4),
    'replicated': (lev + NORMS, lev + NORMS),
    'total': (sharded + lev + NORMS, sharded // 4 + lev + NORMS),
  }


def test_an_axis_of_one_device_splits_nothing():
  mesh = sharding.make_mesh(config(8, 1, 1))
  boxes = boxed((8, 6), ('embed', 'mlp'))
  place = sharding.tree_shardings(boxes, mesh)['mlp']['up_DF']
  array = jax.ShapeDtypeStruct((8, 6), jnp.bfloat16, sharding=place)
  (row,) = sharding.table({'up_DF': array}).rows
  assert row.is_replicated and row.bytes == row.bytes_per_device == 96


def test_the_table_is_printed_and_is_json(tiny):
  table = table_of(tiny.config('tied'))
  lines = table.lines()
  assert len({len(line) for line in lines}) == 1
  (line,) = [line for line in lines if line.startswith('blocks/mlp/up_DF ')]
  assert line.split('  ', 1)[1].split() == [
    *('2', 'x', '32/fsdp', 'x', '64/tensor', '16,384', '4,096')
  ]
  assert lines[-1].split() == [
    'total',
    f'{BLOCKS + VOCABULARY + NORMS:,}',
    f'{(BLOCKS + VOCABULARY) // 4 + NORMS:,}',
  ]
  assert table.as_dict()['replicated']['bytes'] == NORMS
