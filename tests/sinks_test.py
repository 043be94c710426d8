"""What the sinks hold, read back from their own files."""

import math
import struct
import time

import pytest

from leviathan import errors
from leviathan import experiment
from leviathan import sinks
from leviathan import storage

CONFIG = {'model': {'width': 32}}


def row(step, **metrics):
  return {'step': step, 'split': 'train', 'tokens': 10 * step} | metrics


def run(name, directory, first, last, resumed_step=None, attempt=1):
  """Writes rows of the steps first..last, as one process of a run would."""
  resumed_step = first - 1 if resumed_step is None else resumed_step
  sink = sinks.open_([name], directory, CONFIG, resumed_step)
  for step in range(first, last + 1):
    sink.write(row(step, loss=float(step), attempt=attempt))
  sink.close()


def tensorboard(directory):
  """{tag: {step: values}} as TensorBoard shows it: what was purged is gone."""
  event_pb2 = pytest.importorskip('tensorboardX.proto.event_pb2')
  shown = []
  for path in sorted((directory / 'tensorboard').iterdir()):
    rest = path.read_bytes()
    while rest:
      (size,) = struct.unpack_from('<Q', rest)
      event = event_pb2.Event.FromString(rest[12 : 12 + size])
      rest = rest[16 + size :]
      if event.session_log.status == event_pb2.SessionLog.START:
        shown = [entry for entry in shown if entry[1] < event.step]
      for value in event.summary.value:
        shown.append((value.tag, event.step, value.simple_value))
  found = {}
  for tag, step, value in shown:
    found.setdefault(tag, {}).setdefault(step, []).append(value)
  return found


def test_tensorboard_shows_each_step_once_after_a_crash(tmp_path):
  run('tensorboard', tmp_path, 1, 25)
  run('tensorboard', tmp_path, 21, 30, attempt=2)
  found = tensorboard(tmp_path)
  assert found['train/loss'] == {step: [step] for step in range(1, 31)}
  assert found['train/attempt'] == {
    step: [1 if step <= 20 else 2] for step in range(1, 31)
  }


def test_a_run_that_starts_again_shows_nothing_of_before(tmp_path):
  run('tensorboard', tmp_path, 1, 5)
  run('tensorboard', tmp_path, 1, 3, attempt=2)
  assert tensorboard(tmp_path)['train/attempt'] == {1: [2], 2: [2], 3: [2]}


def test_rows_become_scalars_of_their_split_and_only_finite_ones(tmp_path):
  pytest.importorskip('tensorboardX')
  sink = sinks.open_(['tensorboard'], tmp_path, CONFIG, 0)
  sink.write(row(7, loss=1.5, mfu=None, a=math.inf, b=math.nan, c='text'))
  sink.write({'step': 7, 'split': 'validation/pile', 'loss': 2.5})
  sink.close()
  assert tensorboard(tmp_path) == {
    'train/tokens': {7: [70]},
    'train/loss': {7: [1.5]},
    'validation/pile/loss': {7: [2.5]},
  }


def wandb_records(path):
  """The records of an offline W&B run, from its log of framed messages."""
  pb2 = pytest.importorskip('wandb.proto.wandb_internal_pb2')
  data, at, message, records = path.read_bytes(), 7, b'', []
  while at < len(data):
    left = 32768 - at % 32768  # In its block, which it begins with a header.
    if left < 7:
      at += left
      continue
    _, size, kind = struct.unpack_from('<IHB', data, at)
    message += data[at + 7 : at + 7 + size]
    at += 7 + size
    if kind in (1, 4):  # Whole, or the last part.
      records.append(pb2.Record.FromString(message))
      message = b''
  return records


def wandb_runs(directory):
  """(id, metric of the x axis, rows) of each attempt, in their order."""
  found = []
  for path in sorted((directory / 'wandb').glob('offline-run-*/*.wandb')):
    records = wandb_records(path)
    # A process of W&B writes it, which on a busy machine may be behind.
    until = time.monotonic() + 60
    while not any(r.HasField('exit') for r in records):
      assert time.monotonic() < until, f'{path} has no end'
      time.sleep(0.1)
      records = wandb_records(path)
    (id_,) = {r.run.run_id for r in records if r.run.run_id}
    axes = {r.metric.glob_name: r.metric.step_metric for r in records}
    rows = [
      {item.key or item.nested_key[0]: item.value_json for item in items}
      for items in (r.history.item for r in records)
      if items
    ]
    found.append((id_, axes['*'], rows))
  return found


@pytest.fixture
def offline(monkeypatch):
  """W&B without the network."""
  pytest.importorskip('wandb')
  monkeypatch.setenv('WANDB_MODE', 'offline')
  monkeypatch.setenv('WANDB_SILENT', 'true')


def test_wandb_drops_no_step_after_a_crash(offline, tmp_path):
  run('wandb', tmp_path, 1, 25)
  time.sleep(1)  # W&B names its directories by the second.
  run('wandb', tmp_path, 21, 30)
  (id_1, axis_1, rows_1), (id_2, axis_2, rows_2) = wandb_runs(tmp_path)
  assert id_1 == id_2 and axis_1 == axis_2 == 'step'
  assert [int(r['step']) for r in rows_1] == list(range(1, 26))
  assert [int(r['step']) for r in rows_2] == list(range(21, 31))
  assert all(float(r['train/loss']) == int(r['step']) for r in rows_2)


def test_a_run_that_starts_again_is_another_one_at_wandb(offline, tmp_path):
  run('wandb', tmp_path, 1, 2)
  run('wandb', tmp_path, 1, 2)
  (id_1, *_), (id_2, *_) = wandb_runs(tmp_path)
  assert id_1 != id_2


def test_a_wandb_that_does_not_start_says_so_in_one_line(
  offline, tmp_path, monkeypatch
):
  import wandb

  def refuse(**_):
    raise wandb.Error('no key\nwas found')

  monkeypatch.setattr(wandb, 'init', refuse)
  with pytest.raises(errors.ConfigError, match='no key.*wandb login') as e:
    sinks.open_(['wandb'], tmp_path, CONFIG, 0)
  assert '\n' not in str(e.value)


@pytest.mark.parametrize('name', sinks.SINKS)
def test_a_missing_package_names_its_extra(name, tmp_path, monkeypatch):
  module, sink = sinks.SINKS[name]
  monkeypatch.setitem(sinks.SINKS, name, (f'no_{module}', sink))
  with pytest.raises(errors.ConfigError) as e:
    sinks.open_([name], tmp_path, CONFIG, 0)
  assert f"pip install 'leviathan[{name}]'" in str(e.value)
  assert f'no_{module} is not installed' in str(e.value)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('names', [('wnadb',), ('wandb', 'wandb')])
def test_a_config_with_other_names_is_refused(names):
  with pytest.raises(errors.ConfigError, match='choose of tensorboard, wandb'):
    experiment.LogConfig(interval=1, sinks=names, profile=())


def test_no_sink_needs_nothing(tmp_path):
  sink = sinks.open_([], tmp_path, CONFIG, 0)
  sink.write(row(1, loss=1.0))
  sink.close()
  assert not list(tmp_path.iterdir())


def test_all_sinks_get_every_row():
  class Spy:
    def __init__(self):
      self.rows, self.closed = [], False

    def write(self, step, scalars):
      self.rows.append((step, scalars))

    def close(self):
      self.closed = True

  spies = [Spy(), Spy()]
  sink = sinks.Sinks(spies)
  sink.write(row(3, loss=1.0))
  sink.close()
  for spy in spies:
    assert spy.rows == [(3, {'train/tokens': 30.0, 'train/loss': 1.0})]
    assert spy.closed


def test_a_bucket_gets_tensorboard_s_files(store, tmp_path):
  run('tensorboard', 'gs://runs/run', 1, 25)
  (name,) = store.names('runs', 'run/tensorboard/')
  (tmp_path / 'tensorboard').mkdir()
  data = store.objects['runs'][name].data
  (tmp_path / 'tensorboard' / 'events').write_bytes(data)
  found = tensorboard(tmp_path)
  assert found['train/loss'] == {step: [step] for step in range(1, 26)}


def test_a_bucket_that_refuses_tensorboard_s_files_holds_nothing_up(
  store, monkeypatch, caplog
):
  monkeypatch.setattr(storage, 'UPLOAD_SECONDS', -1.0)
  run('tensorboard', 'gs://readable/run', 1, 25)
  assert '/tensorboard/' in caplog.text and 'cannot be written' in caplog.text
