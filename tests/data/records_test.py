"""Every token is predicted once, and whatever is damaged is named."""

import array
import hashlib
import json
import os
import pickle

from array_record.python import array_record_module
from etils import epath
import numpy as np
import pytest

from leviathan import errors
from leviathan.data import manifest as manifest_lib
from leviathan.data import records
from leviathan.data import shards
from leviathan.data import stream
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers

PAD = records.PAD
EOS = 256


class Bytes:
  """A tokenizer by hand: the id of a byte is the byte, EOS is 256."""

  kind = 'bytes'
  vocab_size = 257
  eos_id = EOS
  unknown_id = None
  sha256 = 'none'

  def __init__(self, data=b'', name=''):
    del data, name

  def encode(self, content):
    return array.array('I', list(content.encode()))

  def save(self, directory):
    path = epath.Path(directory) / 'bytes.txt'
    path.write_text('bytes')
    return path


@pytest.fixture
def write(make_dataset, monkeypatch, tmp_path):
  """Makes a dataset of some texts, in their order."""

  def written(directory, texts, *, tokenizer=Bytes, shard_bytes=1 << 26, **kw):
    monkeypatch.setitem(tokenizers.KINDS, 'bytes', tokenizer)
    monkeypatch.setattr(shards, '_SHARD_BYTES', shard_bytes)
    tokenizers.load_once.cache_clear()
    (tmp_path / 'model').touch()
    try:
      return make_dataset(
        directory,
        texts,
        f'bytes:{tmp_path / "model"}',
        **({'seq_len': 8, 'shuffle_seed': None} | kw),
      )
    finally:
      (tmp_path / 'model').unlink()

  return written


def rows(directory):
  dataset = records.open_dataset(directory)
  return np.stack([dataset[i] for i in range(len(dataset))])


def test_rows_by_hand(write, tmp_path):
  manifest = write(tmp_path / 'd', ['ab', '', 'cde'], seq_len=3)
  a, b, c, d, e = b'abcde'
  np.testing.assert_array_equal(
    rows(tmp_path / 'd'),
    [[EOS, a, b, EOS], [EOS, c, d, e], [e, EOS, PAD, PAD]],
  )
  assert (manifest.sequences, manifest.tokens) == (3, 7)
  assert (manifest.documents, manifest.bytes) == (2, 5)
  assert manifest.skipped == {'empty_text': 1}


def test_a_full_last_row_has_no_padding_and_nothing_after_it(write, tmp_path):
  write(tmp_path / 'd', ['ab', 'cd'], seq_len=3)
  assert rows(tmp_path / 'd').shape == (2, 4)
  assert (rows(tmp_path / 'd') != PAD).all()


@pytest.mark.parametrize(
  'block, rows_at_once', [(1, 1), (50, 7), (1 << 16, 4096)]
)
@pytest.mark.parametrize('shard_bytes', [1, 200, 1 << 20])
@pytest.mark.parametrize('seq_len', [1, 7, 64])
def test_every_token_is_predicted_once(
  write, tmp_path, monkeypatch, seq_len, shard_bytes, block, rows_at_once
):
  monkeypatch.setattr(stream, '_BLOCK', rows_at_once)
  texts = ['x' * n + str(n) for n in range(30)]
  manifest = write(
    tmp_path / 'd',
    texts,
    seq_len=seq_len,
    shard_bytes=shard_bytes,
    block_bytes=block,
  )
  ids = [EOS]
  for content in texts:
    ids += [*content.encode(), EOS]
  rows_ = rows(tmp_path / 'd')
  targets = rows_[:, 1:].ravel()
  np.testing.assert_array_equal(targets[targets != PAD], ids[1:])
  np.testing.assert_array_equal(rows_[1:, 0], rows_[:-1, -1])
  assert rows_[0, 0] == EOS
  assert manifest.tokens == len(ids) - 1
  assert manifest.bytes == sum(map(len, texts))
  counts_V = records.open_dataset(tmp_path / 'd').unigram_counts()
  np.testing.assert_array_equal(counts_V, np.bincount(ids[1:], minlength=257))


def test_shards_are_bounded_and_hashed(write, tmp_path):
  manifest = write(tmp_path / 'd', ['x' * 100], seq_len=9, shard_bytes=199)
  assert [(s.name, s.sequences) for s in manifest.shards] == [
    (f'shard-0000{i}-of-00003.array_record', n) for i, n in enumerate([4, 4, 4])
  ]
  for shard in manifest.shards:
    data = (tmp_path / 'd' / shard.name).read_bytes()
    assert hashlib.sha256(data).hexdigest() == shard.sha256
  names = {s.name for s in manifest.shards}
  assert {p.name for p in (tmp_path / 'd').iterdir()} == names | {
    'manifest.json',
    'unigram_counts.npy',
    'document_hashes.npy',
    'bytes.txt',
  }


def test_the_fingerprint_is_that_of_the_rows(write, tmp_path):
  first = write(tmp_path / 'a', ['abc', 'd'])
  assert write(tmp_path / 'b', ['abc', '', 'd']).fingerprint == (
    first.fingerprint
  )
  assert write(tmp_path / 'c', ['abd', 'd']).fingerprint != first.fingerprint
  # The rows are [EOS a b c EOS ...] in both, yet they are cut otherwise.
  other = write(tmp_path / 'e', ['abc', 'd'], seq_len=9)
  assert other.fingerprint != first.fingerprint


@pytest.mark.parametrize('texts', [[''], ['', '']])
def test_no_tokens_is_an_error_and_leaves_nothing(write, tmp_path, texts):
  with pytest.raises(errors.DataError, match='0 tokens'):
    write(tmp_path / 'd', texts)
  assert not list(tmp_path.iterdir())


def test_what_exists_is_kept(write, tmp_path):
  write(tmp_path / 'd', ['abc'])
  before = {p: p.read_bytes() for p in (tmp_path / 'd').iterdir()}
  with pytest.raises(errors.DataError, match='never overwritten'):
    write(tmp_path / 'd', ['other'])
  assert {p: p.read_bytes() for p in (tmp_path / 'd').iterdir()} == before


def test_seq_len_is_checked(write, tmp_path):
  with pytest.raises(errors.ConfigError, match='seq_len=0'):
    write(tmp_path / 'd', ['abc'], seq_len=0)


@pytest.mark.parametrize(
  'bad_id, message',
  [
    (EOS, r'd.jsonl:2.*end-of-sequence, id 256'),
    (257, r'd.jsonl:2.*257, outside \[0, 257\)'),
  ],
)
def test_ids_that_are_no_text_are_refused(write, tmp_path, bad_id, message):
  class Bad(Bytes):
    def encode(self, content):
      if content == 'bad':
        return array.array('I', [bad_id])
      return super().encode(content)

  with pytest.raises(errors.DataError, match=message):
    write(tmp_path / 'd', ['good', 'bad'], tokenizer=Bad)
  assert not list(tmp_path.iterdir())


def test_a_dataset_can_be_pickled_and_indexed(write, tmp_path):
  write(tmp_path / 'd', ['x' * 100], shard_bytes=100)
  dataset = records.open_dataset(str(tmp_path / 'd'))
  again = pickle.loads(pickle.dumps(dataset))
  for i in range(len(dataset)):
    np.testing.assert_array_equal(again[np.int64(i)], dataset[i])
  assert dataset[0].dtype == np.uint32
  for outside in (-1, len(dataset)):
    with pytest.raises(IndexError):
      dataset[outside]


def shard(directory, i=1):
  return sorted(directory.glob('shard-*'))[i]


def test_a_missing_shard_is_named(write, tmp_path):
  write(tmp_path / 'd', ['x' * 100], shard_bytes=100)
  path = shard(tmp_path / 'd')
  path.unlink()
  with pytest.raises(errors.DataError, match=f'shard {path} is missing'):
    records.open_dataset(tmp_path / 'd')


@pytest.mark.parametrize('keep', [0.0, 0.5, 0.999])
def test_a_shard_cut_short_is_named(write, tmp_path, keep):
  write(tmp_path / 'd', ['x' * 100], shard_bytes=100)
  path = shard(tmp_path / 'd')
  os.truncate(path, int(path.stat().st_size * keep))
  with pytest.raises(errors.DataError, match=f'shard {path} '):
    records.open_dataset(tmp_path / 'd')


def test_damage_inside_a_shard_is_named(write, tmp_path):
  write(tmp_path / 'd', ['x' * 1000], shard_bytes=1000)
  path = shard(tmp_path / 'd')
  data = path.read_bytes()
  path.write_bytes(
    data[:200] + bytes(b ^ 255 for b in data[200:600]) + data[600:]
  )
  with pytest.raises(errors.DataError, match=rf'{path}: record \d+ is damaged'):
    rows(tmp_path / 'd')


def replace_shard(directory, datas):
  """Puts records of any bytes in place of shard 1, by the book."""
  path = shard(directory)
  path.unlink()
  writer = array_record_module.ArrayRecordWriter(str(path), 'group_size:1')
  for data in datas:
    writer.write(data)
  writer.close()
  return path


def test_a_shard_with_records_too_few_is_named(write, tmp_path):
  manifest = write(tmp_path / 'd', ['x' * 100], shard_bytes=100)
  count = manifest.shards[1].sequences
  path = replace_shard(tmp_path / 'd', [b'a' * 36] * (count - 1))
  with pytest.raises(
    errors.DataError, match=f'{path} has {count - 1} rec.*{count}'
  ):
    records.open_dataset(tmp_path / 'd')


@pytest.mark.parametrize(
  'row, message',
  [
    ([1, 2, 3], r'record 1 has 12 bytes, not 36'),
    ([0, 1, 2, 257, 4, 5, 6, 7, 8], r'record 1, offset 3: id 257'),
    # A negative id, and a row that begins again after its padding.
    ([0, 1, 2**32 - 2, 3, 4, 5, 6, 7, 8], r'offset 2: id 4294967294'),
    ([0, 1, 2, 3, 4, 5, PAD, 7, 8], r'offset 6: id 4294967295'),
  ],
)
def test_a_bad_row_is_named(write, tmp_path, row, message):
  write(tmp_path / 'd', ['x' * 31], shard_bytes=80)
  good = np.array([*range(8), PAD], '<u4').tobytes()
  path = replace_shard(tmp_path / 'd', [good, np.array(row, '<u4').tobytes()])
  dataset = records.open_dataset(tmp_path / 'd')
  assert len(dataset) == 4
  assert dataset[2].tobytes() == good
  with pytest.raises(errors.DataError, match=message) as e:
    dataset[3]
  assert str(path) in str(e.value)


GONE = object()


def change(values, **changes):
  return {k: v for k, v in (values | changes).items() if v is not GONE}


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'format_version': 1}, 'format_version=1.* reads 2'),
    ({'format_version': GONE}, 'format_version=None'),
    ({'bytes': GONE}, "'bytes' is missing"),
    ({'colour': 1}, "'colour' is unknown"),
    ({'tokens': '9'}, "tokens='9' is of the wrong type"),
    ({'documents': True}, 'documents=True is of the wrong type'),
    ({'shards': {}}, 'shards={} is of the wrong type'),
    ({'shards': [{'name': 'a'}]}, r"shards\[0\]: 'sequences' is missing"),
    ({'skipped': {'a': 'b'}}, "skipped.a='b' is of the wrong type"),
    ({'sequences': 9}, 'sequences does not fit'),
    ({'tokens': 900}, 'tokens does not fit'),
    ({'seq_len': 7}, 'fingerprint does not fit'),
    ({'shuffle_seed': 7}, 'fingerprint does not fit'),
    ({'shuffle_seed': GONE}, "'shuffle_seed' is missing"),
    ({'shuffle_seed': '7'}, 'shuffle_seed=.7. is of the wrong type'),
    ({'records': 7}, 'records does not fit'),
    ({'documents': 7}, 'records does not fit'),
    ({'skipped': {'not_json': 1}}, 'records does not fit'),
    ({'elsewhere': 1}, 'records does not fit'),
    ({'seq_len': 0}, 'does not fit'),
  ],
)
def test_the_manifest_is_strict(write, tmp_path, changes, message):
  write(tmp_path / 'd', ['abc'])
  path = tmp_path / 'd' / manifest_lib.FILE
  values = json.loads(path.read_text())
  path.write_text(json.dumps(change(values, **changes)))
  with pytest.raises(errors.DataError, match=message) as e:
    records.open_dataset(tmp_path / 'd')
  assert str(path) in str(e.value)


def test_the_manifest_survives_its_json(write, tmp_path):
  manifest = write(tmp_path / 'd', ['abc', ''])
  assert manifest_lib.Manifest.from_json(manifest.to_json(), 'here') == manifest
  with pytest.raises(errors.DataError, match='not valid JSON'):
    manifest_lib.Manifest.from_json(manifest.to_json()[:-3], 'here')


def test_a_directory_that_holds_datasets_names_them(write, tmp_path):
  write(tmp_path / 'd' / 'train', ['abc'])
  write(tmp_path / 'd' / 'validation', ['abc'])
  with pytest.raises(errors.DataError, match='give one of train, validation'):
    records.open_dataset(tmp_path / 'd')
  with pytest.raises(errors.DataError, match='`leviathan prepare` makes one'):
    records.open_dataset(tmp_path / 'no')


def test_counts_that_do_not_belong_are_refused(write, tmp_path):
  write(tmp_path / 'd', ['abc'])
  path = tmp_path / 'd' / records.COUNTS_FILE
  for wrong in (np.zeros(257, np.int64), np.full(4, 1)):
    np.save(path, wrong)
    with pytest.raises(errors.DataError, match='unigram_counts.npy has s'):
      records.open_dataset(tmp_path / 'd').unigram_counts()
  path.unlink()
  with pytest.raises(errors.DataError, match='unigram_counts.npy cannot be'):
    records.open_dataset(tmp_path / 'd').unigram_counts()


def test_the_tokenizer_comes_along_and_must_be_the_same(make_dataset, tmp_path):
  corpus = [text.Document(text='the cat sat\n' * 9, path='a.txt', line=1)]
  for name, vocab_size in (('a', 270), ('b', 271)):
    tokenizers.train(corpus, vocab_size, tmp_path / name)
  path = tmp_path / 'a' / tokenizers.MODEL_FILE
  tokenizer = tokenizers.load(f'spm:{path}')
  make_dataset(tmp_path / 'd', ['the cat'], f'spm:{path}')
  dataset = records.open_dataset(tmp_path / 'd')
  assert dataset.tokenizer().sha256 == tokenizer.sha256
  assert dataset.tokenizer().decode(dataset[0][:3]).startswith('the')
  other = (tmp_path / 'b' / tokenizers.MODEL_FILE).read_bytes()
  (tmp_path / 'd' / tokenizers.MODEL_FILE).write_bytes(other)
  with pytest.raises(errors.DataError, match='tokenizer.model has sha256'):
    dataset.tokenizer()
