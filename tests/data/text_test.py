"""Files in, documents out; whatever is wrong is named by file and line."""

import gzip
import json
import pathlib

import pytest
import zstandard

from leviathan import errors
from leviathan.data import text

SHARED = pathlib.Path(__file__).parents[3] / 'shared' / 'data'
TEXTS = [
  'plain',
  'two\nlines\r\n',
  # Separators that are no line ends here, though str.splitlines thinks so.
  'a\u2028b\x85c\x0bd',
  '\u0161 \U0001f600 ' * 50,
  '',
]


def jsonl(texts, key='text', end='\n'):
  rows = (json.dumps({key: t}, ensure_ascii=False) for t in texts)
  return ''.join(row + end for row in rows).encode()


def read(path, key='text'):
  return [d.text for d in text.documents(path, key)]


def frames(data, n=3):
  """`data` as n zstd frames, cut anywhere."""
  size = -(-len(data) // n)
  return b''.join(
    zstandard.compress(data[i * size : (i + 1) * size]) for i in range(n)
  )


@pytest.mark.parametrize('chunk', [1, 7, 1 << 20])
@pytest.mark.parametrize(
  'suffix, pack',
  [('', bytes), ('.gz', gzip.compress), ('.zst', frames)],
)
def test_each_kind_gives_the_same_documents(
  tmp_path, monkeypatch, suffix, pack, chunk
):
  monkeypatch.setattr(text, '_CHUNK', chunk)
  path = tmp_path / f'a.jsonl{suffix}'
  path.write_bytes(pack(jsonl(TEXTS)))
  assert read(path) == TEXTS


def test_a_txt_file_is_one_exact_document(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_bytes(b'\xef\xbb\xbf a\r\n\n')
  (document,) = text.documents(path, 'text')
  assert (document.text, document.where) == ('\ufeff a\r\n\n', f'{path}:1')


def test_blank_lines_and_crlf_are_no_records_and_lines_are_counted(tmp_path):
  path = tmp_path / 'a.jsonl'
  path.write_bytes(b'\n' + jsonl(['a', 'b'], end='\r\n') + b'  \n{"text":"c"}')
  documents = list(text.documents(path, 'text'))
  assert [(d.text, d.line) for d in documents] == [('a', 2), ('b', 3), ('c', 5)]


@pytest.mark.parametrize(
  'line, message',
  [
    (b'{"text": "a"', 'not valid JSON'),
    (b'[' * 100_000, 'not valid JSON'),
    (b'["text"]', 'is a JSON list'),
    (b'{"text": "\xff"}', 'not UTF-8'),
    (b'{"content": "a", "id": 1}', "only 'content', 'id'"),
    (b'{}', 'only none'),
    (b'{"text": 5}', 'has a int'),
    (b'{"text": "\\ud800"}', 'surrogate'),
  ],
)
def test_a_bad_record_is_named(tmp_path, line, message):
  path = tmp_path / 'a.jsonl'
  path.write_bytes(jsonl(['good']) + line + b'\n')
  documents = text.documents(path, 'text')
  assert next(documents).text == 'good'
  with pytest.raises(errors.DataError, match=message) as e:
    next(documents)
  assert str(e.value).startswith(f'{path}:2 ')


def test_bad_utf8_in_a_txt_file_is_named(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_bytes(b'a\nb\nc\xff')
  with pytest.raises(errors.DataError, match='a.txt:3 is not UTF-8'):
    read(path)


@pytest.mark.parametrize('keep', [0.3, 0.6, 0.99])
@pytest.mark.parametrize(
  'suffix, pack', [('.gz', gzip.compress), ('.zst', zstandard.compress)]
)
def test_a_file_cut_short_is_an_error(tmp_path, suffix, pack, keep):
  data = pack(jsonl(str(i) * 50 for i in range(1000)))
  path = tmp_path / f'a.jsonl{suffix}'
  path.write_bytes(data[: int(len(data) * keep)])
  with pytest.raises(errors.DataError, match='truncated or damaged'):
    read(path)


@pytest.mark.parametrize('suffix', ['.gz', '.zst'])
def test_a_file_that_is_not_compressed_is_an_error(tmp_path, suffix):
  path = tmp_path / f'a.jsonl{suffix}'
  path.write_bytes(jsonl(['a']))
  with pytest.raises(errors.DataError, match='truncated or damaged'):
    read(path)


@pytest.mark.parametrize(
  'name, data, message',
  [
    ('a.csv', b'a', 'no known kind'),
    ('a.jsonl', b'', '0 bytes'),
    ('a.txt', None, 'not a file'),
  ],
)
def test_an_unreadable_file_is_refused_before_the_first_document(
  tmp_path, name, data, message
):
  if data is not None:
    (tmp_path / name).write_bytes(data)
  with pytest.raises(errors.DataError, match=message):
    text.documents(tmp_path / name, 'text')


def test_the_pile_as_it_comes():
  path = SHARED / 'pile' / '00.jsonl.zst'
  if not path.exists():
    pytest.skip('shared/data/pile is not beside the repository')
  texts = read(path)
  assert texts and all(texts)


def test_expand_is_sorted_recursive_and_gives_each_file_once(tmp_path):
  for name in (
    *('b.txt', 'a.txt', 'deep/er/c.txt', 'odd[1].txt'),
    *('.hidden.txt', '.data.incomplete/d.txt', 'deep[2]/e.txt'),
  ):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text('x')

  def names(pattern):
    return [str(p.relative_to(tmp_path)) for p in text.expand(pattern)]

  flat = ['a.txt', 'b.txt', 'odd[1].txt']
  assert names(f'{tmp_path}/*.txt') == flat
  assert names(f'{tmp_path}/**/*.txt') == [
    *('a.txt', 'b.txt', 'deep/er/c.txt', 'deep[2]/e.txt', 'odd[1].txt')
  ]
  assert names(f'{tmp_path}/d*/**') == ['deep/er/c.txt', 'deep[2]/e.txt']
  assert names(f'{tmp_path}/**/er/**/*.txt') == ['deep/er/c.txt']
  assert names(f'{tmp_path}/b.txt, {tmp_path}/[ab].txt') == flat[:2]
  assert names(f'{tmp_path}/odd[1].txt') == [flat[2]]


@pytest.mark.parametrize(
  'pattern, message',
  [
    ('*.jsonl', r'\*.jsonl.* matches no file'),
    ('b.txt', 'b.txt.* matches no file'),
    ('a.txt,c*', r'c\*.* matches no file'),
    ('', 'is a directory'),
    ('*', 'no known kind'),
  ],
)
def test_expand_names_the_pattern_that_is_wrong(
  tmp_path, monkeypatch, pattern, message
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'a.txt').write_text('x')
  (tmp_path / 'table.csv').write_text('x')
  with pytest.raises(errors.DataError, match=message):
    text.expand(pattern)
