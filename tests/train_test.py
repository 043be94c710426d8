"""Training: one row a step, nothing that is not finite, and exact resuming."""

import dataclasses
import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from leviathan import arrays
from leviathan import checkpoint
from leviathan import errors
from leviathan import experiment
from leviathan import metrics
from leviathan import rundir
from leviathan import step as step_lib
from leviathan import train
from leviathan.data import records
from leviathan.eval import perplexity

ARMS = ('tied', 'untied', 'lev', 'albert', 'flat_mlp', 'factorized_mlp')
OF_COMMAND = {
  'train__steps': 40,
  'evaluate__interval': 10,
  'checkpoint__interval': 5,
}
# By hand also with 20.
KILLS = int(os.environ.get('LEVIATHAN_TEST_KILLS', '3'))
EXACT = ('step', 'split', 'tokens', 'nats_per_token', 'grad_norm')


def exact(rows):
  """What must not depend on when, or how often, a run was started."""
  return [{k: row[k] for k in EXACT if k in row} for row in rows]


def hash_of(rows):
  """The hash of a batch of these rows."""
  ids_BL = rows[:, :-1].astype(np.int32)
  return int(step_lib.fingerprint(arrays.Batch(ids_BL, ids_BL, ids_BL)))


def start(config, path, mesh=(1, 8, 1), say=lambda line: None, **how):
  """Trains, and returns (state, whether it came to the end)."""
  names = ('data', 'fsdp', 'tensor')
  shape = dict(zip(names, mesh, strict=True))
  config = dataclasses.replace(
    config, mesh=dataclasses.replace(config.mesh, **shape)
  )
  devices = jax.devices()[: int(np.prod(mesh))]
  parts = experiment.Experiment(
    config, experiment.sharding.make_mesh(config.mesh, devices)
  )
  return train.train(parts, rundir.open_(str(path)), say, **how)


def run_all(config, path, mesh=(1, 8, 1), say=lambda line: None):
  """Trains to the end and returns (rows, state)."""
  state, finished = start(config, path, mesh, say)
  assert finished
  return metrics.read(rundir.open_(str(path)).metrics_file), state


@pytest.fixture(scope='module')
def straight(tiny, tmp_path_factory):
  """(rows, state, path) of an unbroken run of 8 steps."""
  path = tmp_path_factory.mktemp('straight')
  return *run_all(tiny.config(), path), path


def test_each_step_has_one_row_and_each_evaluation_its_own(straight):
  rows, _, _ = straight
  train_rows = [row for row in rows if row['split'] == 'train']
  assert [row['step'] for row in train_rows] == list(range(1, 9))
  assert [row['tokens'] for row in train_rows] == [
    8 * 32 * step for step in range(1, 9)
  ]
  evaluations = [row for row in rows if row['split'] == 'validation/held_out']
  assert [row['step'] for row in evaluations] == [4, 8]
  assert train_rows[-1]['nats_per_token'] < train_rows[0]['nats_per_token']


def test_the_first_loss_is_that_of_a_uniform_guess(straight):
  rows, _, _ = straight
  assert rows[0]['nats_per_token'] == pytest.approx(np.log(512), abs=0.1)


def test_checkpoints_lie_at_the_interval_and_at_the_end(straight):
  _, _, path = straight
  # Every 3 steps and at step 8, the latest two kept.
  assert rundir.open_(str(path)).checkpoints().steps() == [6, 8]


def test_an_interrupted_run_ends_as_an_unbroken_one(straight, tiny, tmp_path):
  """Stops at a line that step 5 prints, then goes on: bit for bit."""
  rows, state, _ = straight

  class Stop(Exception):
    pass

  def say(line):
    if line.startswith('step 5/'):
      raise Stop

  config = tiny.config(log__interval=1)
  with pytest.raises(Stop):
    run_all(config, tmp_path, say=say)
  said = []
  again, found = run_all(config, tmp_path, say=said.append)
  assert said[0].startswith('resumed from step 3')
  assert exact(again) == exact(rows)
  jax.tree.map(np.testing.assert_array_equal, found, state)


@pytest.fixture(scope='module')
def command(tiny):
  """workdir -> a process of `leviathan train` for 40 steps."""
  arguments = tiny.flags(**OF_COMMAND)

  def start(workdir):
    return subprocess.Popen(
      [sys.executable, '-m', 'leviathan', 'train', *arguments,
       f'--workdir={workdir}'],
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
    )  # fmt: skip

  return start


def finish(process):
  """Waits for a process that must end well."""
  _, stderr = process.communicate()
  assert process.returncode == 0, stderr


@dataclasses.dataclass(frozen=True)
class Whole:
  """The command's unbroken run."""

  path: pathlib.Path
  config: experiment.Config

  @property
  def bytes(self) -> int:
    """Of its file of rows."""
    return (self.path / 'metrics.jsonl').stat().st_size

  def is_equal(self, path: pathlib.Path) -> bool:
    """Whether losses, parameters and moments are the same, bit for bit."""
    parts = experiment.make(self.config)
    rows, states = [], []
    for run in (rundir.open_(str(p)) for p in (self.path, path)):
      rows.append(exact(metrics.read(run.metrics_file)))
      states.append(run.checkpoints().restore(40, parts.abstract_state))
    jax.tree.map(np.testing.assert_array_equal, *states)
    assert len(rows[0]) == 40 + 4
    return rows[0] == rows[1]


@pytest.fixture(scope='module')
def whole(command, tiny, tmp_path_factory):
  """See Whole."""
  path = tmp_path_factory.mktemp('whole')
  finish(command(path))
  return Whole(path, tiny.config(**OF_COMMAND))


def wait_for(process, seen):
  """Waits until `seen()`; the process must not end before it."""
  while not seen():
    assert process.poll() is None, process.stderr.read()
    time.sleep(0.002)


def kill(process):
  """With no chance to do anything more."""
  process.send_signal(signal.SIGKILL)
  process.communicate()
  assert process.returncode == -signal.SIGKILL, 'it had already ended'


@pytest.mark.parametrize('part', [(i + 0.5) / KILLS for i in range(KILLS)])
def test_kill_9_and_start_again(command, whole, tmp_path, part):
  """The whole command, killed when it has written such a part of its rows."""
  file = tmp_path / 'metrics.jsonl'
  size = part * whole.bytes
  process = command(tmp_path)
  wait_for(process, lambda: file.exists() and file.stat().st_size >= size)
  kill(process)
  finish(command(tmp_path))
  assert whole.is_equal(tmp_path)


@pytest.mark.parametrize('step', [5, 10])
def test_kill_9_while_a_save_is_in_flight(command, whole, tmp_path, step):
  """The folder of the save has another name until it is whole."""
  process = command(tmp_path)
  pattern = f'checkpoints/{step}.orbax-checkpoint-tmp*'
  wait_for(process, lambda: any(tmp_path.glob(pattern)))
  kill(process)
  assert not (tmp_path / 'checkpoints' / str(step)).exists()
  finish(command(tmp_path))
  assert whole.is_equal(tmp_path)


@pytest.mark.parametrize(
  'signum, code, last_line',
  [
    (signal.SIGINT, 130, 'interrupted; the same command goes on'),
    (signal.SIGTERM, 75, 'preempted: {} is saved; run the same command again'),
  ],
)
def test_told_to_stop_a_run_is_saved_and_the_same_command_goes_on(
  command, whole, tmp_path, signum, code, last_line
):
  file = tmp_path / 'metrics.jsonl'
  process = command(tmp_path)
  wait_for(process, lambda: file.exists() and file.stat().st_size > 1000)
  process.send_signal(signum)
  _, stderr = process.communicate()
  assert process.returncode == code, stderr
  *choices, last = stderr.decode().splitlines()
  assert all(' runs as ' in line for line in choices)
  assert last == last_line.format(tmp_path)
  run = rundir.open_(str(tmp_path))
  step = metrics.read(run.metrics_file)[-1]['step']
  assert run.checkpoints().latest() == step < 40
  finish(command(tmp_path))
  assert whole.is_equal(tmp_path)


@pytest.mark.parametrize('step', [4, 8])
@pytest.mark.parametrize('batch', [0, 1, 3])
def test_told_to_stop_before_or_in_an_evaluation_it_is_made_up_for(
  straight, tiny, tmp_path, step, batch
):
  """Asked after each step and before each batch of an evaluation.

  At step 4 or 8: as the step ends, so that nothing is evaluated (0), or before
  a batch of its evaluation.
  """
  rows, state, _ = straight
  asked = itertools.count(1)
  config = tiny.config()
  held_out = records.open_dataset(tiny.directory / 'validation')
  evaluated = -(-len(held_out) // config.evaluate.batch_size)
  assert evaluated > 3
  questions = step + batch + (step == 8) * evaluated
  done, finished = start(
    config, tmp_path, stop=lambda: next(asked) == questions
  )
  assert not finished and int(done.step) == step
  run = rundir.open_(str(tmp_path))
  assert run.checkpoints().latest() == step
  last = metrics.read(run.metrics_file)[-1]
  assert (last['step'], last['split']) == (step, 'train')
  again, found = run_all(config, tmp_path)
  assert exact(again) == exact(rows)
  jax.tree.map(np.testing.assert_array_equal, found, state)


@pytest.mark.parametrize('arm', ARMS)
def test_losses_do_not_depend_on_the_mesh(tiny, tmp_path, arm):
  config = tiny.config(arm, train__steps=4, checkpoint__interval=4)
  one, *others = [
    run_all(config, tmp_path / str(i), mesh)[0]
    for i, mesh in enumerate([(1, 1, 1), (1, 8, 1), (2, 2, 2)])
  ]
  for rows in others:
    for a, b in zip(one, rows, strict=True):
      assert a['nats_per_token'] == pytest.approx(b['nats_per_token'], abs=1e-5)


def test_a_run_goes_on_on_another_mesh(straight, tiny, tmp_path):
  rows, _, _ = straight
  run_all(tiny.config(train__steps=4, optimizer__horizon=8), tmp_path)
  again, _ = run_all(
    tiny.config(optimizer__horizon=8), tmp_path, mesh=(2, 1, 2)
  )
  wanted = [row for row in rows if row['split'] == 'train']
  found = [row for row in again if row['split'] == 'train']
  assert [row['step'] for row in found] == list(range(1, 9))
  for a, b in zip(found, wanted, strict=True):
    assert a['nats_per_token'] == pytest.approx(b['nats_per_token'], abs=1e-5)


def test_a_run_goes_on_with_another_batch_size_without_repeat_or_gap(
  tiny, tmp_path
):
  budget = {'optimizer__horizon': 8}
  run_all(tiny.config(train__steps=3, **budget), tmp_path / 'run')
  run_all(
    tiny.config(train__steps=5, data__batch_size=16, **budget), tmp_path / 'run'
  )
  rows, _ = run_all(tiny.config(train__steps=6, **budget), tmp_path / 'run')
  steps = [row for row in rows if row['split'] == 'train']
  ends = [8, 16, 24, 40, 56, 64]  # Sequences.
  assert [row['tokens'] for row in steps] == [32 * end for end in ends]
  mixed = experiment.open_training(tiny.config())
  for row, begin, end in zip(steps, [0, *ends], ends, strict=False):
    rows = mixed.read(np.arange(begin, end), 0)
    assert row['batch_hash'] == hash_of(rows)


def test_a_mixture_with_documents_apart_trains_alike_on_any_mesh(
  make_dataset, tiny, tmp_path
):
  directories = [str(tmp_path / 'data' / name) for name in 'ab']
  for directory in directories:
    make_dataset(
      pathlib.Path(directory),
      [f'{i} of {directory}' for i in range(200)],
      f'spm:{tiny.tokenizer}',
    )
  config = tiny.config(
    train__steps=3,
    data__train=','.join(directories),
    data__weights=(0.6, 0.4),
    data__document_mask=True,
  )
  many, _ = run_all(config, tmp_path / 'many')
  one, _ = run_all(config, tmp_path / 'one', mesh=(1, 1, 1))
  whole, _ = run_all(
    dataclasses.replace(
      config, data=dataclasses.replace(config.data, document_mask=False)
    ),
    tmp_path / 'whole',
  )
  losses = [
    [row['nats_per_token'] for row in rows] for rows in (many, one, whole)
  ]
  np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
  # Runs on one mesh are equal to the bit, so it is the mask that differs.
  assert not set(losses[0]) & set(losses[2])
  crcs = [[row.get('batch_hash') for row in rows] for rows in (many, whole)]
  assert crcs[0] == crcs[1]


def test_a_type_that_would_change_is_refused_unless_allowed(tiny, tmp_path):
  run_all(tiny.config(train__steps=3, optimizer__horizon=8), tmp_path)
  half = tiny.config(optimizer__moment_type='bfloat16')
  field = 'config.optimizer.moment_type'
  with pytest.raises(errors.CheckpointError, match=f'--allow={field}$'):
    run_all(half, tmp_path)
  state, finished = start(half, tmp_path, allow=[field])
  assert finished
  moments = jax.tree.leaves(state.opt_state.optimizer)
  assert {'bfloat16', 'float32'} <= {m.dtype.name for m in moments}
  # From then on it is the run's own.
  run_all(half, tmp_path)


def test_the_best_checkpoint_is_kept_beside_the_latest(tiny, tmp_path):
  """The rate is absurd: the loss is lowest at the first evaluation."""
  config = tiny.config(
    optimizer__learning_rate=1.0,
    evaluate__interval=2,
    checkpoint__interval=2,
    checkpoint__keep=1,
    checkpoint__keep_best=1,
  )
  rows, _ = run_all(config, tmp_path)
  losses = {
    row['step']: row['nats_per_token']
    for row in rows
    if row['split'] == 'validation/held_out'
  }
  best = min(losses, key=losses.__getitem__)
  assert best < 8
  assert rundir.open_(str(tmp_path)).checkpoints().steps() == [best, 8]


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(
  tiny, tmp_path, monkeypatch
):
  usage = shutil.disk_usage(tmp_path)._replace(free=1000)
  monkeypatch.setattr(shutil, 'disk_usage', lambda path: usage)
  with pytest.raises(errors.CheckpointError, match='1.00 kB are free'):
    run_all(tiny.config(), tmp_path / 'new')
  assert not (tmp_path / 'new').exists()


def test_a_workdir_that_cannot_be_made_is_one_line(tiny, tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.CheckpointError, match=str(tmp_path / 'file')):
    run_all(tiny.config(), tmp_path / 'file' / 'run')


def test_dry_run_shows_what_lies_where_and_leaves_the_run_alone(
  tiny, tmp_path, leviathan
):
  flags = [*tiny.flags(mesh__tensor=2), f'--workdir={tmp_path}/run']
  code, stdout, stderr = leviathan('train', *flags, '--dry_run')
  assert code == 0, stderr
  assert 'head/out_VD' in stdout and '512/tensor x 32/fsdp' in stdout
  assert 'dry run: steps 1 to 8 on ' in stdout
  # Parameters, two moments and gradients are alike; counters are little.
  whole, part = re.search(
    r'^total  +([\d,]+)  +([\d,]+)$', stdout, re.MULTILINE
  ).groups()
  held = re.search(r'gradients: ([\d,]+) bytes, ([\d,]+) on', stdout).groups()
  for parameters, found in zip((whole, part), held, strict=True):
    parameters, found = (int(t.replace(',', '')) for t in (parameters, found))
    assert 4 * parameters < found < 4 * parameters + 2000
  assert not list(tmp_path.iterdir())
  code, _, stderr = leviathan(
    'train', *flags, '--dry_run', '--config.data.train=/nowhere'
  )
  assert code == 3 and '/nowhere' in stderr


def test_a_finished_run_is_left_as_it_is(straight, tiny):
  rows, _, path = straight
  said = []
  again, _ = run_all(tiny.config(), path, say=said.append)
  assert again == rows
  assert any('nothing is left' in line for line in said)


def test_what_is_not_finite_stops_the_run_and_is_never_saved(tiny, tmp_path):
  """An absurd rate makes the loss overflow after the first checkpoint."""
  config = tiny.config(
    optimizer__learning_rate=1e30,
    optimizer__weight_decay=0.0,
    optimizer__warmup_steps=0,
    optimizer__clip_norm=1e30,
    optimizer__skip_limit=0,
    checkpoint__interval=1,
  )
  with pytest.raises(errors.NotFiniteError, match=r'step \d+: '):
    run_all(config, tmp_path)
  run = rundir.open_(str(tmp_path))
  assert 'step' in rundir.read_json(run.not_finite_file)['error']
  *before, last = metrics.read(run.metrics_file)
  assert [row['skipped'] for row in (*before, last)] == [0] * len(before) + [1]
  step = checkpoint.Checkpoints(run.checkpoint_dir).latest()
  assert (step or 0) == len(before) == last['step'] - 1
  if step is not None:
    assert_finite(saved(config, run, step))


def saved(config, run, step):
  """The state in a checkpoint, on the host."""
  parts = experiment.make(config)
  return jax.device_get(run.checkpoints().restore(step, parts.abstract_state))


def assert_finite(state):
  for leaf in jax.tree.leaves(state):
    assert np.isfinite(leaf).all()


@pytest.fixture
def poison(monkeypatch):
  """Makes a weight of these steps' batches not a number."""

  def poison(steps):
    honest = experiment.Experiment.train_batches

    def batches(self, data, start):
      size = self.config.data.batch_size
      found = honest(self, data, start)
      for step, batch in enumerate(found, start // size + 1):
        if step in steps:
          weights_BL = np.array(batch.weights_BL)
          weights_BL[3, 5] = np.nan
          batch = batch._replace(weights_BL=weights_BL)
        yield batch

    monkeypatch.setattr(experiment.Experiment, 'train_batches', batches)

  return poison


def test_a_step_that_is_not_finite_is_skipped_told_and_gone_on_from(
  straight, tiny, tmp_path, poison
):
  rows, _, _ = straight
  poison({5})
  said = []
  config = tiny.config(checkpoint__interval=1, checkpoint__keep=8)
  found, _ = run_all(config, tmp_path, say=said.append)
  steps = [row for row in found if row['split'] == 'train']
  assert [row['skipped'] for row in steps] == [0, 0, 0, 0, 1, 0, 0, 0]
  assert all('skipped_in_a_row' not in row for row in steps)
  assert np.isnan(steps[4]['nats_per_token'])
  assert all(np.isfinite(r['nats_per_token']) for r in found if r != steps[4])
  # In the file it is JSON of the strict kind.
  run = rundir.open_(str(tmp_path))
  assert 'NaN' not in run.metrics_file.read_text()
  # Which rows it had, by the order that the data are read in.
  (line,) = (line for line in said if 'skipped' in line)
  assert line.startswith('step 5 was skipped: nats_per_token is nan and grad_')
  assert 'the sequences 32 to 39 of' in line
  ids = experiment.open_training(config).read(np.arange(32, 40), 0)
  assert steps[4]['batch_hash'] == hash_of(ids)
  # Up to there the run is the unbroken one, then it goes another way.
  losses, unbroken = (
    [row['nats_per_token'] for row in of if row['split'] == 'train']
    for of in (found, rows)
  )
  assert losses[:4] == unbroken[:4]
  assert losses[5:] != unbroken[5:]
  before, after = (saved(config, run, step) for step in (4, 5))
  for old, new in (
    (before.params, after.params),
    (before.opt_state.optimizer, after.opt_state.optimizer),
  ):
    jax.tree.map(np.testing.assert_array_equal, new, old)


def test_too_many_skipped_in_a_row_end_the_run_also_after_a_resume(
  tiny, tmp_path, poison
):
  poison(range(5, 16))
  config = tiny.config(train__steps=20, checkpoint__keep=9)
  wanted = (
    r'^step 15: nats_per_token is nan .* 11 steps in a row .*skip_limit=10; '
    r'the last checkpoint is of step 12; lower .*learning_rate'
  )
  with pytest.raises(errors.NotFiniteError, match=wanted):
    run_all(config, tmp_path)
  run = rundir.open_(str(tmp_path))
  rows = [r for r in metrics.read(run.metrics_file) if r['split'] == 'train']
  assert [row['skipped'] for row in rows] == [0] * 4 + [1] * 11
  assert run.not_finite_file.exists()
  assert run.checkpoints().steps() == [3, 6, 9, 12]
  states = [saved(config, run, step) for step in (6, 12)]
  for state in states:
    assert_finite(state)
  jax.tree.map(
    np.testing.assert_array_equal, *(state.params for state in states)
  )
  # From step 12 on: those skipped before it still count.
  with pytest.raises(errors.NotFiniteError, match=wanted):
    run_all(config, tmp_path)
  # One less, and the run ends well.
  run_all(
    dataclasses.replace(
      config, optimizer=dataclasses.replace(config.optimizer, skip_limit=11)
    ),
    tmp_path,
  )
  assert not run.not_finite_file.exists()
  assert_finite(saved(config, run, 20))


def test_an_evaluation_that_is_not_finite_is_written_and_no_crash(
  tiny, tmp_path, monkeypatch
):
  honest = perplexity.summary
  lost = {
    'nats_per_token': np.nan,
    'perplexity': np.inf,
    'bits_per_byte': np.nan,
  }
  monkeypatch.setattr(perplexity, 'summary', lambda *a: honest(*a) | lost)
  config = tiny.config(train__steps=1, optimizer__warmup_steps=0)
  rows, _ = run_all(config, tmp_path)
  assert rows[-1]['split'] == 'validation/held_out'
  assert all(np.isnan(rows[-1][name]) for name in lost)


def test_the_data_s_vocabulary_must_be_the_model_s(tiny, tmp_path):
  with pytest.raises(errors.DataError, match='vocab_size=1024') as caught:
    run_all(tiny.config(model__vocab_size=1024), tmp_path / 'new')
  assert '--config.model.vocab_size=512' in str(caught.value)
  assert not (tmp_path / 'new').exists()


def test_an_evaluation_set_of_another_tokenizer_is_refused(
  tiny, tmp_path, monkeypatch
):
  honest = records.open_dataset

  def other(directory):
    dataset = honest(directory)
    if 'validation' in str(directory):
      entry = dataclasses.replace(dataset.manifest.tokenizer, sha256='other')
      dataset.manifest = dataclasses.replace(dataset.manifest, tokenizer=entry)
    return dataset

  monkeypatch.setattr(records, 'open_dataset', other)
  with pytest.raises(errors.DataError, match='another tokenizer'):
    run_all(tiny.config(), tmp_path / 'new')
  assert not (tmp_path / 'new').exists()


def test_a_batch_that_the_mesh_does_not_divide_is_refused(tiny, tmp_path):
  with pytest.raises(errors.ConfigError, match='batch_size=9.*nearest.* 8'):
    run_all(tiny.config(data__batch_size=9), tmp_path / 'new')
  assert not (tmp_path / 'new').exists()
