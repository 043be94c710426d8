"""Token orders on disk."""

import json

import numpy as np
import pytest

from leviathan import errors
from leviathan.token_order import files

ORIGIN = files.Origin(
  method='bytes',
  seed=0,
  tokenizer_sha256='a' * 64,
  dataset_fingerprints=('b', 'c'),
)


@pytest.mark.parametrize('origin', [ORIGIN, None])
def test_what_is_saved_is_loaded(tmp_path, origin):
  order = files.TokenOrder(np.array([2, 0, 1]), origin)
  files.save(order, tmp_path / 'new' / 'order.npy')
  loaded = files.load(tmp_path / 'new' / 'order.npy')
  assert loaded.rank_V.tolist() == [2, 0, 1]
  assert loaded.rank_V.dtype == np.int32
  assert loaded.origin == origin
  assert loaded.sha256 == order.sha256


def test_ids_are_those_by_rank():
  order = files.TokenOrder(np.array([2, 0, 1]))
  assert order.ids().tolist() == [1, 2, 0]


def test_another_order_has_another_hash():
  first, second = (files.TokenOrder(np.array(r)) for r in ([0, 1], [1, 0]))
  assert first.sha256 != second.sha256


@pytest.mark.parametrize(
  'rank_V', [[0, 0, 2], [1, 2, 3], [0.0, 1.0], [[0, 1]], [-1, 0]]
)
def test_what_is_no_permutation_is_refused(tmp_path, rank_V):
  path = tmp_path / 'order.npy'
  np.save(path, np.array(rank_V))
  with pytest.raises(errors.DataError, match='order.npy.*each rank.*once'):
    files.load(path)


def test_a_file_that_is_missing_comes_with_the_command_that_makes_it(tmp_path):
  with pytest.raises(errors.DataError, match='leviathan order.*--config.model'):
    files.load(tmp_path / 'order.npy')


@pytest.mark.parametrize(
  'name, content',
  [
    ('order.npy', ''),
    ('order.npy', 'text'),
    ('order.json', 'text'),
    ('order.json', '[]'),
    ('order.json', json.dumps({'method': 'bytes'})),
  ],
)
def test_a_damaged_file_is_refused(tmp_path, name, content):
  files.save(files.TokenOrder(np.array([1, 0]), ORIGIN), tmp_path / 'order.npy')
  (tmp_path / name).write_text(content)
  with pytest.raises(errors.DataError, match='order.npy cannot be read'):
    files.load(tmp_path / 'order.npy')


def test_ranks_of_any_integer_type_become_int32(tmp_path):
  np.save(tmp_path / 'order.npy', np.array([1, 0], '>i8'))
  assert files.load(tmp_path / 'order.npy').rank_V.dtype == np.int32


def test_the_origin_of_another_order_is_refused(tmp_path):
  files.save(files.TokenOrder(np.array([1, 0]), ORIGIN), tmp_path / 'order.npy')
  np.save(tmp_path / 'order.npy', np.array([0, 1]))
  with pytest.raises(errors.DataError, match='json.*of another order'):
    files.load(tmp_path / 'order.npy')


def test_an_order_for_another_tokenizer_is_refused():
  order = files.TokenOrder(np.array([1, 0]), ORIGIN)
  order.check_tokenizer('a' * 64, 'FILE')
  with pytest.raises(
    errors.DataError, match='FILE.*aaaaaaaaaaaa.*dddddddddddd'
  ):
    order.check_tokenizer('d' * 64, 'FILE')
  files.TokenOrder(np.array([1, 0])).check_tokenizer('d' * 64, 'FILE')
