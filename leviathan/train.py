"""The loop, and nothing but the loop: every effect of training is in here."""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import math
import time
from typing import Any
import zlib

import jax
import numpy as np

from leviathan import arrays
from leviathan import checkpoint
from leviathan import errors
from leviathan import experiment
from leviathan import metrics
from leviathan import rundir
from leviathan import state as state_lib
from leviathan.eval import perplexity
from leviathan.eval import score

Say = Callable[[str], None]
# params -> {name of the dataset: its metrics}
Evaluate = Callable[[Any], dict[str, dict[str, Any]]]


def train(
  parts: experiment.Experiment,
  run: rundir.RunDir,
  say: Say,
  interrupted: Callable[[], bool] = lambda: False,
) -> state_lib.State:
  """Trains a run to its last step, from its latest checkpoint if it has one.

  Args:
    parts: the experiment.
    run: where its files lie; refused if they are another run's.
    say: prints a line for the person who watches.
    interrupted: asked after each step; when true, the run is saved and left.

  Returns:
    The last state.

  Raises:
    KeyboardInterrupt: it was interrupted.
  """
  config = parts.config
  data = experiment.open_training(config)
  evaluate = evaluator(parts, data.tokenizer.sha256)
  manifest = parts.manifest(data)
  parts.train_batches(data, 0)  # Refuses before anything is written.
  resolved = dataclasses.asdict(config)
  for note in rundir.claim(run, resolved, manifest, data, parts.token_order):
    say(f'note: {note}')
  if parts.token_order is not None and parts.token_order.is_of_others(
    [dataset.manifest.fingerprint for dataset in data.datasets]
  ):
    say('note: config.model.token_order was made from other data than these')
  checkpoints = checkpoint.Checkpoints(
    run.checkpoint_dir, config.checkpoint.keep
  )
  start = checkpoints.latest() or 0
  sequences = 0
  if start:
    rundir.check_step(run, checkpoints, start)
    sequences = checkpoints.manifest(start)['sequences']
    state = checkpoints.restore(start, parts.abstract_state)
    say(f'resumed from step {start} of {run.checkpoint_dir}')
    if start >= config.train.steps:
      say(f'nothing is left to do up to step {config.train.steps}')
  else:
    state = parts.fresh_state()
  writer = metrics.Writer(run.metrics_file, start)
  run.not_finite_file.unlink(missing_ok=True)
  try:
    return loop(
      state,
      parts.train_step(),
      parts.train_batches(data, sequences),
      config=config,
      sequences=sequences,
      mesh=parts.mesh,
      evaluate=evaluate,
      save=lambda state, sequences: checkpoints.save(
        state, manifest | {'sequences': sequences}
      ),
      write=writer.write,
      say=say,
      interrupted=interrupted,
    )
  except errors.NotFiniteError as e:
    rundir.write_json(run.not_finite_file, {'error': str(e)})
    raise
  finally:
    writer.close()
    checkpoints.close()


def evaluator(parts: experiment.Experiment, tokenizer_sha256: str) -> Evaluate:
  """Perplexity on each of the config's evaluation sets.

  Raises:
    DataError: one cannot be read or was made with another tokenizer.
  """
  config = parts.config
  datasets = {
    name: experiment.open_dataset(directory, config)
    for name, directory in config.evaluate.directories().items()
  }
  for dataset in datasets.values():
    experiment.check_tokenizer(dataset, tokenizer_sha256)
    parts.eval_batches(dataset)  # Refuses before training starts.
  scorer = parts.scorer
  one_class_V = np.zeros(config.model.vocab_size, np.int32)

  def evaluate(params):
    return {
      name: perplexity.summary(
        scorer(params, parts.eval_batches(dataset), one_class_V),
        dataset.manifest.tokens,
        dataset.manifest.bytes,
      )
      for name, dataset in datasets.items()
    }

  return evaluate


def loop(
  state: state_lib.State,
  train_step: Callable,
  batches: Iterator[arrays.Batch],
  *,
  config: experiment.Config,
  sequences: int,
  mesh: jax.sharding.Mesh,
  evaluate: Evaluate,
  save: Callable[[state_lib.State, int], None],
  write: Callable[[dict[str, Any]], None],
  say: Say,
  interrupted: Callable[[], bool],
) -> state_lib.State:
  """Runs the steps that are left; effects arrive as arguments.

  Step n - 1 is read back after step n has been dispatched, so that the device
  never waits for the host. Before an evaluation or a save all steps so far are
  read, so a run that has skipped too many ends before it. What is not finite is
  never saved, as no step takes it into the state. `sequences` is how many came
  before; a save says how many have by then.
  """
  start, last = int(state.step), config.train.steps
  report = _Reporter(config, start, sequences, write, say)
  for step in range(start + 1, last + 1):
    rows = next(batches)
    # Tells whether two runs saw the same rows.
    fingerprint = zlib.crc32(rows.inputs_BL.tobytes())
    batch = score.to_mesh(rows, mesh)
    with jax.set_mesh(mesh):
      state, row = train_step(state, batch)
    report.dispatched(step, row | {'batch_crc32': fingerprint})
    if step % config.evaluate.interval == 0 or step == last:
      report.catch_up()
      report.evaluation(step, evaluate(state.params))
    stop = interrupted()
    if step % config.checkpoint.interval == 0 or step == last or stop:
      report.catch_up()
      save(state, sequences + (step - start) * config.data.batch_size)
      report.last_saved = step
    if stop:
      raise KeyboardInterrupt
  return state


class _Reporter:
  """Rows and progress lines, one step behind what is dispatched."""

  def __init__(self, config, start, sequences, write, say):
    self._config, self._start, self._sequences = config, start, sequences
    self._write, self._say = write, say
    self.last_saved = start  # Step of the latest checkpoint; 0: there is none.
    self._pending = None
    self._clock = time.perf_counter()
    self._busy = 0.0  # Seconds spent in training steps since the start.

  def dispatched(self, step: int, row: dict[str, Any]) -> None:
    """Step `step` is on its way; the one before it is read."""
    behind, self._pending = self._pending, (step, row)
    if behind:
      self._read(*behind)

  def catch_up(self) -> None:
    """Reads the step that is still on its way."""
    if self._pending:
      self._read(*self._pending)
      self._pending = None

  def evaluation(self, step: int, results: dict[str, dict[str, Any]]) -> None:
    """Writes a row for each evaluation set."""
    for name, row in results.items():
      self._write(self._head(step, f'validation/{name}') | row)
      self._say(
        f'step {step}: validation/{name} '
        f'{row["nats_per_token"]:.4f} nats per token, perplexity '
        f'{row["perplexity"]:.2f}, {row["bits_per_byte"]:.4f} bits per byte'
      )
    self._clock = time.perf_counter()

  def _head(self, step: int, split: str) -> dict[str, Any]:
    data = self._config.data
    sequences = self._sequences + (step - self._start) * data.batch_size
    tokens = sequences * data.seq_len
    return {'step': step, 'split': split, 'tokens': tokens}

  def _read(self, step: int, row: dict[str, Any]) -> None:
    """Waits for a step, writes its row and says so if it was skipped."""
    values = {k: np.asarray(v).item() for k, v in row.items()}
    in_a_row = values.pop('skipped_in_a_row')
    now = time.perf_counter()
    seconds, self._clock = now - self._clock, now
    self._busy += seconds
    rate = values.pop('batch_tokens') / seconds
    mean = metrics.from_mean(values.pop('nats_per_token'))
    self._write(
      self._head(step, 'train') | mean | values | {'tokens_per_second': rate}
    )
    last = self._config.train.steps
    if step % self._config.log.interval == 0 or step in (self._start + 1, last):
      left = self._busy / (step - self._start) * (last - step)
      self._say(
        f'step {step}/{last}: loss {mean["nats_per_token"]:.4f}, '
        f'{rate:,.0f} tokens/s, {_minutes(left)} left'
      )
    if in_a_row:
      self._skipped(step, _wrong(mean | values), in_a_row)

  def _skipped(self, step: int, wrong: str, in_a_row: int) -> None:
    """Says that a step was skipped, and ends the run after too many."""
    batch_size = self._config.data.batch_size
    end = self._sequences + (step - self._start) * batch_size
    self._say(
      f'step {step} was skipped: {wrong}; it had the sequences '
      f"{end - batch_size} to {end - 1} of the data's order"
    )
    limit = self._config.optimizer.skip_limit
    if in_a_row > limit:
      saved = f'the last checkpoint is of step {self.last_saved}'
      raise errors.NotFiniteError(
        f'step {step}: {wrong}; {in_a_row} steps in a row were skipped, more '
        f'than config.optimizer.skip_limit={limit}; '
        f'{saved if self.last_saved else "there is no checkpoint"}; lower '
        'config.optimizer.learning_rate in a new --workdir'
      )


def _wrong(values: dict[str, Any]) -> str:
  """What a step is skipped for: 'grad_norm is inf'."""
  judged = {name: values[name] for name in ('nats_per_token', 'grad_norm')}
  lost = {k: v for k, v in judged.items() if not math.isfinite(v)}
  text = ' and '.join(f'{k} is {v:.6g}' for k, v in (lost or judged).items())
  return text if lost else f'{text}, a spike'


def _minutes(seconds: float) -> str:
  """'3:05' or '12:00:10'."""
  minutes, seconds_ = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  if hours:
    return f'{hours}:{minutes:02}:{seconds_:02}'
  return f'{minutes}:{seconds_:02}'
