"""Evaluates a checkpoint: perplexity, in total and by training frequency.

  leviathan evaluate --workdir=runs/lev

Figures are printed and written to WORKDIR/eval/STEP/.
"""

from absl import flags
from etils import epath

from leviathan import config as config_lib
from leviathan import errors
from leviathan import evaluate
from leviathan import metrics
from leviathan import restore
from leviathan import rundir
from leviathan.cli import run_flags

TASKS = flags.DEFINE_list(
  'tasks', list(evaluate.TASKS), f'Of {", ".join(evaluate.TASKS)}.'
)
DATA = flags.DEFINE_string(
  'data', None, "Directory of a dataset, in place of the run's own sets."
)


def main(argv) -> None:
  """Runs the command."""
  del argv
  for name in TASKS.value:
    if name not in evaluate.TASKS:
      raise errors.ConfigError(
        f'--tasks: {name!r} is not a task'
        f'{config_lib.nearest(name, evaluate.TASKS)}'
      )
  loaded = restore.with_table(run_flags.restored())
  directories = loaded.parts.config.evaluate.directories()
  if DATA.value:
    directories = {epath.Path(DATA.value).name: DATA.value}
  if not directories:
    raise errors.ConfigError(
      f"{loaded.run.path} has no config.evaluate.datasets; give a dataset's "
      '--data=DIR'
    )
  results = {
    name: evaluate.evaluate(loaded, directory)
    for name, directory in directories.items()
  }
  arm = loaded.parts.config.arm
  output = loaded.run.eval_dir(loaded.step)
  for task in TASKS.value:
    figures = {name: result[task] for name, result in results.items()}
    document = {'task': task, 'step': loaded.step, 'arm': arm}
    # What was evaluated before, on other data, stays.
    file = output / f'{task}.json'
    before = rundir.read_json(file)['datasets'] if file.exists() else {}
    document['datasets'] = before | figures
    rundir.write_json(file, metrics.to_json(document))
    for name, row in figures.items():
      title = f'{arm}, step {loaded.step}, {name}'
      print(evaluate.TEXTS[task](title, row))
  print(f'written: {output}')
