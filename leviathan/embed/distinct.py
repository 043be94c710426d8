"""The distinct ids of a batch: equal ids have equal embeddings.

Of real text, 4096 tokens have some 1000 and 262,144 some 10,000. They are found
with fixed shapes, so it works under `jit`, and without sorting: a mark for each
id of the vocabulary, and a running count of the marks. On a CPU, for 262,144
tokens, that takes a thirtieth of the time of a sort, and less than half of what
the host would need to prepare them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Distinct(NamedTuple):
  """The ids of a batch, each once.

  Attributes:
    ids_T: the distinct ids in rising order, then copies of one of them.
    count: int32, how many are distinct.
    inverse_T: where each token's id stands in `ids_T`.
  """

  ids_T: jax.Array
  count: jax.Array
  inverse_T: jax.Array


def find(ids_T: jax.Array, limit: int) -> Distinct:
  """The distinct ids among `ids_T`, all of them in [0, limit)."""
  marks_V = jnp.zeros(limit, jnp.int32).at[ids_T].set(1)
  totals_V = _running_sum(marks_V)
  inverse_T = jnp.take(totals_V, ids_T) - 1
  return Distinct(
    ids_T=jnp.full_like(ids_T, ids_T[0]).at[inverse_T].set(ids_T),
    count=totals_V[-1],
    inverse_T=inverse_T,
  )


def _running_sum(x_V: jax.Array) -> jax.Array:
  """`cumsum` in rows, then over them: a TPU compiles the plain one for 4 s."""
  rows_XY = jnp.pad(x_V, (0, -len(x_V) % 1024)).reshape(-1, 1024)
  within_XY = jnp.cumsum(rows_XY, axis=1)
  totals_X = within_XY[:, -1]
  before_X = jnp.cumsum(totals_X) - totals_X
  return (before_X[:, None] + within_XY).reshape(-1)[: len(x_V)]
