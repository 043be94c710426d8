"""The corpus is the library's text, in order, and nothing else."""

import json
import sysconfig

import pytest

from leviathan import errors
from leviathan.data import stdlib
from leviathan.data import text


def test_only_text_in_order(tmp_path):
  root = tmp_path / 'root'
  for name in (
    *('b.py', 'a/c.py', 'LICENSE.txt', 'a/test_c.py'),
    *('a/test/d.py', 'site-packages/e.py', 'idlelib/idle_test/f.py'),
    *('lib2to3/tests/g.py', 'a/__pycache__/h.py', 'i.so', 'latin.py'),
  ):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(f'# {name} \u00e9\n', newline='')
  (root / 'latin.py').write_bytes(b'# \xe9\n')
  output = tmp_path / 'corpus.jsonl'
  documents, size, skipped = stdlib.write(output, root)
  rows = [json.loads(line) for line in output.read_bytes().splitlines()]
  names = ['LICENSE.txt', 'a/c.py', 'a/test_c.py', 'b.py']
  assert [row['path'] for row in rows] == names
  assert [row['text'] for row in rows] == [f'# {n} \u00e9\n' for n in names]
  assert (documents, skipped) == (4, 1)
  assert size == sum(len(row['text'].encode()) for row in rows)


def test_further_texts_follow_in_parts_that_lose_nothing(tmp_path):
  root, also = tmp_path / 'root', tmp_path / 'also'
  root.mkdir()
  (root / 'long.py').write_text('x = 1\n\n' * stdlib.PART)
  (also / 'peps').mkdir(parents=True)
  book = ''.join(f'Chapter {i}\n' + 'word ' * 999 + '\n\n' for i in range(9))
  for name in ('book.txt', 'peps/pep.rst', 'cover.jpg'):
    (also / name).write_text(book)
  output = tmp_path / 'corpus.jsonl'
  documents, size, _ = stdlib.write(output, root, [str(also)])
  rows = [json.loads(line) for line in output.read_bytes().splitlines()]
  assert documents == len(rows)
  assert size == sum(len(row['text'].encode()) for row in rows)
  assert rows[0]['path'] == 'long.py'  # The library's files stay whole.
  parts = [row['text'] for row in rows if row['path'].endswith('book.txt')]
  assert ''.join(parts) == book
  assert len(parts) == 3
  assert all(len(part) >= stdlib.PART for part in parts[:-1])
  assert all(part.startswith('Chapter ') for part in parts)
  assert {row['path'] for row in rows[1:]} == {
    (also / name).as_posix() for name in ('book.txt', 'peps/pep.rst')
  }


def test_a_directory_without_text_is_refused(tmp_path):
  with pytest.raises(errors.DataError, match='--also=.*/nothing holds no file'):
    stdlib.write(tmp_path / 'out', tmp_path, [str(tmp_path / 'nothing')])
  assert not (tmp_path / 'out').exists()


def test_what_exists_is_kept(tmp_path):
  (tmp_path / 'out').write_text('mine')
  with pytest.raises(errors.DataError, match='never overwritten'):
    stdlib.write(tmp_path / 'out', tmp_path)
  assert (tmp_path / 'out').read_text() == 'mine'


def test_the_real_library_is_large_enough_to_learn_from(tmp_path):
  output = tmp_path / 'corpus.jsonl'
  documents, size, _ = stdlib.write(output, sysconfig.get_path('stdlib'))
  assert documents > 400 and size > 5e6
  assert sum(1 for _ in text.documents(output, 'text')) == documents
