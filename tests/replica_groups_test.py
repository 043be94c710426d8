"""All ways in which groups of devices are written."""

import pytest

from leviathan import replica_groups


@pytest.mark.parametrize(
  'written, expected',
  [
    ('replica_groups={{0,1},{2,3}}, x', [[0, 1], [2, 3]]),
    ('replica_groups={}, x', [[0, 1, 2, 3]]),
    ('replica_groups=[2,2]<=[4], x', [[0, 1], [2, 3]]),
    ('replica_groups=[2,2]<=[2,2]T(1,0), x', [[0, 2], [1, 3]]),
    ("replica_groups=mesh['a'=2,'b'=2] {'b'}, x", [[0, 1], [2, 3]]),
    ("replica_groups=mesh['a'=2,'b'=2] {'a'}, x", [[0, 2], [1, 3]]),
    ("replica_groups=mesh['a'=4] {'a'}, x", [[0, 1, 2, 3]]),
    ("replica_groups=mesh['a'=4] {'a':(2)2}, x", [[0, 1], [2, 3]]),
    ("replica_groups=mesh['a'=4] {'a':(1)2}, x", [[0, 2], [1, 3]]),
    (
      "replica_groups=mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}, x",
      [[0, 2], [1, 3]],
    ),
    (
      "replica_groups=mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'a'}, x",
      [[0, 1], [2, 3]],
    ),
    ('source_target_pairs={{0,1},{1,0}}, x', [[0, 1], [1, 0]]),
    ('a={_xla_megascale_target="{1,2}x{0:1}"}, x', [[0, 2], [1, 3]]),
    ('a={_xla_megascale_target="{1:2}x{0:1}"}, x', [[0, 2], [1, 3]]),
    ('a={_xla_megascale_target="{1:3}x{0:1}"}, x', None),
    ('replica_groups=~4, x', None),
    ("replica_groups=mesh['a'=2,'b'=2], device_ids=~4 {'a'}, x", None),
  ],
)
def test_groups_in_all_ways_of_writing(written, expected):
  assert replica_groups.groups(f'channel_id=1, {written}', 4) == expected


@pytest.mark.parametrize(
  'written, expected',
  [
    ('replica_groups={{0,1},{2,3}}', ('fsdp', 2)),
    ('replica_groups={{0,2},{1,3}}', ('data', 2)),
    ('replica_groups={{0,1,2,3}}', ('data+fsdp', 4)),
    ('replica_groups={{0,3},{1,2}}', ('?', 2)),
    ('replica_groups={{0},{1},{2},{3}}', ('', 1)),
    ('replica_groups=~4', ('?', None)),
    ('source_target_pairs={{0,1},{1,0},{2,3},{3,2}}', ('fsdp', 2)),
  ],
)
def test_groups_lie_along_axes_of_the_mesh(written, expected):
  assert replica_groups.axes(written, {'data': 2, 'fsdp': 2}) == expected
