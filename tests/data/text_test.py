"""Files in, documents out; whatever is wrong is named by file and line."""

import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tracemalloc

import pytest
import zstandard

from leviathan import errors
from leviathan.data import files
from leviathan.data import text

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
  monkeypatch.setattr(files, '_CHUNK', chunk)
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
    (b'["text"]', 'is an array'),
    (b'{"text": "\xff"}', 'not UTF-8'),
    (b'{"content": "a", "id": 1}', "only 'content', 'id'"),
    (b'{}', 'only none'),
    (b'{"text": 5}', 'has a number'),
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


@pytest.mark.parametrize(
  'suffix, pack', [('.gz', gzip.compress), ('.zst', zstandard.compress)]
)
def test_a_compressed_file_of_nothing_is_named(tmp_path, suffix, pack):
  (tmp_path / 'a.jsonl').write_bytes(b'{"text": "a"}')
  path = tmp_path / f'b.jsonl{suffix}'
  path.write_bytes(pack(b''))
  with pytest.raises(errors.DataError, match='holds 0 bytes') as e:
    read_all([tmp_path / 'a.jsonl', path])
  assert str(path) in str(e.value)


def test_bad_utf8_in_a_txt_file_is_named(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_bytes(b'a\nb\nc\xff')
  with pytest.raises(errors.DataError, match='a.txt:1 is not UTF-8.*byte 5'):
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


# Every kind of bad record, and the reason that it is counted under.
BAD = [
  (b'{"text": "a"', 'not_json'),
  (b'["text"]', 'not_an_object'),
  (b'{"text": "\xff"}', 'not_utf8'),
  (b'{"meta": {"set": "a"}}', 'no_text'),
  (b'{"text": null, "meta": {"set": "a"}}', 'text_not_a_string'),
  (b'{"text": "\\udc00"}', 'text_has_half_a_surrogate_pair'),
  (b'{"text": "a", "meta": {}}', 'no_subset'),
  (b'{"text": "a", "meta": "set"}', 'no_subset'),
  (b'{"text": "a", "meta": {"set": ""}}', 'no_subset'),
  (b'{"text": "a", "meta": {"set": 1}}', 'subset_not_a_string'),
  (b'{"text": "' + b'a' * 400 + b'"}', 'too_large'),
  (b'{"text": "a", "meta": {"set": "' + b'a' * 81 + b'"}}', 'subset_too_long'),
  (b'\xef\xbb\xbf{"text": "a"}', 'not_json'),
]
GOOD = b'{"text": "good", "meta": {"set": "b c"}}'
FORMAT = text.Format(split_by='meta.set', max_record_bytes=300)


def read_with(format_, path):
  """All records of a file."""
  blocks = text.blocks([str(path)], format_)
  return [record for _, records in blocks for record in records]


def read_all(paths, *arguments):
  """All records, with the block of each."""
  return [
    (block, record)
    for block, records in text.blocks(
      [str(path) for path in paths], FORMAT, *arguments
    )
    for record in records
  ]


def test_every_bad_record_is_counted_and_all_others_are_read(tmp_path):
  path = tmp_path / 'a.jsonl'
  lines = [x for bad, _ in BAD for x in (bad, GOOD)]
  path.write_bytes(b'\n'.join(lines))
  found = [record for _, record in read_all([path])]
  assert [(r.reason, r.line) for r in found[::2]] == [
    (reason, 2 * i + 1) for i, (_, reason) in enumerate(BAD)
  ]
  for i, document in enumerate(found[1::2]):
    assert (document.text, document.subset) == ('good', 'b c')
    assert document.where == f'{path}:{2 * i + 2}'


@pytest.mark.parametrize('limit, bad', [(3, True), (4, False)])
@pytest.mark.parametrize('end', [b'', b'\n'])
@pytest.mark.parametrize('chunk', [1, 3, 100])
def test_a_record_may_have_so_many_bytes(
  tmp_path, monkeypatch, chunk, end, limit, bad
):
  monkeypatch.setattr(files, '_CHUNK', chunk)
  path = tmp_path / 'a.jsonl'
  path.write_bytes(b'[12]' + end)
  format_ = text.Format(max_record_bytes=limit)
  records = read_with(format_, path)
  assert [r.reason for r in records] == [
    'too_large' if bad else 'not_an_object'
  ]
  path = tmp_path / 'a.txt'
  path.write_bytes(b'four')
  records = read_with(format_, path)
  assert [isinstance(r, text.BadRecord) for r in records] == [bad]


def test_a_txt_file_has_no_subset(tmp_path):
  (tmp_path / 'a.txt').write_text('a')
  ((_, record),) = read_all([tmp_path / 'a.txt'])
  assert record.reason == 'no_subset'


@pytest.fixture
def corpus(tmp_path):
  """Files of all kinds: lines of 0 to 300 bytes, bad ones and blanks too."""
  rows = [
    b'\n' * (i % 3)
    + b'{"text": "%s", "meta": {"set": "s"}}' % (b'a' * (i % 47))
    for i in range(90)
  ]
  rows += [bad for bad, _ in BAD]
  data = b'\n'.join(rows)
  for name, pack in (
    ('a.jsonl', bytes),
    ('b.jsonl.gz', gzip.compress),
    ('c.jsonl.zst', frames),
  ):
    (tmp_path / name).write_bytes(pack(data))
  (tmp_path / 'd.txt').write_bytes(b'text')
  return sorted(tmp_path.iterdir())


def test_blocks_by_hand(tmp_path):
  """Records begin at bytes 0, 3, 6 of one file, and 8, 11 of both."""
  (tmp_path / 'a.jsonl').write_bytes(b'[]\n[]\n[]')
  (tmp_path / 'b.jsonl.gz').write_bytes(gzip.compress(b'[]\n[]\n'))
  (tmp_path / 'c.txt').write_bytes(b'text')
  paths = [str(path) for path in sorted(tmp_path.iterdir())]
  found = [
    (block, [(pathlib.Path(r.path).name, r.line) for r in records])
    for block, records in text.blocks(paths, text.Format(), 4)
  ]
  assert found == [
    (0, [('a.jsonl', 1), ('a.jsonl', 2)]),
    (1, [('a.jsonl', 3)]),
    (2, [('b.jsonl.gz', 1), ('b.jsonl.gz', 2)]),
    (3, [('c.txt', 1)]),
  ]


@pytest.mark.parametrize('chunk', [5, 64, 1 << 20])
@pytest.mark.parametrize('size', [1, 40, 1000, 1 << 30])
@pytest.mark.parametrize('parts', [1, 3])
def test_workers_that_share_files_read_each_record_once(
  corpus, monkeypatch, parts, size, chunk
):
  whole = read_all(corpus, size)
  assert len({block for block, _ in whole}) > 1 or size > 1000
  monkeypatch.setattr(files, '_CHUNK', chunk)
  shares = [
    read_all(corpus, size, lambda block, i=i: block % parts == i)
    for i in range(parts)
  ]
  for i, share in enumerate(shares):
    assert share == [found for found in whole if found[0] % parts == i]
  # All of them see the same blocks.
  seen = [
    [
      block
      for block, _ in text.blocks(
        [str(path) for path in corpus], FORMAT, size, lambda b, i=i: b == i
      )
    ]
    for i in range(-1, 3)
  ]
  assert seen == [seen[0]] * 4


def test_a_decompression_bomb_is_a_bad_record_in_bounded_memory(tmp_path):
  bomb = zstandard.ZstdCompressor(level=19).compressobj()
  with open(tmp_path / 'bomb.jsonl.zst', 'wb') as file:
    file.write(bomb.compress(b'{"text": "good"}\n{"text": "'))
    for _ in range(512):
      file.write(bomb.compress(b'a' * (1 << 20)))
    file.write(bomb.compress(b'"}\n{"text": "after"}\n') + bomb.flush())
  assert (tmp_path / 'bomb.jsonl.zst').stat().st_size < 1 << 20
  tracemalloc.start()
  format_ = text.Format(max_record_bytes=1 << 22)
  good, bad, after = read_with(format_, tmp_path / 'bomb.jsonl.zst')
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert (good.text, bad.reason, after.text) == ('good', 'too_large', 'after')
  assert (bad.line, after.line) == (2, 3)
  assert peak < 4 * (1 << 22)


@pytest.mark.skipif(
  not os.path.exists('/proc/self/status'), reason='only Linux tells the peak'
)
def test_a_gigabyte_is_read_in_bounded_memory(tmp_path):
  path = tmp_path / 'a.jsonl.zst'
  part = jsonl(['some words ' * 2000] * 1000)  # 22 MB, packed to a few kB.
  with open(path, 'wb') as file:
    file.write(zstandard.compress(part) * 46)
  script = (
    'import sys; from leviathan.data import text\n'
    'size = 0\n'
    'for document in text.documents(sys.argv[1], "text"):\n'
    '  size += len(document.text)\n'
    'print(size, open("/proc/self/status").read())\n'
  )
  found = subprocess.run(
    [sys.executable, '-c', script, path],
    capture_output=True,
    text=True,
    check=True,
  )
  assert int(found.stdout.split()[0]) > 1e9
  (peak_kib,) = re.findall(r'VmHWM:\s+(\d+) kB', found.stdout)
  assert int(peak_kib) < 100 << 10


def test_the_pile_and_c4_as_they_come(shared):
  pile = shared / 'data' / 'pile'
  format_ = text.Format(split_by='meta.pile_set_name')
  records = read_with(format_, pile / 'pile_real_rows.jsonl')
  together = list(records)
  apart = [
    (document.text, document.subset)
    for name in ('00', 'test', 'val')
    for document in read_with(format_, pile / f'{name}.jsonl.zst')
  ]
  assert sorted((d.text, d.subset) for d in together) == sorted(apart)
  assert {subset for _, subset in apart} == {
    'Pile-CC',
    'Wikipedia (en)',
    'OpenWebText2',
  }
  c4 = sorted((shared / 'data' / 'c4').iterdir())
  assert all(read(path) for path in c4)
