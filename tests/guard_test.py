"""The guard by hand: what is good, what spikes, and what is remembered."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan import guard as guard_lib


@functools.partial(jax.jit, static_argnums=3)
def judge(guard, loss, grad_norm, deviations):
  return guard_lib.judge(guard, loss, grad_norm, deviations)


def after(values, deviations=math.inf):
  """(which of the (loss, norm) pairs were good, the guard after them)."""
  guard, found = guard_lib.fresh(), []
  for loss, norm in values:
    good, guard = judge(guard, np.float32(loss), np.float32(norm), deviations)
    found.append(bool(good))
  return found, guard


def window(count):
  """Good steps: losses 1 and 3 in turn, norms 10 and 30."""
  return [(1, 10) if i % 2 else (3, 30) for i in range(count)]


@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize('which', [0, 1])
def test_what_is_not_finite_is_not_good_from_the_first_step_on(bad, which):
  pair = [2.0, 2.0]
  pair[which] = bad
  found, guard = after([pair, (2, 2), pair, pair, (2, 2)])
  assert found == [False, True, False, False, True]
  assert (guard.skipped, guard.in_a_row, guard.good) == (3, 0, 2)
  assert np.isfinite(guard.recent_W2).all()


def test_steps_in_a_row_are_counted_until_a_good_one():
  bad = (math.nan, 1)
  counts = [
    int(after([(1, 1)] + [bad] * n + [(1, 1)] * good)[1].in_a_row)
    for n, good in ((1, 0), (3, 0), (3, 1))
  ]
  assert counts == [1, 3, 0]


# The window's means are 2 and 20, the standard deviations 1 and 10.
@pytest.mark.parametrize(
  'pair, good',
  [
    ((4.9, 49), True),
    ((5.1, 20), False),
    ((2, 51), False),
    ((-90, 0), True),  # Only upwards.
  ],
)
def test_a_spike_is_so_many_deviations_above_the_mean(pair, good):
  found, guard = after([*window(64), pair], deviations=3.0)
  assert found == [True] * 64 + [good]
  assert guard.in_a_row == 1 - good


def test_nothing_spikes_before_half_the_window_or_without_a_limit():
  assert after([*window(63), (99, 99)], 3.0)[0][-1]
  assert not after([*window(64), (99, 99)], 3.0)[0][-1]
  assert after([*window(64), (1e30, 1e30)], math.inf)[0][-1]
  # Not even above values that do not vary at all.
  assert after([(1, 1)] * 64 + [(9, 9)], math.inf)[0][-1]


def test_equal_values_do_not_spike():
  assert all(after([(0.1, 1 / 3)] * 200, 3.0)[0])


def test_the_window_holds_the_last_good_steps_and_no_bad_ones():
  values = [(i, i) for i in range(300)]
  values[200] = values[299] = (math.nan, 1)
  _, guard = after(values)
  wanted = [i for i in range(299) if i != 200][-guard_lib.WINDOW :]
  for column in np.asarray(guard.recent_W2).T:
    assert sorted(column) == wanted


def test_a_spike_does_not_raise_the_mean_that_it_is_judged_by():
  found, guard = after([*window(64), *[(99, 20)] * 5, (2, 20)], 3.0)
  assert found[64:] == [False] * 5 + [True]
  assert (guard.skipped, guard.good) == (5, 65)
  assert np.max(guard.recent_W2[:, 0]) == 3


def test_the_guard_s_types_do_not_change():
  fresh = guard_lib.fresh()
  _, guard = judge(fresh, jnp.float32(1), jnp.float32(1), 3.0)
  assert jax.tree.map(jnp.shape, guard) == jax.tree.map(jnp.shape, fresh)
  assert [x.dtype for x in guard] == [x.dtype for x in fresh]
