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
from leviathan.eval import harness

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
HARNESS = flags.DEFINE_bool(
  'harness', False, 'Run lm-evaluation-harness; --tasks are any of its own.'
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
  if not HARNESS.value:
    evaluate.check_names(TASKS.value)
  loaded = restore.with_table(run_flags.restored())
  results = _by_harness(loaded) if HARNESS.value else _by_us(loaded)
  folder = 'harness' if HARNESS.value else ''
  output = results_lib.write(loaded, results, folder)
  print(f'{loaded.parts.config.arm}, step {loaded.step}\n')
  print(results_lib.text(results))
  print(f'written: {output}')


def _by_us(loaded: restore.Restored) -> evaluate.Results:
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
    return evaluation.run(loaded.params, bar.update)


def _by_harness(loaded: restore.Restored) -> evaluate.Results:
  found = harness.run(
    evaluate.for_harness(loaded), TASKS.value, TASK_DATA.value
  )
  return {name: {'harness': evaluate.Result(*r)} for name, r in found}


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
