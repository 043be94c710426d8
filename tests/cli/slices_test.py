"""Names of slices: what they are, and what a compile calls them."""

import math

import pytest

from leviathan import errors
from leviathan.cli import slices


@pytest.mark.parametrize(
  'name, topology, chips, several',
  [
    ('v5litepod-8', 'v5e:2x4', 8, False),
    ('v5litepod-16', 'v5e:4x4', 16, True),
    ('v5litepod-64', 'v5e:8x8', 64, True),
    ('v6e-1', 'v6e:1x1', 1, False),
    ('v6e-256', 'v6e:16x16', 256, True),
    ('v5p-8', 'v5p:2x2x1', 4, False),
    ('v5p-16', 'v5p:2x2x2', 8, True),
    ('v5p-128', 'v5p:4x4x4', 64, True),
    ('v4-8', 'v4:2x2x1', 4, False),
    ('v4-32', 'v4:2x2x4', 16, True),
    ('tpu7x-128', 'tpu7x:4x4x4', 64, True),
    ('v5p-12288', 'v5p:16x16x24', 6144, True),
  ],
)
def test_a_name_counts_cores_and_means_a_topology(
  name, topology, chips, several
):
  found = slices.Slices(accelerator=name)
  assert found.topology == topology
  assert found.chips == chips
  assert found.several_hosts == several
  assert slices.Slices(accelerator=name, count=2).several_hosts


@pytest.mark.parametrize(
  'name, pods', [('v6e-1', 1), ('v6e-4', 1), ('v6e-8', 2), ('v5litepod-8', 2),
                 ('v5p-8', 1), ('v5p-16', 2), ('tpu7x-8', 1)]
)  # fmt: skip
def test_gke_puts_at_most_four_chips_on_a_host(name, pods):
  assert slices.Slices(accelerator=name).several_pods == (pods > 1)
  assert slices.Slices(accelerator=name, count=2).several_pods


def test_a_topology_has_as_many_chips_as_its_name_says():
  for kind in slices.KINDS.values():
    for chips, topology in kind.topologies.items():
      assert math.prod(map(int, topology.split('x'))) == chips


@pytest.mark.parametrize(
  'name, match',
  [
    ('v5litepod', 'is no size of v5litepod; give one of v5litepod-1, '),
    ('v5litepod-63', 'v5litepod-64'),
    ('v5p-4', 'give one of v5p-8, '),
    ('v5e-64', 'give one of v4, v5litepod, v5p, v6e, tpu7x'),
    ('v5litepods-8', 'did you mean v5litepod'),
    ('v4-8-8', 'v4-8'),
    ('v4-12288', 'v4-8192$'),  # The largest.
  ],
)
def test_another_name_is_refused_with_those_that_there_are(name, match):
  with pytest.raises(errors.ConfigError, match=match) as caught:
    slices.Slices(accelerator=name)
  assert f'--accelerator={name}' in str(caught.value)
