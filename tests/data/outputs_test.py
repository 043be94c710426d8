"""Outputs are whole or absent, and nothing that exists is touched."""

import pytest

from leviathan import errors
from leviathan.data import outputs


def make_file(path):
  path.write_text('new')


def make_directory(path):
  (path / 'inner').write_text('new')


KINDS = pytest.mark.parametrize(
  'opened, fill',
  [(outputs.new_file, make_file), (outputs.new_directory, make_directory)],
)


@KINDS
def test_it_appears_whole_at_the_end(tmp_path, opened, fill):
  path = tmp_path / 'above' / 'out'
  with opened(path) as temporary:
    fill(temporary)
    assert not path.exists()
  assert path.exists() and list(path.parent.iterdir()) == [path]


@KINDS
def test_an_error_leaves_nothing(tmp_path, opened, fill):
  with pytest.raises(KeyboardInterrupt):
    with opened(tmp_path / 'out') as temporary:
      fill(temporary)
      raise KeyboardInterrupt
  assert not list(tmp_path.iterdir())


@KINDS
def test_what_exists_is_refused_untouched(tmp_path, opened, fill):
  del fill
  for name in ('file', 'directory/file'):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('old')
    with pytest.raises(errors.DataError, match='never overwritten'):
      with opened(tmp_path / name.split('/')[0]):
        pytest.fail('entered')
    assert (tmp_path / name).read_text() == 'old'
  assert len(list(tmp_path.iterdir())) == 2


def test_the_remains_of_a_killed_run_are_cleared(tmp_path):
  (tmp_path / '.out.incomplete').mkdir()
  (tmp_path / '.out.incomplete' / 'shard').write_text('old')
  with outputs.new_directory(tmp_path / 'out') as temporary:
    make_directory(temporary)
  assert [p.name for p in tmp_path.rglob('*')] == ['out', 'inner']


def test_an_empty_directory_is_taken(tmp_path):
  (tmp_path / 'out').mkdir()
  with outputs.new_directory(tmp_path / 'out') as temporary:
    make_directory(temporary)
  assert (tmp_path / 'out' / 'inner').read_text() == 'new'
