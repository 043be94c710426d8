"""The report: one Markdown page and its picture."""

from collections.abc import Sequence
import dataclasses

from etils import epath

from leviathan import errors
from leviathan.eval import frequency
from leviathan.report import curves
from leviathan.report import runs
from leviathan.report import tables


def write(workdirs: Sequence[str], directory: epath.Path) -> epath.Path:
  """Writes `report.md` and `curves.png`, and returns the path of the page.

  Raises:
    CheckpointError: a run is missing, was not evaluated, or was trained or
      evaluated on other data than the first; nothing is written.
  """
  found = _distinct(workdirs, [runs.read(workdir) for workdir in workdirs])
  for workdir, run in zip(workdirs, found, strict=True):
    _check_same_data(workdir, run, found[0])
  entropies = {
    name: row['unigram_entropy_nats']
    for name, row in found[0].results['perplexity'].items()
  }
  parts = ['# Report', '![Loss by tokens](curves.png)']
  for name, entropy in entropies.items():
    parts += [
      f'## {name}',
      f'Unigram entropy: {entropy:.4f} nats per token. A model below it has '
      'learned more than how frequent each token is.',
      tables.losses(found, name),
      *_frequency(found, name),
    ]
  parts += ['## Parameters', tables.parameters(found)]
  directory.mkdir(parents=True, exist_ok=True)
  figure = curves.draw(
    'tokens',
    {run.label: [run.curve(s) for s in run.validation_splits] for run in found},
    {run.label: [run.curve('train')] for run in found},
    next(iter(entropies.values())),
  )
  with (directory / 'curves.png').open('wb') as file:
    figure.savefig(file, format='png', dpi=150)
  page = directory / 'report.md'
  page.write_text('\n\n'.join(parts) + '\n')
  return page


def _frequency(found: Sequence[runs.Run], dataset: str) -> list[str]:
  """The frequency strata of a dataset, and how runs differ in them."""
  parts = []
  for side, words in frequency.SIDES.items():
    if all(side in run.results['frequency'][dataset] for run in found):
      parts += [
        f'Perplexity by how frequent the {words} token was in training:',
        tables.frequency(found, dataset, side),
      ]
  return parts + _differences(found, dataset) if found[1:] else parts


def _differences(found: Sequence[runs.Run], dataset: str) -> list[str]:
  """How each further run differs from the first, sequence by sequence."""
  missing = [
    f'`leviathan evaluate --workdir={run.path} --step={run.step} '
    '--tasks=frequency`'
    for run in found
    if dataset not in run.samples
  ]
  if missing:
    return [
      'For differences paired by sequence, evaluate again, which writes what '
      f'each sequence cost: {", ".join(missing)}.'
    ]
  compared = {}
  first, *others = found
  for run in others:
    try:
      compared[run.label] = frequency.compare(
        first.samples[dataset], run.samples[dataset]
      )
    except errors.DataError as e:
      raise errors.CheckpointError(
        f'{first.path} and {run.path}, {dataset}: {e}'
      ) from e
  parts = []
  for side, words in frequency.SIDES.items():
    parts += [
      f'Difference to {first.label}, nats per token, paired by sequence, by '
      f'how frequent the {words} token was in training; in brackets the 95 % '
      'interval of the bootstrap over sequences, after it the ratio of the '
      'perplexities:',
      tables.differences({run: rows[side] for run, rows in compared.items()}),
    ]
  return parts


def _distinct(
  workdirs: Sequence[str], found: Sequence[runs.Run]
) -> list[runs.Run]:
  """The runs, those of one arm told apart by their directories."""
  arms = [run.label for run in found]
  return [
    dataclasses.replace(run, label=f'{run.label} ({epath.Path(workdir).name})')
    if arms.count(run.label) > 1
    else run
    for workdir, run in zip(workdirs, found, strict=True)
  ]


def _check_same_data(workdir: str, run: runs.Run, first: runs.Run) -> None:
  """Numbers from different data stand side by side in no table."""
  if run.dataset_fingerprint != first.dataset_fingerprint:
    raise errors.CheckpointError(
      f'{workdir} was trained on dataset {run.dataset_fingerprint[:12]}, the '
      f'first run on {first.dataset_fingerprint[:12]}; compare runs of one '
      'dataset'
    )
  for task in ('perplexity', 'frequency'):
    evaluated = {
      name: row['dataset_fingerprint']
      for name, row in run.results.get(task, {}).items()
    }
    wanted = {
      name: row['dataset_fingerprint']
      for name, row in first.results.get(task, {}).items()
    }
    if not evaluated or evaluated != wanted:
      raise errors.CheckpointError(
        f'{workdir}: {task} was evaluated on '
        f'{", ".join(evaluated) or "nothing"}, the first run on '
        f'{", ".join(wanted) or "nothing"}; run leviathan evaluate '
        f'--workdir={workdir} on the same data'
      )
