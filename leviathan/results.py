"""What an evaluation leaves: files in the run, and tables for who watches.

`eval/STEP/TASK.json` has the figures of each set with their protocol, and
`TASK.samples.jsonl` a line for each item.
"""

from collections.abc import Collection
from collections.abc import Iterable
from typing import Any

from etils import epath

from leviathan import evaluate
from leviathan import metrics
from leviathan import restore
from leviathan import rundir
from leviathan import storage
from leviathan.eval import frequency
from leviathan.report import markdown

# What figures are called, and in which form.
SHOWN = {
  'nats_per_token': ('nats per token', ',.4f'),
  'unigram_entropy_nats': ('unigram entropy, nats', ',.4f'),
  'perplexity': ('perplexity', ',.2f'),
  'word_perplexity': ('perplexity by word', ',.2f'),
  'byte_perplexity': ('perplexity by byte', ',.4f'),
  'bits_per_byte': ('bits per byte', ',.4f'),
  'acc': ('acc', ',.4f'),
  'acc_norm': ('acc_norm', ',.4f'),
}


def write(
  loaded: restore.Restored, results: evaluate.Results, folder: str = ''
) -> epath.Path:
  """Writes what each task came to; returns the directory.

  Sets that were evaluated before, and now were not, stay.

  Args:
    loaded: what was evaluated.
    results: see evaluate.Results.
    folder: in the directory of the step, for results of another kind.
  """
  output = loaded.run.eval_dir(loaded.step) / folder
  config = loaded.parts.config
  of_run = {
    'step': loaded.step,
    'manifest_sha256': loaded.manifest_sha256,
    'precision': config.model.precision,
  }
  for task, sets in results.items():
    file = output / f'{task}.json'
    before = rundir.read_json(file)['datasets'] if file.exists() else {}
    datasets = {n: r for n, r in before.items() if not _is_of(n, sets)}
    for name, (figures, _) in sets.items():
      protocol = of_run | figures['protocol']
      datasets[name] = figures | {'protocol': protocol}
    document = {
      'task': task,
      'step': loaded.step,
      'arm': config.arm,
      'datasets': datasets,
    }
    _write_samples(output / f'{task}.samples.jsonl', sets)
    rundir.write_json(file, metrics.to_json(document))
  return output


def _is_of(name: str, sets: Collection[str]) -> bool:
  """Whether a set is one of these, or a subset of one, also of before."""
  return name in sets or name.partition('/')[0] in sets


def _write_samples(path: epath.Path, sets: dict[str, evaluate.Result]) -> None:
  """Puts the samples of these sets in place of those that were there."""
  lines = [x for x in metrics.read(path) if not _is_of(x['dataset'], sets)]
  for name, (_, samples) in sets.items():
    lines += [{'dataset': name, **sample} for sample in samples()]
  storage.write(path, ''.join(metrics.line(line) for line in lines))


def text(pieces: Iterable[evaluate.Results]) -> str:
  """Tables in Markdown: of all figures, and of strata."""
  rows, strata = [], []
  for task, sets in (item for piece in pieces for item in piece.items()):
    for name, (figures, _) in sets.items():
      if task == evaluate.FREQUENCY:
        # Early versions had not all sides.
        sides = [s for s in frequency.SIDES if s in figures]
        strata += [_strata(name, figures[s], s) for s in sides]
      else:
        rows += _rows(task, name, figures)
  header = ['task', 'metric', 'value', 'stderr', 'of']
  parts = [markdown.table(header, rows)] if rows else []
  return '\n\n'.join(parts + strata)


def _rows(task: str, name: str, figures: dict[str, Any]) -> list[list[str]]:
  count = f'{figures["scored_tokens"]:,} tokens'
  for unit in ('items', 'pages'):
    if unit in figures:
      count = f'{figures[unit]:,} {unit}'
  if figures.get('protocol', {}).get('official') is False:
    count += ' of another file'
  rows = []
  for metric, value in figures.items():
    stderr = figures.get(f'{metric}_stderr')
    # Counts are whole numbers.
    if isinstance(value, float) and not metric.endswith('_stderr'):
      label, form = SHOWN.get(metric, (metric, ',.4f'))
      shown = '' if stderr is None else format(stderr, form)
      rows.append([f'{task} {name}', label, format(value, form), shown, count])
  return rows


def _strata(name: str, bins: list[dict[str, Any]], side: str) -> str:
  """A line a bin."""
  rows = []
  for row in bins:
    figures = ['n = 0', '', '']
    if row['tokens']:
      figures = [
        f'{row["nats_per_token"]:.4f}',
        f'{row["perplexity"]:,.2f}',
        '',
      ]
    if interval := row.get('perplexity_interval'):
      figures[2] = ' to '.join(f'{end:,.2f}' for end in interval)
    counts = (row['types'], row['types_scored'], row['tokens'])
    rows.append([row['frequency'], *(f'{n:,}' for n in counts), *figures])
  header = [
      'training frequency', 'types', 'scored', 'tokens', 'nats per token',
      'perplexity', '95 %',
  ]  # yapf: disable
  kind = frequency.SIDES[side]
  return f'{name}, by {kind} token:\n\n{markdown.table(header, rows)}'
