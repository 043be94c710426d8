"""Scoring a dataset: sums of nll by class of the predicted token.

Everything that is evaluated is such a sum: perplexity has one class, frequency
strata have one a bin. The sums are made on the device over the whole mesh and
added up in float64 on the host; the one division is the caller's.
"""

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from leviathan import arrays
from leviathan import metrics
from leviathan import model as model_lib
from leviathan import sharding
from leviathan import step

Scorer = Callable[[Any, Iterable[arrays.Batch], np.ndarray], metrics.Sums]


def make(
  model: model_lib.Transformer, mesh: jax.sharding.Mesh, loss_chunks: int
) -> Scorer:
  """(params, batches, class_V) -> Sums of shape (number of classes,).

  `class_V` gives each token's class, 0, 1, ...; every token is in one.
  `loss_chunks` are the parts that the sequences are scored in.
  """

  @jax.jit
  def sums_of_batch(params, batch, class_V, class_Q):
    nll_BL = step.forward(
      model, params, batch, z_loss=0.0, chunks=loss_chunks
    ).nll_BL
    class_BL = jnp.take(class_V, batch.targets_BL)
    member_QBL = (class_BL == class_Q[:, None, None]) * batch.weights_BL
    return metrics.Sums(
      nll=jnp.sum(member_QBL * nll_BL, axis=(1, 2)),
      tokens=jnp.sum(member_QBL, axis=(1, 2)),
    )

  def score(params, batches, class_V):
    count = int(class_V.max()) + 1
    class_Q = np.arange(count)
    total = metrics.Sums(np.zeros(count), np.zeros(count))
    with jax.set_mesh(mesh):
      for batch in batches:
        sums = sums_of_batch(params, to_mesh(batch, mesh), class_V, class_Q)
        total = metrics.Sums(
          *(
            a + np.asarray(b, np.float64)
            for a, b in zip(total, sums, strict=True)
          )
        )
    return total

  return score


def to_mesh(batch: arrays.Batch, mesh: jax.sharding.Mesh) -> arrays.Batch:
  """This process's rows as its share of the global batch."""
  return jax.make_array_from_process_local_data(
    sharding.batch_sharding(mesh), batch
  )
