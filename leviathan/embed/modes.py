"""Modes: the costly middle of LEV, from ids to products of splines.

A kernel is a module with the functions of `Kernel`; how they are joined to
JAX's differentiation stands here, once for all of them. M counts the modes of a
token, S heads times R ranks.
"""

from collections.abc import Mapping
import functools
from typing import NamedTuple
from typing import Protocol

import jax
import jax.numpy as jnp

# Said at each product: a context is forgotten where a pass is traced later.
einsum = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)


class Operands(NamedTuple):
  """What modes are made of.

  Attributes:
    rows_JNSC: the codebooks, projected for each head. `z @ seed` is linear in
      them, so a token only adds J rows where it would multiply a matrix.
    scale_SC: of the LayerNorm.
    bias_SC: of the LayerNorm.
    splines_SCGR: values at the knots.
  """

  rows_JNSC: jax.Array
  scale_SC: jax.Array
  bias_SC: jax.Array
  splines_SCGR: jax.Array


def operands(params: Mapping[str, jax.Array]) -> Operands:
  """The operands of a layer's parameters, named as in `lev.lev_embed`."""
  return Operands(
    einsum('JNC,SCE->JNSE', params['codebooks_JNC'], params['seed_SCC']),
    params['scale_SC'],
    params['bias_SC'],
    params['splines_SCGR'],
  )


class Kernel(Protocol):
  """One way to compute LEV."""

  def forward(
    self, operands: Operands, ids_T: jax.Array, count: jax.Array
  ) -> jax.Array:
    """See `modes`."""
    ...

  def backward(
    self,
    operands: Operands,
    ids_T: jax.Array,
    count: jax.Array,
    mode_TM: jax.Array,
    d_mode_TM: jax.Array,
  ) -> Operands:
    """The gradient by the operands."""
    ...

  def product(self, a: jax.Array, b: jax.Array, axes: str) -> jax.Array:
    """A matrix product in float32; `axes` as for einsum, 'TM,MD->TD'."""
    ...


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def modes(
  kernel: Kernel, operands: Operands, ids_T: jax.Array, count: jax.Array
) -> jax.Array:
  """mode_TM: the product over C of each head's splines.

  Args:
    kernel: how.
    operands: see Operands.
    ids_T: ids in [0, N**J); those after the first `count` repeat one of them.
    count: how many are wanted; work grows with it. Rows after it hold no
      meaning; who takes them must not let a gradient into them, so let nobody.

  Returns:
    mode_TM, of the splines' type.
  """
  return kernel.forward(operands, ids_T, count)


def _modes_forward(kernel, operands, ids_T, count):
  mode_TM = kernel.forward(operands, ids_T, count)
  return mode_TM, (operands, ids_T, count, mode_TM)


def _modes_backward(kernel, residuals, d_mode_TM):
  return kernel.backward(*residuals, d_mode_TM), None, None


modes.defvjp(_modes_forward, _modes_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def project(kernel: Kernel, mode_TM: jax.Array, out_MD: jax.Array) -> jax.Array:
  """x_TD from mode_TM and out_MD: to the model's width, summed over heads."""
  return kernel.product(mode_TM, out_MD, 'TM,MD->TD')


def _project_forward(kernel, mode_TM, out_MD):
  return project(kernel, mode_TM, out_MD), (mode_TM, out_MD)


def _project_backward(kernel, residuals, d_x_TD):
  mode_TM, out_MD = residuals
  return (
    kernel.product(d_x_TD, out_MD, 'TD,MD->TM'),
    kernel.product(mode_TM, d_x_TD, 'TM,TD->MD'),
  )


project.defvjp(_project_forward, _project_backward)
