"""Which devices a collective of a compiled program joins, as text says it."""

from collections.abc import Mapping
import itertools
import math
import re

import numpy as np

UNKNOWN = '?'  # Axes of a group that fills none.


def axes(attributes: str, mesh: Mapping[str, int]) -> tuple[str, int | None]:
  """(mesh axes joined by '+', members of a group) of a collective.

  Args:
    attributes: of its instruction.
    mesh: {axis: devices}, in the order in which devices are numbered.

  Returns:
    UNKNOWN for the axes of groups that fill none, or cannot be read; None for
    the members of those that cannot.
  """
  found = groups(attributes, math.prod(mesh.values()))
  if found is None:
    return UNKNOWN, None
  sizes, used = tuple(mesh.values()), set()
  for group in found:
    places = np.unravel_index(group, sizes)
    used |= {axis for axis, at in zip(mesh, places, strict=True) if np.ptp(at)}
  members = len(found[0])
  along = [axis for axis in mesh if axis in used]
  whole = math.prod(mesh[axis] for axis in along) == members
  if not whole and 'source_target_pairs' not in attributes:
    return UNKNOWN, members
  return '+'.join(along), members


def groups(attributes: str, devices: int) -> list[list[int]] | None:
  """Which devices talk with which, by number; None if it cannot be read.

  Three ways to write that are known: '{{0,1},{2,3}}', '[2,2]<=[2,2]T(1,0)' and
  "mesh['a'=2,'b'=2] {'b'}"; after the brackets may stand the devices of the
  mesh in their order, ', device_ids=(0,2,1,3)' or ', device_ids=([2,2]T(1,0))'.
  Pairs of senders and receivers are groups of two. Between slices, which the
  first axis counts, '{1,2}x{0:3}' names slices and the devices of each.
  """
  if slices := re.search(r'_megascale_target="\{([\d,:]+)\}x', attributes):
    count = sum(b - a + 1 for a, b in _ranges(slices[1]))
    if devices % count:
      return None  # Of some slices only.
    return np.arange(devices).reshape(count, -1).T.tolist()
  if pairs := re.search(r'source_target_pairs=\{(.*?\})\}', attributes):
    found = [_numbers(g) for g in re.findall(r'\{([\d,]*)\}', pairs[1])]
    return [p for p in found if p[0] != p[1]] or found
  at = attributes.partition('replica_groups=')[2]
  if not at or at.startswith('{}'):
    return [list(range(devices))]
  if at.startswith('{{'):
    inner = at[1 : at.index('}}') + 1]
    return [_numbers(g) for g in re.findall(r'\{([\d,]+)\}', inner)]
  if listed := re.match(r'\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?', at):
    return _iota(listed[2], listed[3]).reshape(_numbers(listed[1])).tolist()
  if named := re.match(
    r'mesh\[([^\]]*)\](?:, device_ids=\((?:\[([\d,]+)\]T\(([\d,]+)\)|'
    r'([\d,]+))\))?\s*\{([^}]*)\}',
    at,
  ):
    axes_, lengths, order, ids, used = named.groups()
    found = np.arange(devices)
    if ids or lengths:
      found = np.array(_numbers(ids)) if ids else _iota(lengths, order)
    return _groups_of_mesh(axes_, found.ravel(), used)
  return None


def _iota(lengths: str, order: str | None) -> np.ndarray:
  """Numbers of devices in '[4,2]T(1,0)'."""
  ids = np.arange(math.prod(_numbers(lengths))).reshape(_numbers(lengths))
  return ids.transpose(_numbers(order)) if order else ids


def _groups_of_mesh(
  named: str, ids: np.ndarray, used: str
) -> list[list[int]] | None:
  """Of "'a'=2,'b'=4" and "'b'"; "'b':(2)2" is a part of an axis."""
  sizes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", named)}
  if math.prod(sizes.values()) != ids.size:
    return None
  lengths, chosen = [], []
  wanted = re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", used)
  for name, size in sizes.items():
    cuts = {1, size}
    parts = [(int(a), int(b)) for n, a, b in wanted if n == name and a]
    for before, length in parts:
      cuts |= {before, before * length}
    for low, high in itertools.pairwise(sorted(cuts)):
      whole = any(n == name and not a for n, a, _ in wanted)
      inside = any(a <= low and high <= a * b for a, b in parts)
      lengths.append(high // low)
      chosen.append(whole or inside)
  order = [i for i, c in enumerate(chosen) if not c]
  order += [i for i, c in enumerate(chosen) if c]
  members = math.prod(n for n, c in zip(lengths, chosen, strict=True) if c)
  return ids.reshape(lengths).transpose(order).reshape(-1, members).tolist()


def _ranges(text: str) -> list[tuple[int, int]]:
  """(first, last) of each in '1,4:6'."""
  ends = [part.split(':') for part in text.split(',')]
  return [(int(end[0]), int(end[-1])) for end in ends]


def _numbers(text: str) -> list[int]:
  return [int(n) for n in text.split(',') if n]
