"""Digits of an id: exact, distinct, most significant first (trap L1)."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from leviathan import digits

VOCABULARIES = (1, 2, 343, 1000, 50_257, 205_379, 205_380)
SIZES = list(itertools.product(VOCABULARIES, range(1, 6)))


@pytest.mark.parametrize('vocab_size, num_digits', SIZES)
def test_every_id_has_digits_of_its_own_that_make_it_up_again(
  vocab_size, num_digits
):
  base = digits.base(vocab_size, num_digits)
  ids = np.arange(vocab_size)
  split = np.stack(digits.split(ids, base, num_digits))
  assert split.shape == (num_digits, vocab_size)
  assert split.min() >= 0 and split.max() < base
  again = np.zeros(vocab_size, np.int64)
  for digit in split:
    again = again * base + digit
  np.testing.assert_array_equal(again, ids)
  assert len(np.unique(split, axis=1).T) == vocab_size


@pytest.mark.parametrize('vocab_size, num_digits', SIZES)
def test_the_base_is_the_smallest_that_counts_far_enough(
  vocab_size, num_digits
):
  counted = next(n for n in itertools.count(1) if n**num_digits >= vocab_size)
  assert digits.base(vocab_size, num_digits) == counted


@pytest.mark.parametrize('num_digits', range(2, 6))
@pytest.mark.parametrize('root', [2, 7, 10, 59, 343, 10**5, 10**15 + 3])
def test_the_base_is_exact_beside_perfect_powers_of_any_size(root, num_digits):
  power = root**num_digits
  assert digits.base(power - 1, num_digits) == root
  assert digits.base(power, num_digits) == root
  assert digits.base(power + 1, num_digits) == root + 1


def test_bases_by_hand():
  assert digits.base(10**15, 3) == 10**5  # In floats 99999.99999999997.
  assert digits.base(205_379, 3) == 59
  assert digits.base(205_380, 3) == 60
  # The paper's vocabularies.
  assert [digits.base(v, 3) for v in (50_257, 100_277, 200_019)] == [37, 47, 59]
  assert digits.base(1, 1) == digits.base(1, 5) == 1


def test_digits_of_very_large_ids_are_exact():
  base = digits.base(10**15, 3)
  ids = np.array([0, 10**5 - 1, 10**10, 10**15 - 1, 123_456_789_012_345])
  np.testing.assert_array_equal(
    np.stack(digits.split(ids, base, 3), axis=1),
    [
      [0, 0, 0],
      [0, 0, 99_999],
      [1, 0, 0],
      [99_999, 99_999, 99_999],
      [12_345, 67_890, 12_345],
    ],
  )


def test_the_most_significant_digit_comes_first():
  assert digits.split(123, 10, 3) == [1, 2, 3]
  assert digits.split(5, 2, 4) == [0, 1, 0, 1]


@pytest.mark.parametrize('num_digits', range(1, 6))
def test_numpy_and_jax_agree_on_ids_of_any_shape(num_digits):
  base = digits.base(205_380, num_digits)
  ids_BL = np.random.default_rng(0).integers(0, 205_380, (4, 1000), np.int32)
  ids_BL[0, :2] = 0, 205_379
  host = digits.split(ids_BL, base, num_digits)
  device = digits.split(jnp.asarray(ids_BL), base, num_digits)
  for expected, found in zip(host, device, strict=True):
    assert found.shape == ids_BL.shape and found.dtype == jnp.int32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize('vocab_size, num_digits', [(0, 3), (10, 0), (-1, 1)])
def test_sizes_below_one_are_refused(vocab_size, num_digits):
  with pytest.raises(ValueError, match='give 1 or more'):
    digits.base(vocab_size, num_digits)
