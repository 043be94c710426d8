"""How parameters start, and under which logical axes."""

from collections.abc import Callable

from flax import linen as nn
import jax

STD = 0.02


def normal(axes: tuple[str | None, ...], std: float = STD) -> Callable:
  """N(0, std) with its logical axes; Llama's and GPT-NeoX's 0.02."""
  return nn.with_logical_partitioning(nn.initializers.normal(std), axes)


def residual(axes: tuple[str | None, ...], layers: int) -> Callable:
  """For what is added to the residual stream: two such sums a layer.

  Scaling by 1 / sqrt(2 * layers) keeps the stream's variance at the start
  independent of depth (GPT-2).
  """
  return normal(axes, STD / (2 * layers) ** 0.5)


def ones(axes: tuple[str | None, ...]) -> Callable:
  """For gains."""
  return nn.with_logical_partitioning(nn.initializers.ones_init(), axes)


def zeros(axes: tuple[str | None, ...]) -> Callable:
  """For shifts."""
  return nn.with_logical_partitioning(nn.initializers.zeros_init(), axes)


def near_one(axes: tuple[str | None, ...]) -> Callable:
  """1 + N(0, 0.1), for factors of a product."""

  def init(key, shape, dtype):
    return 1 + 0.1 * jax.random.normal(key, shape, dtype)

  return nn.with_logical_partitioning(init, axes)
