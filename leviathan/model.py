"""The backbone that all arms share: a pre-norm decoder as in Llama."""

import dataclasses
from typing import Any

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from leviathan import config as config_lib
from leviathan import embed
from leviathan import errors
from leviathan import head as head_lib
from leviathan import sharding
from leviathan.embed import api
from leviathan.nn import attention
from leviathan.nn import mlp
from leviathan.nn import norms
from leviathan.nn import rope

# What the backward pass keeps of a layer; the rest it computes again.
REMAT_POLICIES: dict[str, Any] = {
  'none': jax.checkpoint_policies.everything_saveable,
  'dots': jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
  'full': jax.checkpoint_policies.nothing_saveable,
}
PRECISIONS = {'float32': jnp.float32, 'bfloat16': jnp.bfloat16}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig:
  """Sizes of the backbone, and the pair (embedder, head) that is the arm."""

  vocab_size: int  # V
  width: int  # D
  layers: int
  head_width: int  # K
  mlp_width: int  # F
  precision: str  # compute type; parameters are float32
  remat: str  # one of REMAT_POLICIES
  attention: str  # one of nn.attention.IMPLEMENTATIONS, or 'auto'
  token_order: str  # file of the ranks whose digits are read; '': the ids'
  embedder: api.EmbedderConfig = config_lib.choose(embed.EMBEDDERS)
  head: head_lib.HeadConfig = config_lib.choose(head_lib.HEADS)

  def __post_init__(self):
    for name in ('vocab_size', 'width', 'layers', 'head_width', 'mlp_width'):
      if getattr(self, name) < 1:
        raise errors.ConfigError(
          f'config.model.{name}={getattr(self, name)}; give 1 or more'
        )
    if self.width % self.head_width or self.head_width % 2:
      raise errors.ConfigError(
        f'config.model.head_width={self.head_width} must be even and divide '
        f'config.model.width={self.width}'
      )
    for name, choices in (('remat', REMAT_POLICIES), ('precision', PRECISIONS)):
      if getattr(self, name) not in choices:
        raise errors.ConfigError(
          f'config.model.{name}={getattr(self, name)!r}; choose one of '
          f'{", ".join(choices)}'
        )
    attention.check(self.attention)
    if self.token_order and not self.embedder.reads_digits:
      raise errors.ConfigError(
        f'config.model.token_order={self.token_order!r} means nothing to '
        f"config.model.embedder.name={self.embedder.name!r}; give ''"
      )

  def make(self, rank_V: np.ndarray | None = None) -> 'Transformer':
    """The module.

    Args:
      rank_V: what `token_order` holds; None for the ids themselves, and where
        only shapes matter.
    """
    dtype = PRECISIONS[self.precision]
    return Transformer(
      config=self,
      embedder=self.embedder.make(
        vocab_size=self.vocab_size,
        padded_vocab_size=head_lib.padded_rows(self.vocab_size),
        width=self.width,
      ),
      head=self.head.make(vocab_size=self.vocab_size, dtype=dtype),
      rank_V=rank_V,
    )


class Block(nn.Module):
  """x + attention(norm(x)), then x + mlp(norm(x))."""

  config: ModelConfig
  keeps: bool = False  # Whether keys and values are given back, and stacked.

  @nn.compact
  def __call__(
    self,
    x_BLD: jax.Array,
    positions: jax.Array,
    segments_BL: jax.Array | None,
    past: attention.Past | None,
  ):
    """A step of `nn.scan`: the stream is the carry."""
    c = self.config
    dtype = PRECISIONS[c.precision]
    h_BLD = norms.RMSNorm(dtype, name='attention_norm')(x_BLD)
    y_BLD, new = attention.Attention(
      c.head_width, c.layers, dtype, c.attention, name='attention'
    )(h_BLD, positions, segments_BL, past)
    x_BLD += y_BLD
    h_BLD = norms.RMSNorm(dtype, name='mlp_norm')(x_BLD)
    x_BLD += mlp.SwiGLU(c.mlp_width, c.layers, dtype, name='mlp')(h_BLD)
    x_BLD = sharding.constrain(x_BLD, 'batch', None, None)
    return x_BLD, new if self.keeps else None


class Transformer(nn.Module):
  """ids_BL -> float32 logits_BLV; V is padded, see `head`."""

  config: ModelConfig
  embedder: api.Embedder
  head: head_lib.Head
  rank_V: np.ndarray | None = None  # int32; the embedder sees ranks for ids

  def __call__(
    self, ids_BL: jax.Array, segments_BL: jax.Array | None = None
  ) -> jax.Array:
    """Logits of the token after each input; see `features`."""
    return self.head.logits(*self.features(ids_BL, segments_BL))

  def features(
    self, ids_BL: jax.Array, segments_BL: jax.Array | None = None
  ) -> tuple[jax.Array, jax.Array]:
    """What logits are products of: each input sees 0..i only.

    Args:
      ids_BL: int32 token ids in [0, V).
      segments_BL: int32, see `arrays.Batch`: an input then sees only what is
        of its own segment, as if each segment were a row. None: whole rows.

    Returns:
      Hidden states x_BLD, and the head's float32 matrix w_VD, V padded.
    """
    x_BLD = self._inputs(ids_BL)
    positions = jnp.arange(ids_BL.shape[1], dtype=jnp.int32)
    if segments_BL is not None:
      # Attention sees differences of positions alone; counted from a document's
      # start, their rounding too is the same wherever in a row it lies.
      positions = rope.restart(positions, segments_BL)
    x_BLD, _ = self._layers(x_BLD, positions, segments_BL)
    return x_BLD, self.head.weight(self.embedder, self.config.width)

  def begin(
    self, ids_BL: jax.Array, lengths_B: jax.Array
  ) -> tuple[jax.Array, attention.Past]:
    """Reads prompts in one pass, as `features` does.

    Args:
      ids_BL: int32 ids. Prompts are filled up at their end, so that each begins
        at position 0; what fills them up no token of theirs sees.
      lengths_B: int32, how long each prompt is, 1 or more.

    Returns:
      float32 logits_BV of the token after each prompt, and the past k_XBLHK.
    """
    x_BLD = self._inputs(ids_BL)
    positions_L = jnp.arange(ids_BL.shape[1], dtype=jnp.int32)
    x_BLD, past = self._layers(x_BLD, positions_L, keeps=True)
    last_B11 = lengths_B[:, None, None] - 1
    return self._last_logits(jnp.take_along_axis(x_BLD, last_B11, 1)), past

  def step(
    self, ids_B: jax.Array, positions_B: jax.Array, past: attention.Past
  ) -> tuple[jax.Array, attention.Past]:
    """Reads one more token of each row.

    Args:
      ids_B: int32 ids.
      positions_B: int32, how many tokens of the row came before; see
        `attention.insert`.
      past: k_XBLHK and v_XBLHK of those, with slots for what follows.

    Returns:
      float32 logits_BV of the token after it, and the past with it.
    """
    x_B1D, new = self._layers(
      self._inputs(ids_B[:, None]), positions_B[:, None], past=past, keeps=True
    )
    insert = jax.vmap(attention.insert, in_axes=(0, 0, None))
    return self._last_logits(x_B1D), insert(past, new, positions_B)

  def _last_logits(self, x_B1D):
    w_VD = self.head.weight(self.embedder, self.config.width)
    return self.head.logits(x_B1D, w_VD)[:, 0]

  def _inputs(self, ids_BL):
    x_BLD = self.embed(ids_BL).astype(PRECISIONS[self.config.precision])
    return sharding.constrain(x_BLD, 'batch', None, None)

  @nn.compact
  def _layers(
    self, x_BLD, positions, segments_BL=None, past=None, keeps=False
  ) -> tuple[jax.Array, Any]:
    """x_BLD through all layers, and what they keep."""
    c = self.config
    blocks = nn.scan(
      nn.remat(Block, policy=REMAT_POLICIES[c.remat], prevent_cse=False),
      variable_axes={'params': 0},
      split_rngs={'params': True},
      in_axes=(nn.broadcast, nn.broadcast, 0),  # pyright: ignore[reportArgumentType]
      length=c.layers,
      metadata_params={nn.PARTITION_NAME: 'layers'},
    )
    x_BLD, kept = blocks(config=c, keeps=keeps, name='blocks')(
      x_BLD, positions, segments_BL, past
    )
    dtype = PRECISIONS[c.precision]
    return norms.RMSNorm(dtype, name='final_norm')(x_BLD), kept

  def embed(self, ids_BL: jax.Array) -> jax.Array:
    """The embedder's float32 x_BLD of int32 ids in [0, V)."""
    if self.rank_V is not None:
      ids_BL = jnp.take(jnp.asarray(self.rank_V), ids_BL)
    return self.embedder(ids_BL)
