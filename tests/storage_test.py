"""What is written into a bucket is whole; what refuses says so in a line."""

import importlib.util
import os

from etils import epath
import pytest

from leviathan import checkpoint
from leviathan import errors
from leviathan import metrics
from leviathan import step_folder
from leviathan import storage

ITEMS = ('params',)


@pytest.fixture
def top(store):
  """An empty place in a bucket."""
  store.objects['runs'].clear()
  store.requests.clear()
  return epath.Path('gs://runs/here')


def row(step, split='train'):
  return {'step': step, 'split': split, 'nats_per_token': 1.0}


def steps(path):
  return [r['step'] for r in metrics.read(path)]


def put(folder, *more):
  """A folder of a step, as Orbax leaves it."""
  for name in ('params/_METADATA', 'params/d/1', *more):
    storage.write(folder / name, 'x')
  (folder / step_folder.METADATA).write_text('{"custom_metadata": {}}')


@pytest.mark.parametrize(
  'url, error, match',
  [
    ('s3://runs/run', errors.ConfigError, 'give a path or gs://BUCKET'),
    ('gs:///run', errors.ConfigError, 'give a path or gs://BUCKET'),
    ('gs://nowhere/run', errors.CheckpointError, 'nowhere cannot be listed'),
    ('gs://forbidden/run', errors.CheckpointError, 'Forbidden.*no access'),
  ],
)
def test_what_cannot_be_reached_is_one_line(store, url, error, match):
  with pytest.raises(error, match=match) as caught:
    storage.check(url)
  assert '\n' not in str(caught.value)


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(errors.ConfigError, match=r"install 'leviathan\[gcs\]'"):
    storage.check('gs://unseen/run')
  storage.check('a/path')


def test_files_are_listed_alike_on_a_disk_and_in_a_bucket(top, tmp_path):
  names = [f'a/{i:02}' for i in range(20)] + ['b', 'c/d/e']
  for place in (top, epath.Path(tmp_path)):
    for size, name in enumerate(names):
      storage.write(place / name, 'x' * size)
    assert storage.files(place) == {n: i for i, n in enumerate(names)}
    assert storage.files(place / 'none') == {}
    assert storage.files(place / 'b') == {}


def test_what_another_process_writes_is_seen(top, store):
  assert not (top / 'a').exists()
  assert storage.files(top) == {}
  with store.lock:
    store._put('runs', 'here/a', b'1', {})
  assert (top / 'a').exists()
  assert storage.files(top) == {'a': 1}


def test_a_local_directory_ends_in_the_bucket(top):
  with storage.local(top / 'd') as here:
    (here / 'sub').mkdir()
    (here / 'sub' / 'f').write_text('text')
    assert storage.files(top) == {}
  assert (top / 'd' / 'sub' / 'f').read_text() == 'text'
  assert not here.exists()


def test_rows_are_uploaded_by_sync_and_evaluations_and_not_each_step(
  top, store
):
  path = top / 'metrics.jsonl'
  writer = metrics.Writer(path, 0, False)
  writer.write(row(1))
  writer.write(row(2))
  assert steps(path) == []
  writer.sync()
  assert steps(path) == [1, 2]
  writer.write(row(3))
  assert steps(path) == [1, 2]
  store.requests.clear()
  writer.write(row(3, 'validation/a'))
  writer.write(row(3, 'validation/b'))
  writer.write(row(4))
  assert steps(path) == [1, 2, 3, 3, 3, 4]
  writes = [r for r in store.requests if r.endswith('metrics.jsonl')]
  assert len(writes) == 1, 'a bucket limits how often'
  writer.write(row(5))
  assert steps(path)[-1] == 4
  writer.close()
  assert steps(path)[-1] == 5


def test_rows_are_uploaded_after_a_while(top, monkeypatch):
  monkeypatch.setattr(storage, 'UPLOAD_SECONDS', -1.0)
  path = top / 'metrics.jsonl'
  writer = metrics.Writer(path, 0, False)
  writer.write(row(1))
  assert steps(path) == [1]


def test_rows_that_are_not_uploaded_fail_the_save_and_not_a_step(store, top):
  path = top / 'metrics.jsonl'
  writer = metrics.Writer(path, 0, False)
  store.read_only.add('runs')
  try:
    writer.write(row(1, 'validation/a'))
    writer.write(row(2))
    with pytest.raises(errors.CheckpointError, match='metrics.jsonl') as caught:
      writer.sync()
    assert '\n' not in str(caught.value)
  finally:
    store.read_only.remove('runs')
  writer.sync()
  assert steps(path) == [1, 2]


def test_closing_writes_what_is_owed_and_hides_no_other_error(
  store, top, caplog
):
  writer = metrics.Writer(top / 'metrics.jsonl', 0, False)
  writer.write(row(1))
  writer.sync()
  store.read_only.add('runs')
  try:
    writer.close()
    writer.write(row(2))
    with pytest.raises(KeyError):
      try:
        raise KeyError
      finally:
        writer.close()
    assert 'metrics.jsonl cannot be written' in caplog.text
    with pytest.raises(errors.CheckpointError, match='metrics.jsonl'):
      writer.close()
  finally:
    store.read_only.remove('runs')


def test_on_resuming_rows_that_come_again_are_dropped(top):
  path = top / 'metrics.jsonl'
  writer = metrics.Writer(path, 0, False)
  for step in range(1, 6):
    writer.write(row(step))
  writer.close()
  again = metrics.Writer(path, 3, True)
  assert steps(path) == [1, 2, 3]
  again.write(row(4))
  again.close()
  assert steps(path) == [1, 2, 3, 4]


def test_a_bucket_that_refuses_is_not_taken_for_an_empty_one(store, top):
  put(top / '3', step_folder.COMMITTED)
  steps = checkpoint.Checkpoints(top)
  store.forbidden.add('runs')
  try:
    for ask in (
      lambda: step_folder.steps(top),
      lambda: step_folder.fault(top / '3', ITEMS),
      lambda: checkpoint.Checkpoints(top, keep=1),
      steps.latest,
    ):
      with pytest.raises(errors.CheckpointError, match='cannot be read') as e:
        ask()
      assert '\n' not in str(e.value)
  finally:
    store.forbidden.remove('runs')
  assert steps.latest() == 3


def test_a_disk_that_refuses_to_list_a_folder_is_said(tmp_path, monkeypatch):
  folder = epath.Path(tmp_path) / '3'
  put(folder)
  scandir = os.scandir

  def refuse(path):
    if os.fspath(path).endswith('params'):
      raise PermissionError(13, 'Permission denied')
    return scandir(path)

  monkeypatch.setattr(os, 'scandir', refuse)
  with pytest.raises(PermissionError):
    storage.files(folder)
  said = step_folder.fault(folder, ITEMS)
  assert said == 'it cannot be read: Permission denied'


def test_a_deletion_whose_answer_is_lost_is_done(store, top):
  folder = top / '3'
  step_folder.begin(folder)
  put(folder, step_folder.COMMITTED)
  store.lost = 'DELETE runs/here/3.saving'
  step_folder.end(folder)
  assert store.lost is None and step_folder.leftovers(top) == []
  store.lost = 'DELETE runs/here/3.deleted'
  step_folder.delete(folder)
  assert store.lost is None and storage.files(top) == {}


def test_a_save_is_whole_once_it_was_committed_or_listed(top):
  folder = top / '3'
  step_folder.begin(folder)
  put(folder)
  assert step_folder.fault(folder, ITEMS) == 'its save did not end'
  (folder / step_folder.COMMITTED).write_text('x')
  assert step_folder.fault(folder, ITEMS) is None
  step_folder.end(folder)
  assert step_folder.fault(folder, ITEMS) is None
  assert step_folder.leftovers(top) == []
  (folder / 'params/d/1').unlink()
  assert step_folder.fault(folder, ITEMS) == 'params/d/1 is missing'


def test_only_what_a_killed_save_or_deletion_left_is_a_leftover(top):
  put(top / '1')  # Copied in part: nothing marks it.
  step_folder.begin(top / '2')
  put(top / '2')
  step_folder.begin(top / '3')
  put(top / '3', step_folder.COMMITTED)  # Killed when all was there.
  step_folder.begin(top / '4')  # Killed before anything was.
  put(top / '5', step_folder.COMMITTED)
  (top / '5.deleted').write_text('x')
  for path in step_folder.leftovers(top):
    path.rmtree()
  assert step_folder.steps(top) == [1, 3]
  assert step_folder.leftovers(top) == []


def test_a_step_that_is_being_deleted_is_not_whole_from_the_beginning(
  top, store
):
  put(top / '3', step_folder.COMMITTED, step_folder.LISTING)
  step_folder.delete(top / '3')
  assert storage.files(top) == {}
  gone = [r for r in store.requests if r.startswith('DELETE')]
  assert [r.rpartition('/')[2] for r in gone[:2]] == [
    step_folder.LISTING,
    step_folder.COMMITTED,
  ]
  assert gone[-1].endswith('/3.deleted')
