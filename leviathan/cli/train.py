"""Trains a run, or goes on with it from its latest checkpoint.

leviathan train --config=configs/lev.py:smoke --workdir=runs/lev
"""

from absl import flags
import jax

from leviathan import checkpoint
from leviathan import errors
from leviathan import experiment
from leviathan import parameters
from leviathan import pod
from leviathan import reporter
from leviathan import rundir
from leviathan import sharding
from leviathan import storage
from leviathan import train
from leviathan import watchdog
from leviathan.cli import config_flag
from leviathan.cli import pod_flags

CONFIG = config_flag.define()
WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Directory of the run, made when missing.', required=True
)
ALLOW = flags.DEFINE_list(
  'allow',
  [],
  'Fields in which the run may differ from what it was before, as '
  'config.optimizer.learning_rate; a refusal names them.',
)
DRY_RUN = flags.DEFINE_bool(
  'dry_run',
  False,
  'Check config, data, mesh, disk and --workdir, show what lies where, and '
  'stop.',
)


def main(argv) -> None:
  """Runs the command."""
  del argv
  config = experiment.read_config(config_flag.read(CONFIG))
  run = rundir.open_(WORKDIR.value)
  if run.step is not None:
    raise errors.ConfigError(
      f'--workdir={WORKDIR.value} is one step; a run goes on from its latest, '
      f'give {run.path}'
    )
  storage.check(run.path)
  dog = _start(config, run)
  try:
    _train(config, run, dog)
  except errors.PreemptedError:
    raise
  except Exception as error:
    dog.fail(error)
    raise
  finally:
    dog.close()


def _train(
  config: experiment.Config, run: rundir.RunDir, dog: watchdog.Watchdog
) -> None:
  """What the command does once all processes have met."""
  say = _say if pod.is_first() else lambda line: None
  pod.check_platform(config.train.platform)
  stop = pod.Stop(_say)
  parts = experiment.make(config)
  say(_summary(parts))
  if DRY_RUN.value:
    _dry_run(parts, run, say)
    return
  _, finished = train.train(
    parts, run, say, stop=stop, at=dog.at, allow=ALLOW.value
  )
  if not finished:
    raise stop.reason(f'{run.path} is saved')
  say(f'done: {run.path}')


def _dry_run(
  parts: experiment.Experiment, run: rundir.RunDir, say: reporter.Say
) -> None:
  """Prints where the whole state would lie, and what there is to know."""
  plan = train.check(parts, run, ALLOW.value)
  pod.first(lambda: rundir.check_writable(run.path))
  table = sharding.table(parts.abstract_state.params)
  for line in table.lines():
    say(line)
  state = sharding.table(parts.abstract_state).totals()['total']
  gradients = table.totals()['total']  # float32 too, and split alike.
  whole, part = (a + b for a, b in zip(state, gradients, strict=True))
  say(
    f'state and gradients: {whole:,} bytes, {part:,} on a device; what else a '
    'step takes, `leviathan compile` knows'
  )
  for note in plan.notes:
    say(f'note: {note}')
  start = checkpoint.Checkpoints(run.checkpoint_dir).latest() or 0
  say(
    f'dry run: steps {start + 1} to {parts.config.train.steps} on '
    f'{plan.data.sequences:,} sequences would be trained in {run.path}, which '
    'is as it was'
    if start < parts.config.train.steps
    else f'dry run: nothing is left to do after step {start} of {run.path}'
  )


def _say(line: str) -> None:
  print(line, flush=True)


def _start(config: experiment.Config, run: rundir.RunDir) -> watchdog.Watchdog:
  """Meets the other processes, if there are any, and watches them."""
  where = pod_flags.read()
  limit = config.train.stall_seconds

  def watch(process, processes, limit):
    return watchdog.Watchdog(
      run.path / 'processes', limit, _say, process=process, processes=processes
    )

  if where.process_id is None or where.num_processes is None:
    pod.start(where)
    dog = watch(jax.process_index(), jax.process_count(), limit)
  else:
    dog = watch(
      where.process_id, where.num_processes, min(limit, pod.START_SECONDS)
    )
    pod.start(where)
    dog.limit = limit
  dog.at(0, 'start')
  return dog


def _summary(parts: experiment.Experiment) -> str:
  """One line: how many parameters on which devices."""
  counts = parameters.count(
    parameters.shapes(parts.abstract_state.params),
    parts.config.model.vocab_size,
  )
  whole, part = sharding.table(parts.abstract_state).totals()['total']
  device = parts.mesh.devices.flat[0]
  processes = jax.process_count()
  return (
    f'{parts.config.arm}: {counts["total"]:,} parameters (input '
    f'{counts["input"]:,}, backbone {counts["backbone"]:,}, head '
    f'{counts["head"]:,}) on {parts.mesh.size} x {device.platform} '
    f'({device.device_kind}) of {processes} process'
    f'{"es" if processes > 1 else ""}, mesh {dict(parts.mesh.shape)}; state '
    f'{whole / 1e9:.2f} GB, {part / 1e9:.2f} GB a device'
  )
