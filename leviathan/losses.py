"""The one loss; training and every evaluation reduce it.

`loss` goes through the tokens in parts and makes the gradients in the same
pass, so that no more than one part's logits ever exist. `whole` is its plain
twin.
"""

import functools
import math
from typing import Any
from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
import optax

from leviathan import sharding


class Loss(NamedTuple):
  """What the tokens of a batch cost, in nats, in float32.

  Attributes:
    objective: what is minimised: the sum over all tokens of their weight times
      nll and z-loss.
    nll_BL: negative log-likelihood of each target; carries no gradient.
    z_loss_BL: z-loss of each target, its coefficient times the square of the
      log of the sum of the exponentials of the logits, which keeps that sum
      near 1 (PaLM, arXiv 2204.02311, section 5); carries no gradient.
  """

  objective: jax.Array
  nll_BL: jax.Array
  z_loss_BL: jax.Array


def token_nll(logits_BLV: jax.Array, targets_BL: jax.Array) -> jax.Array:
  """Negative log-likelihood of each target, in nats, in float32.

  Args:
    logits_BLV: scores; padded columns hold the lowest finite number.
    targets_BL: int32 ids in [0, V); checked where data enter, not here.

  Returns:
    nll_BL.
  """
  return optax.softmax_cross_entropy_with_integer_labels(
    logits_BLV.astype(jnp.float32), targets_BL
  )


def logits(x_BLD: jax.Array, w_VD: jax.Array, vocab_size: int) -> jax.Array:
  """Logits of every token of the vocabulary.

  Args:
    x_BLD: outputs of the last norm, in the compute type.
    w_VD: the head's matrix in the same type; rows may be padded.
    vocab_size: how many of its rows are tokens.

  Returns:
    logits_BLV over all rows, accumulated and returned in float32; those of
    padded rows are the lowest that there are, and so have no probability.
  """
  logits_BLV = jnp.einsum(
    'BLD,VD->BLV', x_BLD, w_VD, preferred_element_type=jnp.float32
  )
  logits_BLV = sharding.constrain(logits_BLV, 'batch', None, 'vocab')
  if w_VD.shape[0] == vocab_size:
    return logits_BLV  # A fifth of a step's time on a CPU, at V = 16,384.
  return _without_padding(logits_BLV, jnp.arange(w_VD.shape[0]), vocab_size)


def _without_padding(logits_xV, ids_V, vocab_size):
  lowest = jnp.finfo(logits_xV.dtype).min
  return jnp.where(ids_V < vocab_size, logits_xV, lowest)


def loss(
  x_BLD: jax.Array,
  w_VD: jax.Array,
  targets_BL: jax.Array,
  weights_BL: jax.Array,
  *,
  vocab_size: int,
  z_loss: float,
  chunks: int,
) -> Loss:
  """What predicting the targets costs: a part at a time, gradients included.

  A token's gradient needs its own logits alone, so both gradients of the
  objective are made while they are there: three matrix products a token, as
  many as without parts. The backward pass only scales them.

  On a mesh each device has its own rows and its own part of the vocabulary. The
  matrix is gathered once before the parts, and its gradient summed once after.

  Args:
    x_BLD: hidden states, in the type that is computed in.
    w_VD: the head's float32 matrix, which may have rows that only pad.
    targets_BL: int32 ids in [0, V); checked where data enter, not here.
    weights_BL: float32, what each target counts.
    vocab_size: V.
    z_loss: coefficient of the z-loss.
    chunks: parts, which must divide L; 1 is whole at once.

  Returns:
    The loss, of which `objective` is to be differentiated, by x and w.
  """
  return _chunked(
    x_BLD, w_VD, targets_BL, weights_BL, vocab_size, z_loss, chunks
  )


def whole(
  x_BLD: jax.Array,
  w_VD: jax.Array,
  targets_BL: jax.Array,
  weights_BL: jax.Array,
  *,
  vocab_size: int,
  z_loss: float,
) -> Loss:
  """See `loss`: by way of all logits, differentiated by JAX."""
  logits_BLV = logits(x_BLD, w_VD.astype(x_BLD.dtype), vocab_size)
  nll_BL = token_nll(logits_BLV, targets_BL)
  z_loss_BL = jnp.zeros_like(nll_BL)
  if z_loss:
    z_loss_BL = z_loss * jax.nn.logsumexp(logits_BLV, axis=-1) ** 2
  return _reduce(nll_BL, z_loss_BL, weights_BL)


def _reduce(nll_BL, z_loss_BL, weights_BL):
  objective = jnp.sum(weights_BL * (nll_BL + z_loss_BL))
  return Loss(
    objective, lax.stop_gradient(nll_BL), lax.stop_gradient(z_loss_BL)
  )


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def _chunked(
  x_BLD, w_VD, targets_BL, weights_BL, vocab_size, z_loss, chunks
) -> Loss:
  nll_BL, z_loss_BL, _ = _by_shards(
    (x_BLD, w_VD, targets_BL, weights_BL),
    vocab_size=vocab_size,
    z_loss=z_loss,
    chunks=chunks,
    with_gradients=False,
  )
  return _reduce(nll_BL, z_loss_BL, weights_BL)


def _forward(x_BLD, w_VD, targets_BL, weights_BL, vocab_size, z_loss, chunks):
  nll_BL, z_loss_BL, gradients = _by_shards(
    (x_BLD, w_VD, targets_BL, weights_BL),
    vocab_size=vocab_size,
    z_loss=z_loss,
    chunks=chunks,
    with_gradients=True,
  )
  return _reduce(nll_BL, z_loss_BL, weights_BL), gradients


def _backward(vocab_size, z_loss, chunks, gradients, cotangent: Loss):
  del vocab_size, z_loss, chunks
  dx_BLD, dw_VD = gradients
  scale = cotangent.objective
  return (dx_BLD * scale).astype(dx_BLD.dtype), dw_VD * scale, None, None


_chunked.defvjp(_forward, _backward)


def _by_shards(arguments, *, with_gradients, **settings):
  """`_shard`, each device with its own rows and part of the vocabulary."""
  function = functools.partial(
    _shard, with_gradients=with_gradients, **settings
  )
  if jax.sharding.get_abstract_mesh().empty:
    return function(*arguments)
  rows = sharding.spec(('batch',))
  matrix = sharding.spec(('vocab', 'embed'))
  return jax.shard_map(
    function,
    in_specs=(rows, matrix, rows, rows),
    out_specs=(rows, rows, (rows, matrix) if with_gradients else None),
    check_vma=False,
  )(*arguments)


def _axes(logical_axis: str) -> tuple[str, ...]:
  """Mesh axes to reduce over: without a mesh, or over one device, none.

  XLA copies what a single device reduces by itself, here the whole matrix.
  """
  sizes = jax.sharding.get_abstract_mesh().shape
  axes = sharding.mesh_axes(logical_axis)
  return tuple(axis for axis in axes if sizes.get(axis, 1) > 1)


def _shard(
  x_BLD,
  w_VD,
  targets_BL,
  weights_BL,
  *,
  vocab_size: int,
  z_loss: float,
  chunks: int,
  with_gradients: bool,
) -> tuple[jax.Array, jax.Array, Any]:
  """nll_BL, z_loss_BL and (dx_BLD, dw_VD) of the objective, or None.

  All arrays are one device's own.
  """
  embed = _axes('embed')
  w_VD = lax.all_gather(w_VD.astype(x_BLD.dtype), embed, axis=1, tiled=True)
  length = math.prod(targets_BL.shape) // chunks
  # Any cut will do, since no token's loss depends on another; this one moves
  # nothing.
  parts = tuple(
    array.reshape(chunks, length, *array.shape[2:])
    for array in (x_BLD, targets_BL, weights_BL)
  )
  chunk = functools.partial(
    _chunk,
    w_VD,
    vocab_size=vocab_size,
    z_loss=z_loss,
    with_gradients=with_gradients,
  )

  def add(dw_VD, tokens):
    *of_tokens, more_VD = chunk(tokens)
    return jax.tree.map(jnp.add, dw_VD, more_VD), of_tokens

  # The first part begins the sum: of one part alone, nothing is added to it.
  *first, dw_VD = chunk(jax.tree.map(lambda a: a[0], parts))
  dw_VD, rest = lax.scan(add, dw_VD, jax.tree.map(lambda a: a[1:], parts))
  nll, z, dx = jax.tree.map(
    lambda a, b: jnp.concatenate([a[None], b]), first, rest
  )
  nll_BL, z_loss_BL = (a.reshape(targets_BL.shape) for a in (nll, z))
  if dx is None:
    return nll_BL, z_loss_BL, None
  dx_BLD = lax.psum(dx.reshape(x_BLD.shape), _axes('vocab'))
  # Scattered first: what then goes over the other axes is smaller.
  dw_VD = lax.psum_scatter(dw_VD, embed, scatter_dimension=1, tiled=True)
  others = tuple(axis for axis in _axes('batch') if axis not in embed)
  return nll_BL, z_loss_BL, (dx_BLD, lax.psum(dw_VD, others))


def _chunk(
  w_VD, tokens, *, vocab_size: int, z_loss: float, with_gradients: bool
):
  """Some tokens against the device's part of the vocabulary.

  Args:
    w_VD: that part, in the type that is computed in.
    tokens: x_TD, targets_T and weights_T.
    vocab_size: V of all parts, without padding.
    z_loss: coefficient.
    with_gradients: whether to make them.

  Returns:
    nll_T, z_loss_T, dx_TD, which is this part's share, and dw_VD; None for
    gradients that are not made.
  """
  x_TD, targets_T, weights_T = tokens
  rows, axes = w_VD.shape[0], _axes('vocab')
  ids_V = lax.axis_index(axes) * rows + jnp.arange(rows)
  logits_TV = jnp.einsum(
    'TD,VD->TV', x_TD, w_VD, preferred_element_type=jnp.float32
  )
  if rows * lax.axis_size(axes) != vocab_size:
    logits_TV = _without_padding(logits_TV, ids_V, vocab_size)
  top_T, exp_TV, sum_T, target_T = _over_vocabulary(
    logits_TV, targets_T - ids_V[0], axes
  )
  lse_T = top_T + jnp.log(sum_T)
  is_token_T = (targets_T >= 0) & (targets_T < vocab_size)
  nll_T = jnp.where(is_token_T, lse_T - target_T, jnp.nan)
  z_loss_T = z_loss * lse_T**2
  if not with_gradients:
    return nll_T, z_loss_T, None, None
  # The exponentials again: they are what takes time, beside the products.
  scale_T = weights_T * (1 + 2 * z_loss * lse_T) / sum_T
  d_TV = scale_T[:, None] * exp_TV
  d_TV -= jnp.where(ids_V == targets_T[:, None], weights_T[:, None], 0)
  d_TV = d_TV.astype(x_TD.dtype)
  dx_TD = jnp.einsum('TV,VD->TD', d_TV, w_VD)
  dw_VD = jnp.einsum(
    'TV,TD->VD', d_TV, x_TD, preferred_element_type=jnp.float32
  )
  return nll_T, z_loss_T, dx_TD, dw_VD


def _over_vocabulary(logits_TV, targets_T, axes):
  """(top_T, exp_TV, sum_T, target_T): a softmax's parts, over all shards.

  `top_T` is each token's highest logit, `exp_TV` the exponentials of what is
  below it, in this shard, and `sum_T` their sum. `targets_T` are counted from
  the shard's first row; of a target that is in no shard the logit is 0.
  """
  top_T = lax.pmax(jnp.max(logits_TV, axis=-1), axes)
  exp_TV = jnp.exp(logits_TV - top_T[:, None])
  rows = logits_TV.shape[-1]
  here_T = (targets_T >= 0) & (targets_T < rows)
  column_T1 = jnp.clip(targets_T, 0, rows - 1)[:, None]
  target_T = jnp.take_along_axis(logits_TV, column_T1, axis=-1)[:, 0]
  target_T = jnp.where(here_T, target_T, 0)
  sum_T, target_T = lax.psum((jnp.sum(exp_TV, axis=-1), target_T), axes)
  return top_T, exp_TV, sum_T, target_T
