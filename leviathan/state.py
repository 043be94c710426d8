"""What a training step carries on to the next."""

from typing import Any

from flax import linen as nn
from flax import struct
import jax
import jax.numpy as jnp
import optax

from leviathan import guard as guard_lib
from leviathan import sharding


class OptState(struct.PyTreeNode):
  """What the update keeps beside the parameters; saved as one item.

  Attributes:
    optimizer: Adam's moments and count, float32 unless the config says less.
    guard: what steps are judged by.
  """

  optimizer: Any
  guard: guard_lib.Guard


class State(struct.PyTreeNode):
  """All that training changes.

  Attributes:
    step: int32, steps taken, skipped ones too.
    params: float32 parameters, a tree of dicts.
    opt_state: see OptState.
  """

  step: jax.Array
  params: Any
  opt_state: OptState


def initializer(
  model: nn.Module, optimizer: optax.GradientTransformation
) -> Any:
  """key -> State, whose leaves are boxed with their logical axes."""

  def init(key: jax.Array) -> State:
    ids_BL = jnp.zeros((1, 2), jnp.int32)
    params = model.init(key, ids_BL)['params']
    return State(
      step=jnp.zeros((), jnp.int32),
      params=params,
      opt_state=OptState(
        optimizer=optimizer.init(params), guard=guard_lib.fresh()
      ),
    )

  return init


def abstract(
  model: nn.Module,
  optimizer: optax.GradientTransformation,
  mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh,
) -> State:
  """The state's shapes, types and shardings on `mesh`; no memory is used.

  Raises:
    ConfigError: the mesh does not divide a parameter.
  """
  boxed = jax.eval_shape(initializer(model, optimizer), jax.random.key(0))
  shardings = sharding.tree_shardings(boxed, mesh)
  return jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
    nn.unbox(boxed),
    shardings,
  )


def create(
  model: nn.Module,
  optimizer: optax.GradientTransformation,
  mesh: jax.sharding.Mesh,
  key: jax.Array,
) -> State:
  """A fresh state, made in place on the mesh; the same bits on every mesh."""
  init = initializer(model, optimizer)
  shardings = jax.tree.map(
    lambda x: x.sharding, abstract(model, optimizer, mesh)
  )
  with jax.set_mesh(mesh):
    return jax.jit(lambda k: nn.unbox(init(k)), out_shardings=shardings)(key)
