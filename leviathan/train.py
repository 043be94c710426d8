"""The loop, and nothing but the loop: every effect of training is in here."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import time
from typing import Any
from typing import NamedTuple

import jax

from leviathan import arrays
from leviathan import checkpoint
from leviathan import errors
from leviathan import evaluate as evaluate_lib
from leviathan import experiment
from leviathan import metrics
from leviathan import pod
from leviathan import profile
from leviathan import reporter
from leviathan import rundir
from leviathan import sinks
from leviathan import state as state_lib
from leviathan.data import mixture
from leviathan.eval import score

# The one field that says what type is stored; when it was allowed to change,
# arrays are converted.
MOMENT_TYPE = 'config.optimizer.moment_type'
# (params, step) -> {split: its metrics}, or None: told to stop.
Evaluate = Callable[[Any, int], dict[str, dict[str, Any]] | None]
# (step, phase): where this process is, see `watchdog`.
At = Callable[[int, str], None]


def train(
  parts: experiment.Experiment,
  run: rundir.RunDir,
  say: reporter.Say,
  *,
  stop: Callable[[], bool] = lambda: False,
  at: At = lambda step, phase: None,
  allow: Sequence[str] = (),
) -> tuple[state_lib.State, bool]:
  """Trains a run to its last step, from its latest checkpoint if it has one.

  Args:
    parts: the experiment.
    run: where its files lie; refused if they are another run's.
    say: prints a line for the person who watches.
    stop: asked after each step and each batch of an evaluation, equally often
      in all processes; when true, the run is saved and left.
    at: told where this process is.
    allow: fields in which the run may differ from what lies in `run`.

  Returns:
    The last state, and whether it is that of the last step: not if stopped.
  """
  config = parts.config
  plan = check(parts, run, allow)
  evaluate = evaluator(plan.evaluation, stop, at)
  pod.check_shared(run.path)
  resolved = dataclasses.asdict(config)
  pod.first(
    lambda: rundir.claim(
      run, resolved, plan.manifest, plan.data, parts.token_order
    )
  )
  for note in plan.notes:
    say(f'note: {note}')
  with contextlib.ExitStack() as opened:
    checkpoints = checkpoint.Checkpoints(
      run.checkpoint_dir, config.checkpoint.keep, config.checkpoint.keep_best
    )
    opened.callback(checkpoints.close)
    state, start, sequences = _resume(parts, run, checkpoints, allow, say)
    owed = pod.of_first(_evaluation_is_owed(plan, config, run, start))
    write, sync = pod.together(
      lambda: opened.enter_context(_rows(config, run, start, not owed))
    )

    def save(state, sequences, loss):
      sync()  # No checkpoint is ahead of the rows.
      checkpoints.save(state, plan.manifest | {'sequences': sequences}, loss)

    profiler = profile.Profile(config.log.profile, run.path / 'profile')
    opened.callback(profiler.close)
    at(start, 'start')
    return loop(
      state,
      parts.train_step(),
      parts.train_batches(plan.data, sequences),
      config=config,
      mesh=parts.mesh,
      evaluate=evaluate,
      owed=bool(owed),
      save=save,
      check=checkpoints.check,
      report=reporter.Reporter(
        config,
        start=start,
        sequences=sequences,
        devices=list(parts.mesh.devices.flat),
        write=write,
        say=say,
      ),
      profiler=profiler,
      stop=stop,
      at=at,
    )


class Plan(NamedTuple):
  """What a run would consist of, once nothing speaks against it.

  Attributes:
    data: to train on.
    evaluation: what is evaluated.
    manifest: what identifies the run.
    notes: what the person who watches should know, a line each.
  """

  data: mixture.Mixture
  evaluation: evaluate_lib.Evaluation
  manifest: dict[str, Any]
  notes: list[str]


def check(
  parts: experiment.Experiment, run: rundir.RunDir, allow: Sequence[str]
) -> Plan:
  """Everything that can be refused before anything is written or compiled.

  Raises:
    UserError: here or in another process, something does not fit; see `train`
      for the arguments.
  """
  config = parts.config

  def read():
    data = experiment.open_training(config)
    parts.train_batches(data, 0)
    evaluation = evaluate_lib.read(
      parts,
      config.evaluate.tasks,
      config.evaluate.directories(),
      config.evaluate.task_data,
      config.evaluate.task_items,
      evaluate_lib.Training(
        tokenizer_sha256=data.tokenizer.sha256,
        tokenizer=data.datasets[0].tokenizer,
        counts_V=data.unigram_counts(),
        fingerprint=data.fingerprint,
      ),
    )
    sinks.check(config.log.sinks)
    # One that is not told what to keep only reads.
    to_read = checkpoint.Checkpoints(run.checkpoint_dir)
    to_read.check_space(parts.abstract_state)
    return data, evaluation, parts.manifest(data)

  data, evaluation, manifest = pod.together(read)
  resolved = dataclasses.asdict(config)
  evaluated = {f'evaluated.{k}': v for k, v in evaluation.fingerprints.items()}
  pod.check_alike(rundir.identity(resolved, manifest) | evaluated)
  notes = pod.together(lambda: rundir.check(run, resolved, manifest, allow))
  order = parts.token_order
  fingerprints = [dataset.manifest.fingerprint for dataset in data.datasets]
  if order is not None and order.is_of_others(fingerprints):
    notes.append('config.model.token_order was made from other data than these')
  return Plan(data, evaluation, manifest, notes)


def _resume(
  parts: experiment.Experiment,
  run: rundir.RunDir,
  checkpoints: checkpoint.Checkpoints,
  allow: Sequence[str],
  say: reporter.Say,
) -> tuple[state_lib.State, int, int]:
  """(state, its step, sequences before it): the newest whole one, or fresh."""
  start, state, notes = checkpoints.restore_latest(
    parts.abstract_state,
    check=lambda step: rundir.check_step(run, checkpoints, step, allow),
    cast=MOMENT_TYPE in run.changed_fields(),
  )
  for note in notes:
    say(f'note: {note}')
  if start is None or state is None:
    return parts.fresh_state(), 0, 0
  say(f'resumed from step {start} of {run.checkpoint_dir}')
  if start >= parts.config.train.steps:
    say(f'nothing is left to do up to step {parts.config.train.steps}')
  return state, start, checkpoints.manifest(start)['sequences']


class _StoppedError(Exception):
  """Told to stop within an evaluation."""


def evaluator(
  evaluation: evaluate_lib.Evaluation, stop: Callable[[], bool], at: At
) -> Evaluate:
  """What is evaluated, of some parameters."""

  def evaluate(params, step):
    def tick(sequences):
      del sequences
      at(step, 'evaluation')
      if stop():
        raise _StoppedError

    try:
      return evaluate_lib.rows(evaluation.run(params, tick))
    except _StoppedError:
      return None

  return evaluate


def _evaluation_is_owed(
  plan: Plan, config: experiment.Config, run: rundir.RunDir, start: int
) -> bool:
  """Whether a run was told to stop before the evaluation of its last step."""
  if not start or not _is_due(config.evaluate, start, config.train.steps):
    return False
  rows = metrics.read(run.metrics_file)
  done = {row['split'] for row in rows if row['step'] == start}
  return not plan.evaluation.splits <= done


def _is_due(section: Any, step: int, last: int) -> bool:
  """Whether it is time for what is done every `interval` steps and last."""
  return step % section.interval == 0 or step == last


@contextlib.contextmanager
def _rows(
  config: experiment.Config, run: rundir.RunDir, start: int, evaluated: bool
) -> Iterator[tuple[Callable[[dict[str, Any]], None], Callable[[], None]]]:
  """(write a row, make them last); the first process writes for all."""
  if not pod.is_first():
    yield lambda row: None, lambda: None
    return
  run.not_finite_file.unlink(missing_ok=True)
  resolved = dataclasses.asdict(config)
  with contextlib.ExitStack() as opened:
    writer = metrics.Writer(run.metrics_file, start, evaluated)
    opened.callback(writer.close)
    copies = sinks.open_(config.log.sinks, run.path, resolved, start)
    opened.callback(copies.close)

    def write(row):
      writer.write(row)
      copies.write(row)

    try:
      yield write, writer.sync
    except errors.NotFiniteError as e:
      rundir.write_json(run.not_finite_file, {'error': str(e)})
      raise


def loop(
  state: state_lib.State,
  train_step: Callable,
  batches: Iterator[arrays.Batch],
  *,
  config: experiment.Config,
  mesh: jax.sharding.Mesh,
  evaluate: Evaluate,
  owed: bool,
  save: Callable[[state_lib.State, int, float | None], None],
  check: Callable[[], None],
  report: reporter.Reporter,
  profiler: profile.Profile,
  stop: Callable[[], bool],
  at: At,
) -> tuple[state_lib.State, bool]:
  """Runs the steps that are left; effects arrive as arguments.

  Before an evaluation or a save all steps so far are read, so a run that has
  skipped too many ends before it. What is not finite is never saved, as no step
  takes it into the state. `owed` asks for an evaluation before the first step.
  Returns what `train` does.
  """
  start, last = int(state.step), config.train.steps

  def evaluated(step: int) -> tuple[bool, float | None]:
    """Whether it came to the end, and the loss of the first set, if any."""
    report.catch_up()
    results = evaluate(state.params, step)
    report.evaluation(step, results or {})
    report.resume_clock()
    losses = [
      row['nats_per_token']
      for split, row in (results or {}).items()
      if split.startswith('validation/')
    ]
    return results is not None, losses[0] if losses else None

  if owed and not evaluated(start)[0]:
    return state, False
  for step in range(start + 1, last + 1):
    at(step, 'data')
    began = time.perf_counter()
    rows = next(batches)
    read = time.perf_counter()
    at(step, 'step')
    profiler.before(step)
    batch = score.to_mesh(rows, mesh)
    with jax.set_mesh(mesh):
      state, row = train_step(state, batch)
    profiler.after(step, row)
    times = {
      'data_seconds': read - began,
      'dispatch_seconds': time.perf_counter() - read,
    }
    report.dispatched(step, row | times)
    check()
    stopping, loss = stop(), None
    if _is_due(config.evaluate, step, last) and not stopping:
      finished, loss = evaluated(step)
      stopping = not finished
    if _is_due(config.checkpoint, step, last) or stopping:
      report.catch_up()
      at(step, 'save')
      save(state, report.sequences(step), loss)
      report.saved(step)
    if stopping:
      return state, False
  return state, True
