"""Slices by name, and that figures are those of the compiler of TPUs."""

import os
import re

import jax
from jax.experimental import topologies
import jax.numpy as jnp
import pytest

from leviathan import chips
from leviathan import errors

# Several processes may ask libtpu at once, and none the network for a TPU.
os.environ['ALLOW_MULTIPLE_LIBTPU_LOAD'] = '1'
os.environ['TPU_SKIP_MDS_QUERY'] = '1'


@pytest.mark.parametrize(
  'text, slices, devices, name',
  [
    ('v5e:8x8', 1, 64, 'v5e:8x8'),
    ('v5e:1x1', 1, 1, 'v5e:1x1'),
    ('v5e:16x16', 2, 512, '2xv5e:16x16'),
    ('2xv5e:16x16', 1, 512, '2xv5e:16x16'),
    ('v5p:4x4x4', 1, 64, 'v5p:4x4x4'),
    ('v5p:4x4x12', 1, 192, 'v5p:4x4x12'),
    ('tpu7x:2x2x1', 1, 8, 'tpu7x:2x2x1'),  # A chip is two devices.
    ('cpu:8', 1, 8, 'cpu:8'),
  ],
)
def test_a_topology_is_read_and_said_alike(text, slices, devices, name):
  found = chips.parse(text, slices)
  assert (found.devices, str(found)) == (devices, name)


@pytest.mark.parametrize('chip', chips.CHIPS.values(), ids=lambda c: c.name)
def test_slices_that_are_sold_are_read_and_come_smallest_first(chip):
  sizes = [chips.parse(f'{chip.name}:{s}').chips for s in chip.shapes]
  assert sizes == sorted(sizes) and sizes[-1] <= chip.most
  assert chip.usable < chip.hbm


@pytest.mark.parametrize(
  'text, slices, said',
  [
    ('v5:2x2', 1, "there is no chip 'v5'; did you mean v5p?"),
    ('h100:8', 1, "there is no chip 'h100'; choose one of cpu, tpu7x, v4"),
    ('v5e:32x8', 1, 'no such slice of v5e; the nearest is v5e:16x16'),
    ('v5e:3x3', 1, 'no such slice of v5e; the nearest is v5e:2x4'),
    ('v5e:64', 1, 'the nearest is v5e:8x8'),
    ('v5e:2x2x1', 1, 'the nearest is v5e:2x2'),
    ('v5e:axb', 1, 'the nearest is v5e:1x1'),
    ('v5p:4x4', 1, 'the nearest is v5p:2x2x4'),
    ('v5p:4x4x6', 1, ', and any multiples of 4 up to 6144 chips)'),
    ('v4:16x16x24', 1, 'multiples of 4 up to 4096 chips)'),
    ('v4:64x64x64', 1, 'the nearest is v4:16x16x16'),
    ('v5e', 1, 'is not CHIP:SIDES'),
    ('cpu:2x2', 1, 'give cpu:8'),
    ('cpu:8', 2, 'give cpu:8'),
    ('v5e:2x2', 0, '--num_slices=0'),
    ('2xv5e:2x2', 3, '--num_slices=3'),
  ],
)
def test_what_does_not_exist_is_refused_with_the_nearest(text, slices, said):
  with pytest.raises(errors.ConfigError) as caught:
    chips.parse(text, slices)
  assert said in str(caught.value) and '\n' not in str(caught.value)


@pytest.mark.parametrize('chip', chips.CHIPS.values(), ids=lambda c: c.name)
def test_the_compiler_knows_the_chip_and_gives_a_program_as_much(chip):
  pytest.importorskip('libtpu', reason='only Linux on x86-64 has libtpu')
  topology = chips.parse(f'{chip.name}:{chip.shapes[0]}')
  devices = topologies.get_topology_desc(
    topology.name, platform='tpu', **topology.options
  ).devices
  assert len(devices) == topology.devices
  assert devices[0].device_kind == chip.device_kind
  sharding = jax.sharding.SingleDeviceSharding(devices[0])
  x_MN = jax.ShapeDtypeStruct((4 * 10**5, 2 * 10**5), jnp.float32)
  x_MN = x_MN.update(sharding=sharding)
  with pytest.raises(jax.errors.JaxRuntimeError) as caught:
    jax.jit(lambda x: (x @ x.T) @ x).lower(x_MN).compile()
  found = re.search(r'available HBM \(([\d.]+)G\)', str(caught.value))
  assert chip.usable == int(float(found[1]) * chips.GIB)


def test_peaks_are_known_by_the_device_s_name():
  assert chips.peak('TPU v5 lite') == 197e12
  assert chips.peak('NVIDIA H200') == 989e12
  assert chips.peak('cpu') is None
