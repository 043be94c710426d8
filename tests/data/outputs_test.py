"""Outputs are whole or absent, and nothing that exists is touched."""

import os

import pytest

from leviathan import errors
from leviathan.data import outputs


def test_a_file_appears_whole_at_the_end(tmp_path):
  path = tmp_path / 'above' / 'out'
  with outputs.new_file(path) as temporary:
    temporary.write_text('new')
    assert not path.exists()
  assert path.read_text() == 'new' and list(path.parent.iterdir()) == [path]


def test_an_error_leaves_nothing(tmp_path):
  with pytest.raises(KeyboardInterrupt):
    with outputs.new_file(tmp_path / 'out') as temporary:
      temporary.write_text('new')
      raise KeyboardInterrupt
  assert not list(tmp_path.iterdir())


def test_a_bucket_is_refused():
  with pytest.raises(errors.DataError, match='gs://b/x is in a bucket'):
    outputs.check_free('gs://b/x')


def test_what_exists_is_refused_untouched(tmp_path):
  for name in ('file', 'directory/file'):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('old')
    with pytest.raises(errors.DataError, match='never overwritten'):
      with outputs.new_file(tmp_path / name.split('/')[0]):
        pytest.fail('entered')
    assert (tmp_path / name).read_text() == 'old'
  assert len(list(tmp_path.iterdir())) == 2


def test_of_two_that_make_one_directory_one_wins(tmp_path):
  path = outputs.epath.Path(tmp_path / 'out')
  with outputs.durable(path) as temporary:
    temporary.mkdir()
    (temporary / 'inner').write_text('mine')
    path.mkdir()
    (path / 'inner').write_text('theirs')
  assert os.listdir(tmp_path) == ['out']
  assert (path / 'inner').read_text() == 'theirs'


def test_a_directory_appears_whole_and_remains_of_its_process_are_cleared(
  tmp_path,
):
  path = outputs.epath.Path(tmp_path / 'out')
  for _ in range(2):
    with pytest.raises(OSError):
      with outputs.durable(path) as temporary:
        temporary.mkdir()
        raise OSError
  with outputs.durable(path) as temporary:
    temporary.mkdir()
    (temporary / 'inner').write_text('new')
    assert os.listdir(tmp_path) == [temporary.name]
  assert os.listdir(tmp_path) == ['out']
