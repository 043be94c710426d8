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
