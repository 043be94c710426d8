"""Evaluates a checkpoint: datasets, frequency strata and tasks.

  leviathan evaluate --workdir=runs/lev
  leviathan evaluate --workdir=runs/lev --step=best \
      --tasks=hellaswag,lambada,wikitext --task_data=benchmarks

A table is printed. Figures with their protocol go to
WORKDIR/eval/STEP/TASK.json, a line for each item to TASK.samples.jsonl.
"""

from absl import flags
from etils import epath
import tqdm

from leviathan import errors
from leviathan import evaluate
from leviathan import restore
from leviathan import results as results_lib
from leviathan.cli import run_flags

TASKS = flags.DEFINE_list(
  'tasks', list(evaluate.DATASET_TASKS), f'Of {", ".join(evaluate.TASKS)}.'
)
DATA = flags.DEFINE_list(
  'data',
  None,
  "Datasets in place of the run's own sets, as DIR or NAME=DIR; one that "
  'holds a dataset of each subset is evaluated by subset and in total.',
)
TASK_DATA = flags.DEFINE_string(
  'task_data',
  '',
  "Directory below which the tasks' official files lie; else they come from "
  'the Hugging Face hub.',
)
STRIDE = flags.DEFINE_integer(
  'stride',
  None,
  'Tokens that each window but the first scores of a text that is longer than '
  'the model reads; by default all of a window, a smaller one gives each token '
  'more context.',
)


def main(argv) -> None:
  """Runs the command."""
  del argv
  evaluate.check_names(TASKS.value)
  loaded = restore.with_table(run_flags.restored())
  evaluation = evaluate.read(
    loaded.parts,
    TASKS.value,
    _directories(loaded),
    TASK_DATA.value,
    0,
    evaluate.training_of(loaded.run),
    STRIDE.value,
  )
  with tqdm.tqdm(total=evaluation.size, unit='seq', disable=None) as bar:
    results = evaluation.run(loaded.params, bar.update)
  output = results_lib.write(loaded, results)
  print(f'{loaded.parts.config.arm}, step {loaded.step}\n')
  print(results_lib.text(results))
  print(f'written: {output}')


def _directories(loaded: restore.Restored) -> dict[str, str]:
  """{name: directory} of the datasets to evaluate."""
  if DATA.value:
    directories = dict(map(_named, DATA.value))
    if len(directories) < len(DATA.value):
      raise errors.ConfigError(
        f'--data={",".join(DATA.value)} has two sets of one name; give '
        'NAME=DIR for each'
      )
    return directories
  directories = loaded.parts.config.evaluate.directories()
  if not directories and set(TASKS.value) & set(evaluate.DATASET_TASKS):
    raise errors.ConfigError(
      f"{loaded.run.path} has no config.evaluate.datasets; give a dataset's "
      '--data=DIR'
    )
  return directories


def _named(entry: str) -> tuple[str, str]:
  """(name, directory) of NAME=DIR, or of DIR, whose last part is its name."""
  name, equals, directory = entry.partition('=')
  if equals and name and '/' not in name:
    return name, directory
  return epath.Path(entry).name, entry
