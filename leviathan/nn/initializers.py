"""How parameters start, and under which logical axes.

Each initializer carries its distribution as text in `description`.
"""

from collections.abc import Callable

from flax import linen as nn
import jax
import jax.numpy as jnp

STD = 0.02

Axes = tuple[str | None, ...]


def normal(axes: Axes, std: float = STD) -> Callable:
  """N(0, std); Llama's and GPT-NeoX's 0.02."""
  return _boxed(nn.initializers.normal(std), axes, f'N(0,{std:.6g})')


def residual(axes: Axes, layers: int) -> Callable:
  """For what is added to the residual stream: two such sums a layer.

  Scaling by 1 / sqrt(2 * layers) keeps the stream's variance at the start
  independent of depth (GPT-2).
  """
  return normal(axes, STD / (2 * layers) ** 0.5)


def ones(axes: Axes) -> Callable:
  """For gains."""
  return _boxed(lambda key, shape, dtype: jnp.ones(shape, dtype), axes, '1')


def zeros(axes: Axes) -> Callable:
  """For shifts."""
  return _boxed(lambda key, shape, dtype: jnp.zeros(shape, dtype), axes, '0')


def near_one(axes: Axes) -> Callable:
  """1 + N(0, 0.1), for factors of a product."""

  def init(key, shape, dtype):
    return 1 + 0.1 * jax.random.normal(key, shape, dtype)

  return _boxed(init, axes, '1+N(0,0.1)')


def _boxed(init: Callable, axes: Axes, description: str) -> Callable:
  """`init` whose result names its logical axes."""
  boxed = nn.with_logical_partitioning(init, axes)
  boxed.description = description  # pyright: ignore[reportFunctionMemberAccess]
  return boxed
