"""What is too much of a difference, and how that is said."""

import types
from typing import Any

from etils import epath
import numpy as np
import pytest

from leviathan import errors
from leviathan.huggingface import check

LENGTH, VOCAB_SIZE = 64, 7


@pytest.fixture
def compare(monkeypatch):
  """(largest logit, {length of a row: its difference}) -> what is found."""

  def run(largest, differences):
    ours_LV = np.zeros((LENGTH, VOCAB_SIZE), np.float32)
    ours_LV[0, 0] = largest

    def theirs(directory, rows):
      del directory
      found = [ours_LV[: len(row)] for row in rows]
      yield 'them', [x + np.float32(differences.get(len(x), 0)) for x in found]

    monkeypatch.setattr(check, '_ours', lambda *_: ours_LV)
    monkeypatch.setattr(check, '_theirs', theirs)
    parts: Any = types.SimpleNamespace(
      config=types.SimpleNamespace(
        model=types.SimpleNamespace(vocab_size=VOCAB_SIZE),
        data=types.SimpleNamespace(seq_len=LENGTH),
      )
    )
    return check.compare(parts, None, epath.Path('/hidden'), 'exports/lev')

  return run


def test_the_limit_grows_with_the_logits_at_the_full_length_alone(compare):
  found = compare(8.0, {LENGTH: 7e-4, 32: 9e-5})
  assert found.lengths == (1, 32, LENGTH)
  assert found.largest['them'] == pytest.approx(7e-4, rel=1e-2)
  for largest, differences in (
    (8.0, {LENGTH: 9e-4}),
    (0.5, {LENGTH: 2e-4}),
    (8.0, {32: 2e-4}),
    (8.0, {1: 2e-4}),
    (8.0, {LENGTH: float('nan')}),
  ):
    with pytest.raises(errors.DataError):
      compare(largest, differences)


def test_a_difference_is_one_line_with_what_to_do(compare):
  with pytest.raises(errors.DataError) as caught:
    compare(0.5, {32: 0.25})
  assert str(caught.value) == (
    'exports/lev: by them the logits of 32 tokens differ by 2.5e-01 from those '
    'of our model; less than 0.0001 is wanted. Try JAX_PLATFORMS=cpu, and '
    'report it if it stays so'
  )
