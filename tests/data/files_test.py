"""Globs, here and elsewhere; a compressed file is whole or refused."""

import gzip
import pathlib

import fsspec
import pytest
import zstandard

from leviathan import errors
from leviathan.data import files


def test_expand_is_sorted_recursive_and_gives_each_file_once(tmp_path):
  for name in (
    *('b.txt', 'a.txt', 'deep/er/c.txt', 'odd[1].txt'),
    *('.hidden.txt', '.data.incomplete/d.txt', 'deep[2]/e.txt'),
  ):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text('x')

  def names(pattern):
    return [
      str(pathlib.Path(p).relative_to(tmp_path)) for p in files.expand(pattern)
    ]

  flat = ['a.txt', 'b.txt', 'odd[1].txt']
  assert names(f'{tmp_path}/*.txt') == flat
  assert names(f'{tmp_path}/**/*.txt') == [
    *('a.txt', 'b.txt', 'deep/er/c.txt', 'deep[2]/e.txt', 'odd[1].txt')
  ]
  assert names(f'{tmp_path}/d*/**') == ['deep/er/c.txt', 'deep[2]/e.txt']
  assert names(f'{tmp_path}/**/er/**/*.txt') == ['deep/er/c.txt']
  assert names(f'{tmp_path}/b.txt, {tmp_path}/[ab].txt,') == flat[:2]
  assert names(f'{tmp_path}/odd[1].txt') == [flat[2]]


@pytest.mark.parametrize(
  'pattern, message',
  [
    ('*.jsonl', r'\*.jsonl.* matches no file'),
    ('b.txt', 'b.txt.* matches no file'),
    ('a.txt,c*', r'c\*.* matches no file'),
    ('', 'names no file'),
    (' , ', 'names no file'),
    ('.', 'is a directory'),
    ('nowhere://a.txt', 'out of reach'),
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
    files.expand(pattern)


def test_a_bucket_is_read_like_a_disk(tmp_path):
  bucket = fsspec.filesystem('memory')
  contents = {'b.jsonl.zst': zstandard.compress(b'b'), 'deep/a.txt': b'a'}
  for name, data in contents.items():
    bucket.pipe(f'/bucket/{name}', data)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(data)
  there, here = (
    files.expand(f'{root}/**/*.*') for root in ('memory://bucket', tmp_path)
  )
  assert len(there) == 2 and all(p.startswith('memory://') for p in there)
  for remote, local in zip(there, here, strict=True):
    assert files.size(remote) == files.size(local)
    assert list(files.chunks(remote)) == list(files.chunks(local))


def test_a_window_that_would_take_gigabytes_is_refused(tmp_path):
  settings = zstandard.ZstdCompressionParameters(window_log=28)
  packer = zstandard.ZstdCompressor(compression_params=settings).compressobj()
  path = tmp_path / 'a.jsonl.zst'
  path.write_bytes(packer.compress(b'a') + packer.flush())
  with pytest.raises(errors.DataError, match='too much memory'):
    list(files.chunks(str(path)))


@pytest.mark.parametrize(
  'suffix, pack', [('.gz', gzip.compress), ('.zst', zstandard.compress)]
)
@pytest.mark.parametrize('junk', [b'\x01\x02', b'{"text": "a"}\n'])
def test_bytes_behind_the_last_frame_are_damage(tmp_path, suffix, pack, junk):
  path = tmp_path / f'a.jsonl{suffix}'
  path.write_bytes(pack(b'{}') + junk)
  with pytest.raises(errors.DataError, match='truncated or damaged'):
    list(files.chunks(str(path)))


def test_links_are_followed(tmp_path):
  (tmp_path / 'a.txt').write_text('a')
  (tmp_path / 'b.txt').symlink_to('a.txt')
  (tmp_path / 'gone.txt').symlink_to('nowhere')
  assert [p[-5:] for p in files.expand(f'{tmp_path}/*.txt')] == [
    'a.txt',
    'b.txt',
  ]
