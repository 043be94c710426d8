"""Continuing prompts: one pass reads them, then each step adds a token to each.

What a row becomes depends on its prompt, its key and the choice alone: neither
on the other rows nor, but for rounding, on how far they are filled up.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any
from typing import NamedTuple

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from leviathan import errors
from leviathan import prng
from leviathan.nn import attention

STEPS = 16  # From one look at what was drawn to the next.
BUFFER = 64  # Prompts are filled up to multiples, so that few are compiled.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
  """How the next token is drawn.

  Attributes:
    temperature: what logits are divided by; 0 takes the likeliest token.
    top_k: only so many of the likeliest are drawn from; None: all.
    top_p: only the likeliest that together have this probability, after
      temperature and top_k; the one that reaches it is among them.
  """

  temperature: float = 0.0
  top_k: int | None = None
  top_p: float = 1.0

  def __post_init__(self):
    if not 0 <= self.temperature < np.inf:
      raise errors.ConfigError(
        f'temperature={self.temperature}; give 0 or a positive number'
      )
    if self.top_k is not None and self.top_k < 1:
      raise errors.ConfigError(f'top_k={self.top_k}; give 1 or more')
    if not 0 < self.top_p <= 1:
      raise errors.ConfigError(
        f'top_p={self.top_p}; give more than 0 and at most 1'
      )

  def draw(self, key_B: jax.Array, logits_BV: jax.Array) -> jax.Array:
    """int32 ids_B; of equals at the border of top_k or top_p all are in."""
    if not self.temperature:
      return jnp.argmax(logits_BV, axis=-1).astype(jnp.int32)
    logits_BV /= self.temperature
    if self.top_k is not None:
      top_k = min(self.top_k, logits_BV.shape[-1])
      logits_BV = _from(jax.lax.top_k(logits_BV, top_k)[0][:, -1:], logits_BV)
    if self.top_p < 1:
      sorted_BV = jnp.sort(logits_BV, axis=-1, descending=True)
      share_BV = jax.nn.softmax(sorted_BV, axis=-1)
      before_BV = jnp.cumsum(share_BV, axis=-1) - share_BV
      least_B1 = jnp.min(
        sorted_BV,
        axis=-1,
        keepdims=True,
        where=before_BV < self.top_p,
        initial=jnp.inf,
      )
      logits_BV = _from(least_B1, logits_BV)
    return jax.vmap(jax.random.categorical)(key_B, logits_BV).astype(jnp.int32)


def _from(least_B1: jax.Array, logits_BV: jax.Array) -> jax.Array:
  """Those of at least so much; the others can never be drawn."""
  return jnp.where(logits_BV >= least_B1, logits_BV, -jnp.inf)


class _State(NamedTuple):
  """Between two steps.

  Attributes:
    logits_BV: of the next token.
    positions_B: of the next token.
    past: of the tokens so far.
  """

  logits_BV: jax.Array
  positions_B: jax.Array
  past: attention.Past


# (params, prompts, key_B) -> the next ids of each row, again and again.
Sampler = Callable[
  [Any, Sequence[Sequence[int]], jax.Array], Iterator[list[list[int]]]
]


def make(model: nn.Module, length: int, choice: Choice) -> Sampler:
  """A sampler of rows of at most `length` tokens, prompts included.

  Args:
    model: a model.Transformer.
    length: what the model was trained with.
    choice: how tokens are drawn.

  Returns:
    A function of the parameters, the prompts (ids, at least one and fewer than
    `length` each) and a typed key a row. It yields what follows in each row,
    STEPS tokens at a time, nothing once a row is full; it ends when all are. A
    token's key is a stream of the row's key and of its position. All runs on
    the mesh in force.
  """
  apply: Callable[..., Any] = model.apply

  @jax.jit
  def begin(params, ids_BL, lengths_B):
    logits_BV, past = apply(
      {'params': params}, ids_BL, lengths_B, method='begin'
    )
    free = ((0, 0), (0, 0), (0, length - ids_BL.shape[1]), (0, 0), (0, 0))
    past = jax.tree.map(lambda x_XBLHK: jnp.pad(x_XBLHK, free), past)
    return _State(logits_BV, lengths_B, past)

  @functools.partial(jax.jit, donate_argnums=1)
  def advance(params, state, key_B):
    def one(state, _):
      key = jax.vmap(lambda key, at: prng.stream(key, 'token', at))
      ids_B = choice.draw(key(key_B, state.positions_B), state.logits_BV)
      logits_BV, past = apply(
        {'params': params}, ids_B, state.positions_B, state.past, method='step'
      )
      return _State(logits_BV, state.positions_B + 1, past), ids_B

    return jax.lax.scan(one, state, None, length=STEPS)

  def sample(params, prompts, key_B):
    lengths = [len(prompt) for prompt in prompts]
    filled = min(-(-max(lengths) // BUFFER) * BUFFER, length)
    ids_BL = np.zeros((len(prompts), filled), np.int32)
    for ids_L, prompt in zip(ids_BL, prompts, strict=True):
      ids_L[: len(prompt)] = prompt
    state = begin(params, ids_BL, np.array(lengths, np.int32))
    room = [length - n for n in lengths]
    while max(room) > 0:
      state, new_LB = advance(params, state, key_B)
      new = np.asarray(new_LB).T.tolist()
      yield [ids[: max(n, 0)] for ids, n in zip(new, room, strict=True)]
      room = [n - STEPS for n in room]

  return sample
