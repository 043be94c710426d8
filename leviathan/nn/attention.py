"""Causal multi-head self-attention with rotary positions, no biases.

Scores, softmax and mean are one function of queries, keys and values with three
implementations: plain XLA, which holds the scores of all pairs; and two kernels
that never do, splash on TPUs (Pallas) and cuDNN's on NVIDIA GPUs.
"""

from collections.abc import Callable
import functools
import logging
from typing import NamedTuple

from flax import linen as nn
import jax
from jax.experimental.pallas.ops.tpu import splash_attention
import jax.numpy as jnp

from leviathan import errors
from leviathan import sharding
from leviathan.nn import initializers
from leviathan.nn import rope

LANES = 128  # Splash takes lengths in blocks of this many, and multiples.
BLOCK = 512  # The largest of them that it is given.


class Past(NamedTuple):
  """Keys and values of inputs; slot i holds those of position i, turned.

  Of a whole model they are stacked by layers, k_XBLHK and v_XBLHK.
  """

  k_BLHK: jax.Array
  v_BLHK: jax.Array


class Attention(nn.Module):
  """Full multi-head attention; heads of width `head_width` fill the model's."""

  head_width: int
  layers: int
  dtype: jnp.dtype
  implementation: str = 'auto'  # see `attend`

  @nn.compact
  def __call__(
    self,
    x_BLD: jax.Array,
    positions: jax.Array,
    segments_BL: jax.Array | None = None,
    past: Past | None = None,
  ) -> tuple[jax.Array, Past]:
    """x_BLD -> x_BLD; input i sees inputs 0..i, those of its segment if given.

    Args:
      x_BLD: the stream.
      positions: int32, (L,) or (B, L).
      segments_BL: int32, or None where a row is one segment.
      past: what came before. x_B1D then holds the one input that follows in
        each row, at positions_B1, and sees the slots before its own alone.

    Returns:
      x_BLD, and the keys and values of these inputs.
    """
    width = x_BLD.shape[-1]
    heads = width // self.head_width

    def project(name):
      w_DHK = self.param(
        name,
        initializers.normal(('embed', 'heads', None)),
        (width, heads, self.head_width),
        jnp.float32,
      ).astype(self.dtype)
      return jnp.einsum('BLD,DHK->BLHK', x_BLD, w_DHK)

    q_BLHK = rope.rotate(project('query_DHK'), positions)
    k_BLHK = rope.rotate(project('key_DHK'), positions)
    y_BLHK = v_BLHK = project('value_DHK')
    if past is not None:
      y_BLHK = attend_past(q_BLHK, Past(k_BLHK, v_BLHK), past, positions[:, 0])
    # Shapes are all that matters at the start, and it may be asked for where
    # a kernel cannot run.
    elif not self.is_initializing():
      y_BLHK = attend(q_BLHK, k_BLHK, v_BLHK, segments_BL, self.implementation)
    out_HKD = self.param(
      'out_HKD',
      initializers.residual(('heads', None, 'embed'), self.layers),
      (heads, self.head_width, width),
      jnp.float32,
    ).astype(self.dtype)
    x_BLD = jnp.einsum('BLHK,HKD->BLD', y_BLHK, out_HKD)
    return x_BLD, Past(k_BLHK, v_BLHK)


def insert(past: Past, new: Past, positions_B: jax.Array) -> Past:
  """The past with one more input a row, each in the slot of its position.

  Args:
    past: k_BLHK and v_BLHK.
    new: k_B1HK and v_B1HK.
    positions_B: int32, in [0, L); higher ones overwrite the last slot.
  """

  def into(past_LHK, new_1HK, position):
    return jax.lax.dynamic_update_slice(past_LHK, new_1HK, (position, 0, 0))

  return jax.tree.map(
    lambda old, x: jax.vmap(into)(old, x, positions_B), past, new
  )


def attend_past(
  q_B1HK: jax.Array, new: Past, past: Past, positions_B: jax.Array
) -> jax.Array:
  """Attention of one input a row to itself and to what came before it.

  Slots from its own on may hold anything finite: they have no weight.

  Args:
    q_B1HK: its query.
    new: its key and value.
    past: of the inputs before.
    positions_B: int32, its position, which is how many came before.

  Returns:
    y_B1HK.
  """
  k_BLHK, v_BLHK = insert(past, new, positions_B)
  return jax.nn.dot_product_attention(
    q_B1HK, k_BLHK, v_BLHK, key_value_seq_lengths=positions_B + 1
  )


def attend(
  q_BLHK: jax.Array,
  k_BLHK: jax.Array,
  v_BLHK: jax.Array,
  segments_BL: jax.Array | None = None,
  implementation: str = 'auto',
) -> jax.Array:
  """Causal softmax attention, scores times K**-0.5.

  Args:
    q_BLHK: queries.
    k_BLHK: keys.
    v_BLHK: values, of the same type as the others.
    segments_BL: int32; an input sees those of its own segment alone. None
      where a row is one segment.
    implementation: 'xla', everywhere; 'splash', a TPU kernel, interpreted
      elsewhere and so very slow; 'cudnn', for bfloat16 on NVIDIA GPUs; or
      'auto' for the fastest on the mesh in force.

  Returns:
    y_BLHK, of the type of the values.

  Raises:
    ConfigError: `implementation` is unknown, or cannot take such arrays.
  """
  platform, width = sharding.platform(), q_BLHK.shape[-1]
  if implementation == 'auto':
    implementation = _fastest(platform, q_BLHK.dtype, width)
  check(implementation)
  reason = refusal(implementation, platform, q_BLHK.dtype, width)
  if reason is not None:
    raise errors.ConfigError(
      f'config.model.attention={implementation!r} {reason}; choose auto or xla'
    )
  return IMPLEMENTATIONS[implementation](q_BLHK, k_BLHK, v_BLHK, segments_BL)


def refusal(
  implementation: str, platform: str, dtype: jnp.dtype, head_width: int
) -> str | None:
  """Why an implementation does not take such arrays; None if it does."""
  if implementation != 'cudnn':
    return None
  if platform != 'gpu':
    return f'needs a GPU, but the devices are of {platform!r}'
  if dtype != jnp.bfloat16:
    return f"needs config.model.precision='bfloat16', not {dtype.name!r}"
  if head_width % 8 or head_width > 128:
    return (
      'needs a config.model.head_width that 8 divides, of at most 128, not '
      f'{head_width}'
    )
  return None


def _xla(q_BLHK, k_BLHK, v_BLHK, segments_BL):
  """The scores of all pairs in float32, those of other segments masked.

  The mask takes B L**2 bytes, 1 / 4H of the scores, and saves no work.
  """
  return jax.nn.dot_product_attention(
    q_BLHK, k_BLHK, v_BLHK, mask=_within(segments_BL), is_causal=True
  )


def _cudnn(q_BLHK, k_BLHK, v_BLHK, segments_BL):
  """Without the scores; a mask of segments is still B L**2 numbers."""
  return jax.nn.dot_product_attention(
    q_BLHK,
    k_BLHK,
    v_BLHK,
    mask=_within(segments_BL),
    is_causal=True,
    implementation='cudnn',
  )


def _within(segments_BL: jax.Array | None) -> jax.Array | None:
  """mask_B1LL, true where query and key are of one segment."""
  if segments_BL is None:
    return None
  return (segments_BL[:, :, None] == segments_BL[:, None, :])[:, None]


def _splash(q_BLHK, k_BLHK, v_BLHK, segments_BL):
  """Without scores and mask; blocks above the diagonal are not computed.

  Rows are filled up to whole blocks at their end, which no input sees.
  """
  _, L, H, K = q_BLHK.shape
  filled = L + -L % LANES

  def by_head(x_BLHK):
    x_BHLK = jnp.swapaxes(x_BLHK, 1, 2)
    return jnp.pad(x_BHLK, ((0, 0), (0, 0), (0, filled - L), (0, 0)))

  segments = segments_BL
  if segments is not None:
    segments_BL = jnp.pad(segments_BL, ((0, 0), (0, filled - L)))
    segments = splash_attention.SegmentIds(q=segments_BL, kv=segments_BL)
  kernel = _splash_kernel(H, filled, sharding.platform() != 'tpu')
  y_BHLK = jax.vmap(kernel)(
    by_head(q_BLHK * K**-0.5), by_head(k_BLHK), by_head(v_BLHK), segments
  )
  return jnp.swapaxes(y_BHLK[:, :, :L], 1, 2)


def _splash_kernel(heads: int, length: int, interpret: bool) -> Callable:
  """(q_HLK, k_HLK, v_HLK, segments_L) -> y_HLK, causal and not scaled."""
  block = max(n for n in range(LANES, BLOCK + 1, LANES) if length % n == 0)
  causal = splash_attention.CausalMask((length, length))
  return splash_attention.make_splash_mha_single_device(
    splash_attention.MultiHeadMask([causal] * heads),
    block_sizes=splash_attention.BlockSizes(
      block_q=block,
      block_kv=block,
      block_q_dkv=block,
      block_kv_dkv=block,
      block_q_dq=block,
      block_kv_dq=block,
    ),
    interpret=interpret,
  )


def _by_device(kernel: Callable) -> Callable:
  """A kernel, which XLA cannot split, on each device's own rows and heads."""
  x_axes = ('batch', None, 'heads', None)

  def attend_(q_BLHK, k_BLHK, v_BLHK, segments_BL):
    return sharding.by_parts(
      kernel,
      (q_BLHK, k_BLHK, v_BLHK, segments_BL),
      (x_axes, x_axes, x_axes, ('batch', None)),
    )

  return attend_


IMPLEMENTATIONS = {
  'xla': _xla,
  'splash': _by_device(_splash),
  'cudnn': _by_device(_cudnn),
}


def check(implementation: str) -> None:
  """Refuses a name that is not there."""
  if implementation not in ('auto', *IMPLEMENTATIONS):
    raise errors.ConfigError(
      f'config.model.attention={implementation!r} is unknown; choose auto or '
      f'one of {", ".join(IMPLEMENTATIONS)}'
    )


@functools.cache
def _fastest(platform: str, dtype: jnp.dtype, head_width: int) -> str:
  """What 'auto' means on a platform; said once."""
  name = {'tpu': 'splash', 'gpu': 'cudnn'}.get(platform, 'xla')
  reason = refusal(name, platform, dtype, head_width)
  because = f': {name} {reason}' if reason else ''
  name = 'xla' if reason else name
  logging.getLogger(__name__).info(
    'attention runs as %r on %s%s', name, platform, because
  )
  return name
