"""A dataset in a bucket is read from a copy that is known to be the same."""

from concurrent import futures
import shutil
import time

from etils import epath
import numpy as np
import pytest

from leviathan import errors
from leviathan import storage
from leviathan.data import copies as copies_lib
from leviathan.data import records


@pytest.fixture
def uploaded(store, tiny, tmp_path, monkeypatch):
  """The validation set in a bucket, and an empty place for copies."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  with store.lock:
    store.objects['runs'].clear()
    for path in (tiny.directory / 'validation').iterdir():
      store._put('runs', f'data/{path.name}', path.read_bytes(), {})
  return 'gs://runs/data'


def copies(tmp_path):
  return [p.parent for p in tmp_path.glob('leviathan/*/manifest.json')]


def test_rows_are_those_of_the_bucket_and_copied_once(
  uploaded, store, tiny, tmp_path
):
  here = records.open_dataset(tiny.directory / 'validation')
  found = records.open_dataset(uploaded)
  np.testing.assert_array_equal(found.read([0, 5]), here.read([0, 5]))
  assert found.tokenizer().sha256 == here.tokenizer().sha256
  assert (found.unigram_counts() == here.unigram_counts()).all()
  assert len(copies(tmp_path)) == 1
  for name in store.names('runs'):
    if not name.endswith('manifest.json'):
      del store.objects['runs'][name]
  records.open_dataset(uploaded)


def test_a_copy_that_was_cut_short_is_made_whole(uploaded, tmp_path):
  records.open_dataset(uploaded)
  (copy,) = copies(tmp_path)
  (copy / 'manifest.json').unlink()
  (shard,) = copy.glob('shard-*')
  shard.unlink()
  records.open_dataset(uploaded)
  assert shard.exists()


def test_a_shard_that_is_not_the_manifest_s_is_refused(
  uploaded, store, tmp_path
):
  (name,) = store.names('runs', 'data/shard-')
  data = bytearray(store.objects['runs'][name].data)
  data[len(data) // 2] ^= 1
  with store.lock:
    store._put('runs', name, bytes(data), {})
  with pytest.raises(errors.DataError, match=f'{name} has sha256'):
    records.open_dataset(uploaded)
  assert not copies(tmp_path)


def test_a_disk_without_space_is_named_before_anything_is_copied(
  uploaded, tmp_path, monkeypatch
):
  monkeypatch.setattr(
    shutil, 'disk_usage', lambda path: shutil._ntuple_diskusage(9, 0, 9)
  )
  with pytest.raises(errors.DataError, match='where 9 are free'):
    records.open_dataset(uploaded)
  assert not list(tmp_path.rglob('shard-*'))


def test_of_several_that_ask_at_once_one_copies(
  uploaded, tmp_path, monkeypatch
):
  names, download = [], storage.download

  def slow(path, target):
    names.append(path.name)
    time.sleep(0.2)
    download(path, target)

  monkeypatch.setattr(storage, 'download', slow)
  with futures.ThreadPoolExecutor() as threads:
    found = list(threads.map(copies_lib.local, [epath.Path(uploaded)] * 3))
  assert len(set(found)) == 1 and found[0] == epath.Path(*copies(tmp_path))
  assert len(names) == len(set(names)) > 0


def test_an_empty_variable_is_none_and_what_refuses_is_named(
  uploaded, tmp_path, monkeypatch
):
  monkeypatch.setenv('XDG_CACHE_HOME', '')
  monkeypatch.setenv('HOME', str(tmp_path / 'home'))
  (tmp_path / 'home').write_text('a file')
  with pytest.raises(errors.DataError, match=f'{tmp_path}/home/.cache/lev'):
    records.open_dataset(uploaded)


@pytest.mark.parametrize('url', ['gs://nowhere/data', 'gs://runs/none'])
def test_what_is_not_there_is_a_data_error(store, url):
  with pytest.raises(errors.DataError, match=url[5:8]):
    records.open_dataset(url)
