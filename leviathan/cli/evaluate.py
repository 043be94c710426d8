"""Evaluates a checkpoint: perplexity, in total and by training frequency.

leviathan evaluate --workdir=runs/lev
"""

from absl import flags
from etils import epath

from leviathan import config as config_lib
from leviathan import errors
from leviathan import experiment
from leviathan import rundir
from leviathan.cli import restore
from leviathan.data import counts
from leviathan.eval import frequency
from leviathan.eval import perplexity

TASKS = ('perplexity', 'frequency')

WORKDIR = flags.DEFINE_string(
  'workdir', None, 'The run, its checkpoints/ or one step.', required=True
)
STEP = flags.DEFINE_integer('step', None, 'Checkpoint; the latest by default.')
TASK_NAMES = flags.DEFINE_list('tasks', list(TASKS), f'Of {", ".join(TASKS)}.')
DATA = flags.DEFINE_string(
  'data', None, "Directory of a dataset, in place of the run's own sets."
)


def main(argv) -> None:
  """Runs the command."""
  del argv
  for name in TASK_NAMES.value:
    if name not in TASKS:
      raise errors.ConfigError(
        f'--tasks: {name!r} is not a task{config_lib.nearest(name, TASKS)}'
      )
  loaded = restore.params(rundir.open_(WORKDIR.value), STEP.value)
  config = loaded.parts.config
  directories = config.evaluate.directories()
  if DATA.value:
    directories = {epath.Path(DATA.value).name: DATA.value}
  results = {
    name: evaluate(loaded, directory) for name, directory in directories.items()
  }
  output = loaded.run.eval_dir(loaded.step)
  for task in TASK_NAMES.value:
    document = {'task': task, 'step': loaded.step, 'arm': config.arm}
    document['datasets'] = {name: r[task] for name, r in results.items()}
    rundir.write_json(output / f'{task}.json', document)
  for name, result in results.items():
    for task in TASK_NAMES.value:
      print(
        TABLES[task](f'{config.arm}, step {loaded.step}, {name}', result[task])
      )
  print(f'written: {output}')


def evaluate(loaded: restore.Restored, directory: str) -> dict:
  """{task: its figures} on one dataset; all tasks share one pass."""
  dataset = experiment.open_dataset(directory, loaded.parts.config)
  trained_on = loaded.run.manifest()
  if dataset.manifest.tokenizer.sha256 != trained_on['tokenizer']['sha256']:
    raise errors.DataError(
      f'{directory} was made with another tokenizer (sha256 '
      f'{dataset.manifest.tokenizer.sha256[:12]}) than the run '
      f'({trained_on["tokenizer"]["sha256"][:12]}); prepare it with '
      f'{loaded.run.tokenizer_dir}'
    )
  counts_V = loaded.run.unigram_counts()
  bin_V = frequency.bin_of_token(counts_V)
  sums = loaded.parts.scorer()(
    loaded.params, loaded.parts.eval_batches(dataset), bin_V
  )
  common = {
    'dataset_fingerprint': dataset.manifest.fingerprint,
    'unigram_entropy_nats': counts.entropy(dataset.unigram_counts()),
  }
  found = dataset.manifest
  return {
    'perplexity': common | perplexity.summary(sums, found.tokens, found.bytes),
    'frequency': common
    | {
      'trained_on_fingerprint': trained_on['dataset_fingerprint'],
      'bins': frequency.summary(sums, bin_V),
    },
  }


def _perplexity_table(title: str, row: dict) -> str:
  return (
    f'{title}: {row["nats_per_token"]:.4f} nats per token, perplexity '
    f'{row["perplexity"]:.2f}, {row["bits_per_byte"]:.4f} bits per byte over '
    f'{row["scored_tokens"]:,} tokens (unigram entropy '
    f'{row["unigram_entropy_nats"]:.4f} nats)'
  )


def _frequency_table(title: str, row: dict) -> str:
  lines = [
    f'{title}, by training frequency of the predicted token:',
    f'  {"frequency":<14}{"types":>8}{"tokens":>10}{"nats":>9}'
    f'{"perplexity":>13}',
  ]
  for r in row['bins']:
    figures = f'{"n = 0":>9}'
    if r['tokens']:
      figures = f'{r["nats_per_token"]:>9.4f}{r["perplexity"]:>13.2f}'
    lines.append(
      f'  {r["frequency"]:<14}{r["types"]:>8}{r["tokens"]:>10}{figures}'
    )
  return '\n'.join(lines)


TABLES = {'perplexity': _perplexity_table, 'frequency': _frequency_table}
