"""Counting parameters, by component, from shapes alone."""

from collections.abc import Mapping
from collections.abc import Sequence
import math
from typing import Any

import jax

from leviathan import head

COMPONENTS = {
  'embedder': 'input',
  'blocks': 'backbone',
  'final_norm': 'backbone',
  'head': 'head',
}


def shapes(params: Any) -> dict[str, list[int]]:
  """{'blocks/mlp/gate_DF': [16, 640, 1712], ...}."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(params)
  return {
    jax.tree_util.keystr(path, simple=True, separator='/'): list(leaf.shape)
    for path, leaf in leaves
  }


def count(
  shapes_: Mapping[str, Sequence[int]], vocab_size: int
) -> dict[str, int]:
  """Parameters of the model as defined, by component.

  Rows that only pad the vocabulary are not parameters and counted apart.

  Args:
    shapes_: what `shapes` gives, or a run's manifest.
    vocab_size: V.

  Returns:
    {'input', 'backbone', 'norms', 'head', 'total', 'padding'}; norms are those
    of the backbone, which counts them too.
  """
  names = ('input', 'backbone', 'norms', 'head', 'total', 'padding')
  counts = {name: 0 for name in names}
  padding_rows = head.padded_rows(vocab_size) - vocab_size
  for path, shape in shapes_.items():
    component = COMPONENTS[path.split('/')[0]]
    size = math.prod(shape)
    # A name's suffix gives its dimensions: `table_VD` has V rows.
    has_rows = 'V' in path.rpartition('_')[2]
    padding = padding_rows * math.prod(shape[1:]) if has_rows else 0
    counts[component] += size - padding
    counts['total'] += size - padding
    counts['padding'] += padding
    if component == 'backbone' and path.endswith('norm/scale_D'):
      counts['norms'] += size
  return counts


def input_parts(
  shapes_: Mapping[str, Sequence[int]], vocab_size: int
) -> dict[str, int]:
  """Parameters of each array of the input, without rows that only pad."""
  parts = {}
  for path, shape in shapes_.items():
    if COMPONENTS[path.split('/')[0]] == 'input':
      counts = count({path: shape}, vocab_size)
      parts[path.partition('/')[2]] = counts['input']
  return parts
