"""Array aliases, the batch, and the legend of dimension letters.

A name's suffix gives its shape, one capital a dimension: `x_BLD`, `w_DHK`.

  B  batch, in sequences        V  vocabulary (rows padded where said)
  L  length, in tokens          D  model width
  T  tokens, B and L flattened  H  attention heads
  F  width of the MLP           K  width of one attention head
  E  width of a narrow table    M  hidden units of an embedder's MLP;
                                   of LEV its modes, S times R
  Q  items of a list: classes of tokens, curves
  P  points of a curve          X  a few arrays that are stacked
  Evaluation alone:
  R  rows of a dataset          S  draws of as many rows
  LEV alone:
  J  digits of a token id       N  base of the digits
  C  seed width (coordinates)   S  spline heads
  G  knots of a spline          R  rank
"""

from typing import Any
from typing import NamedTuple
from typing import TypeAlias

# jax.Array on the device, np.ndarray on the host: the same code serves both.
Array: TypeAlias = Any


class Batch(NamedTuple):
  """Sequences with their targets; the shift by one is already made.

  Attributes:
    inputs_BL: int32 token ids in [0, V).
    targets_BL: int32 ids of the token that follows each input.
    weights_BL: float32, 1 where the target counts and 0 where it is padding.
    segments_BL: int32, which document of its row each input belongs to, as 0,
      0, 1, 1, 1, 2; None where documents of a row may see each other. As an
      input an EOS begins a document, as a target it ends one, so that no target
      is predicted from another document.
  """

  inputs_BL: Array
  targets_BL: Array
  weights_BL: Array
  segments_BL: Array | None = None
