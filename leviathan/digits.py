"""Token ids as digits, in exact integer arithmetic.

A root in floats is wrong near perfect powers: 205379 ** (1/3) rounds.
"""

import functools
import operator

from leviathan import arrays


def base(vocab_size: int, num_digits: int) -> int:
  """The smallest N with N**num_digits >= vocab_size.

  Raises:
    ValueError: an argument is below 1.
  """
  if vocab_size < 1 or num_digits < 1:
    raise ValueError(
      f'vocab_size={vocab_size}, num_digits={num_digits}: give 1 or more'
    )
  low, high = 0, vocab_size  # low**J < V <= high**J
  while high - low > 1:
    middle = (low + high) // 2
    if middle**num_digits >= vocab_size:
      high = middle
    else:
      low = middle
  return high


def split(ids_T: arrays.Array, base_: int, num_digits: int) -> list:
  """Digits of each id, most significant first.

  Args:
    ids_T: integer ids in [0, base_**num_digits); any shape.
    base_: N.
    num_digits: J.

  Returns:
    J arrays like `ids_T`, in [0, N).
  """
  return [
    ids_T // base_ ** (num_digits - 1 - j) % base_ for j in range(num_digits)
  ]


def seed(codebooks_JNC: arrays.Array, ids_T: arrays.Array) -> arrays.Array:
  """The sum of one codebook row a digit, (..., C) for ids of shape (...)."""
  num_digits, base_, _ = codebooks_JNC.shape
  rows = [
    codebooks_JNC[j, digit_T]
    for j, digit_T in enumerate(split(ids_T, base_, num_digits))
  ]
  return functools.reduce(operator.add, rows)
