"""What every embedder is: a config that makes a Linen module.

The module maps ids_BL to x_BLD in float32. One that holds a table may be tied
to the head by giving it through `table()`.
"""

import dataclasses
from typing import Any
from typing import ClassVar

from flax import linen as nn
import jax
import numpy as np

from leviathan import errors


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedderConfig:
  """Base of the embedders' configs; `name` is the key in `EMBEDDERS`."""

  # Whether ids are read digit by digit, so that their order means something.
  reads_digits: ClassVar[bool] = False

  name: str

  def make(
    self, *, vocab_size: int, padded_vocab_size: int, width: int
  ) -> 'Embedder':
    """The module.

    Args:
      vocab_size: V; ids are below it.
      padded_vocab_size: rows of a table, if there is one: V or more, a multiple
        that meshes divide.
      width: D.

    Raises:
      ConfigError: no size of it fits V and D.
    """
    raise NotImplementedError

  def budget(self, vocab_size: int, width: int) -> int | None:
    """How many parameters it is matched to; None where it is to none."""
    del vocab_size, width

  def flops(self, vocab_size: int, width: int) -> int:
    """FLOPs of one token's forward pass, counted as in `leviathan.flops`.

    Those of the token's own way: what tokens of a batch share is not deducted,
    and lookups, sums of rows, norms and activations are not counted.
    """
    raise NotImplementedError

  def curves(self, params: Any) -> tuple[np.ndarray, np.ndarray] | None:
    """One-dimensional functions that were learned, to be looked at.

    Args:
      params: the embedder's.

    Returns:
      Points u_P and values y_SQP, Q functions for each of S heads; None where
      the embedder has no such parts.
    """
    del params


class Embedder(nn.Module):
  """Base of the embedders."""

  def __call__(self, ids_BL: jax.Array) -> jax.Array:
    """int32 ids in [0, V) -> float32 x_BLD."""
    raise NotImplementedError

  def table(self) -> jax.Array:
    """table_VD, float32 with padded rows, for a head that shares it.

    Raises:
      ConfigError: the embedder has no table.
    """
    raise errors.ConfigError(
      f"config.model.head.name='tied' needs a table, and "
      f'{type(self).__name__} has none; choose config.model.head.name='
      "'untied'"
    )
