r"""Evaluates a checkpoint: datasets, frequency strata and tasks.

  leviathan evaluate --workdir=runs/lev
  leviathan evaluate --workdir=runs/lev --step=best \
      --tasks=hellaswag,lambada,wikitext --task_data=data/tasks

A table is printed. Figures with their protocol go to
WORKDIR/eval/STEP/TASK.json, a line for each item to TASK.samples.jsonl.
"""

from collections.abc import Iterator

from absl import flags
from etils import epath
import tqdm

from leviathan import errors
from leviathan import evaluate
from leviathan import restore
from leviathan import results as results_lib
from leviathan import rundir
from leviathan.cli import run_flags
from leviathan.eval import harness

TASKS = flags.DEFINE_list(
  'tasks',
  None,
  f'Of {", ".join(evaluate.TASKS)}; by default '
  f'{",".join(evaluate.DATASET_TASKS)}.',
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
TASK_ITEMS = flags.DEFINE_integer(
  'task_items',
  0,
  'Items of each of the tasks, spread over all of it; 0 is all.',
  lower_bound=0,
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
  names = _tasks()
  loaded = restore.with_table(run_flags.restored())
  rundir.check_writable(loaded.run.path)
  found = _by_harness if HARNESS.value else _by_us
  pieces = []
  for results in found(loaded, names):
    # Each as it comes: what follows may take hours.
    output = results_lib.write(
      loaded, results, 'harness' if HARNESS.value else ''
    )
    pieces.append(results)
  print(f'{loaded.parts.config.arm}, step {loaded.step}\n')
  print(results_lib.text(pieces))
  print(f'written: {output}')


def _tasks() -> list[str]:
  """The tasks that are asked for.

  Raises:
    ConfigError: there is none of that name, or a flag means nothing to them.
  """
  default = [] if HARNESS.value else [*evaluate.DATASET_TASKS]
  names: list[str] = default if TASKS.value is None else TASKS.value
  if not names:
    raise errors.ConfigError(
      '--tasks names none; give some, as --tasks=hellaswag,lambada'
    )
  if not HARNESS.value:
    evaluate.check_names(names)
  of_datasets = set(names) & set(evaluate.DATASET_TASKS)
  of_texts = set(names) - of_datasets
  misplaced = {
    'data': HARNESS.value or not of_datasets,
    'stride': HARNESS.value or of_datasets,
    'task_data': not of_texts,
    'task_items': not HARNESS.value and not of_texts,
  }
  for flag, is_misplaced in misplaced.items():
    if flags.FLAGS[flag].value and is_misplaced:
      raise errors.ConfigError(
        f'--{flag} means nothing to {"--harness " if HARNESS.value else ""}'
        f'--tasks={",".join(names)}; leave it out'
      )
  return names


def _by_us(
  loaded: restore.Restored, names: list[str]
) -> Iterator[evaluate.Results]:
  """By this project's own code."""
  evaluation = evaluate.read(
    loaded.parts,
    names,
    _directories(loaded, names),
    TASK_DATA.value,
    TASK_ITEMS.value,
    evaluate.training_of(loaded.run),
    STRIDE.value,
  )
  with tqdm.tqdm(total=evaluation.size, unit='seq', disable=None) as bar:
    yield from evaluation.run(loaded.params, bar.update)


def _by_harness(
  loaded: restore.Restored, names: list[str]
) -> Iterator[evaluate.Results]:
  """Through lm-evaluation-harness."""
  found = harness.run(
    evaluate.for_harness(loaded),
    names,
    TASK_DATA.value,
    TASK_ITEMS.value or None,
  )
  for name, (figures, samples) in found:
    yield {name: {'harness': evaluate.Result(figures, samples.copy)}}


def _directories(loaded: restore.Restored, names: list[str]) -> dict[str, str]:
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
  if not directories and set(names) & set(evaluate.DATASET_TASKS):
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
