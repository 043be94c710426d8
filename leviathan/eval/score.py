"""Scoring a dataset: sums of nll by class of token, a column a row.

Everything that is evaluated is such a sum: perplexity has one class, frequency
strata have one a bin. The sums of each row, a sequence of the dataset, are made
on the device and kept in float64 on the host, so that rows can be resampled;
the one division is the caller's.
"""

from collections.abc import Callable
from collections.abc import Iterable
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from leviathan import arrays
from leviathan import metrics
from leviathan import model as model_lib
from leviathan import sharding
from leviathan import step


class Scored(NamedTuple):
  """Sums of each row, with nll and tokens of shape (classes, rows), float64.

  Attributes:
    predicted: a token counts in the class of what is predicted.
    input: a token counts in the class of the input that it is predicted after,
      the last one of those that are seen.
  """

  predicted: metrics.Sums
  input: metrics.Sums

  def first(self, rows: int) -> 'Scored':
    """Of the first rows alone: without those that fill up the last batch."""
    return Scored(
      *(metrics.Sums(s.nll[:, :rows], s.tokens[:, :rows]) for s in self)
    )


# (params, batches, class_V, classes) -> Scored
Scorer = Callable[[Any, Iterable[arrays.Batch], np.ndarray, int], Scored]


def make(
  model: model_lib.Transformer, mesh: jax.sharding.Mesh, loss_chunks: int
) -> Scorer:
  """(params, batches, class_V, classes) -> Scored, the same in every process.

  `class_V` gives each token's class, in [0, classes); every token is in one.
  Rows come in the order of the batches of all processes, which deal them as
  `loader.eval_batches` does. Those that fill up the last batch have 0 tokens.

  `loss_chunks` are the parts that the sequences are scored in.
  """
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

  @functools.partial(jax.jit, out_shardings=whole)
  def sums_of_batch(params, batch, place_B, class_V, class_Q):
    nll_BL = step.forward(
      model, params, batch, z_loss=0.0, chunks=loss_chunks
    ).nll_BL

    def by_class(ids_BL):
      class_BL = jnp.take(class_V, ids_BL)
      member_QBL = class_BL == class_Q[:, None, None]
      member_QBL &= batch.weights_BL > 0
      nll_QB = jnp.sum(jnp.where(member_QBL, nll_BL, 0), axis=2)
      return nll_QB, jnp.sum(member_QBL, axis=2, dtype=jnp.float32)

    return by_class(batch.targets_BL), by_class(batch.inputs_BL), place_B

  def score(params, batches, class_V, classes):
    class_Q = np.arange(classes)
    found, pending = [np.zeros((2, 2, classes, 0))], []
    with jax.set_mesh(mesh):
      for batch in batches:
        rows = len(batch.inputs_BL)
        # A mesh may put the rows of one process between those of another.
        place_B = np.arange(rows, dtype=np.int32) + rows * jax.process_index()
        batch, place_B = to_mesh((batch, place_B), mesh)
        pending.append(sums_of_batch(params, batch, place_B, class_V, class_Q))
        # A batch is read after the next one has been dispatched.
        if len(pending) > 1:
          found.append(_in_order(pending.pop(0)))
    found += map(_in_order, pending)
    predicted, input_ = np.concatenate(found, axis=-1)
    return Scored(metrics.Sums(*predicted), metrics.Sums(*input_))

  return score


def _in_order(outputs: Any) -> np.ndarray:
  """(predicted or input, nll or tokens, classes, rows), with rows in order."""
  *sums, place_B = jax.device_get(outputs)
  return np.asarray(sums, np.float64)[..., np.argsort(place_B)]


def to_mesh(batch: Any, mesh: jax.sharding.Mesh) -> Any:
  """This process's rows as its share of the global batch, in any structure."""
  return jax.make_array_from_process_local_data(
    sharding.batch_sharding(mesh), batch
  )
