"""A study's report in Markdown: losses, contrasts, frequency strata."""

from collections.abc import Mapping
from collections.abc import Sequence

from leviathan import errors
from leviathan.report import markdown
from leviathan.report import replicates
from leviathan.report import runs

Pairs = Sequence[tuple[str, str]]


def page(
  dataset: str,
  found: Mapping[str, Sequence[runs.Run]],
  rates: Mapping[str, Mapping[float, float]],
  pairs: Pairs,
  said: str,
) -> str:
  """The report.

  Args:
    dataset: the directory of what all train on.
    found: the runs of each variant, one a seed.
    rates: {variant: {learning rate: nats per token with the first seed}}.
    pairs: variants whose difference is asked for.
    said: see `note`.

  Raises:
    CheckpointError: the runs were trained on different data.
  """
  first = next(iter(found.values()))[0]
  for name, of_seeds in found.items():
    for run in of_seeds:
      if run.dataset_fingerprint != first.dataset_fingerprint:
        raise errors.CheckpointError(
          f'a run of {name} was trained on dataset '
          f'{run.dataset_fingerprint[:12]}, another on '
          f'{first.dataset_fingerprint[:12]}; give the study a new --workdir'
        )
  parts = [
    f'# Study on {dataset}',
    f'{len(_seeds(found))} seeds, {first.tokens:,} tokens each, '
    f'training data {first.dataset_fingerprint[:12]}. Nats per token, held '
    'out; differences are paired by seed, with the 95 % interval of '
    f"Student's t over the seeds. Below 0, the first is better. {said}",
  ]
  for name in first.evaluation_sets:
    parts += [
      f'## {name}',
      _losses(found, rates, name),
      _contrasts(found, pairs, name),
      'By how frequent the predicted token was in training:',
      _strata(found, pairs, name),
    ]
  parts += [
    '## Learning rates',
    'Nats per token with the first seed; the best is taken for all.'
    + _edges(rates),
    _rates(rates),
  ]
  return '\n\n'.join(parts) + '\n'


def note(trial_tokens: int, lost: Mapping[str, Sequence[int]]) -> str:
  """How learning rates were chosen, and what is left out.

  Args:
    trial_tokens: that a learning rate was tried for in a run of its own; 0 if
      the runs that tried it are among those compared.
    lost: {variant: seeds whose loss was not finite}.
  """
  chosen = (
    'The learning rate of each variant was chosen by the same held-out losses '
    'with the first seed, '
  ) + (
    f'in runs of their own of {trial_tokens:,} tokens.'
    if trial_tokens
    else 'whose run is one of those compared.'
  )
  names = [f'{n} with seed {s}' for n, seeds in lost.items() for s in seeds]
  if not names:
    return chosen
  return f'{chosen} Left out, as not finite: {", ".join(names)}.'


def _seeds(found: Mapping[str, Sequence[runs.Run]]) -> list[int]:
  return sorted({run.seed for of_seeds in found.values() for run in of_seeds})


def _difference(ours, theirs, value) -> str:
  """Of runs of one seed each; of the seeds that both have."""
  by_seed = {run.seed: run for run in theirs}
  pairs = [(r, by_seed[r.seed]) for r in ours if r.seed in by_seed]
  if not pairs:
    return '-'
  return str(replicates.estimate([value(a) - value(b) for a, b in pairs]))


def _losses(found, rates, dataset) -> str:
  rows = []
  seeds = _seeds(found)
  for name, of_seeds in found.items():
    values = {run.seed: _nats(run, dataset) for run in of_seeds}
    best = min(rates[name], key=rates[name].__getitem__)
    mean = replicates.estimate([*values.values()]).mean
    rows.append(
      [
        name,
        f'{best:g}',
        f'{of_seeds[0].parameters["input"]:,}',
        f'{mean:.4f}',
        *(f'{values[s]:.4f}' if s in values else '-' for s in seeds),
      ]
    )
  header = ['variant', 'learning rate', 'input parameters', 'mean']
  header += [f'seed {seed}' for seed in seeds]
  return markdown.table(header, rows)


def _contrasts(found, pairs: Pairs, dataset) -> str:
  rows = [
    [
      f'{ours} - {theirs}',
      _difference(found[ours], found[theirs], lambda r: _nats(r, dataset)),
    ]
    for ours, theirs in pairs
  ]
  return markdown.table(['contrast', 'nats per token'], rows)


def _strata(found, pairs: Pairs, dataset) -> str:
  """A row a contrast, a column a bin that was met."""
  first = next(iter(found.values()))[0]
  bins = first.results['frequency'][dataset]['bins']
  met = [i for i, row in enumerate(bins) if row['tokens']]

  def nats(i):
    return lambda run: run.results['frequency'][dataset]['bins'][i][
      'nats_per_token'
    ]

  rows = [
    [
      f'{ours} - {theirs}',
      *(_difference(found[ours], found[theirs], nats(i)) for i in met),
    ]
    for ours, theirs in pairs
  ]
  header = [f'{bins[i]["frequency"]} (n = {bins[i]["tokens"]:,})' for i in met]
  return markdown.table(['contrast', *header], rows)


def _edges(rates) -> str:
  """Which variants might do better beyond the rates that were tried."""
  found = []
  for name, tried in rates.items():
    best = min(tried, key=tried.__getitem__)
    if len(tried) > 1 and best in (min(tried), max(tried)):
      found.append(name)
  if not found:
    return ''
  return f' It is the lowest or the highest tried for {", ".join(found)}.'


def _rates(rates) -> str:
  columns = sorted({rate for tried in rates.values() for rate in tried})
  rows = [
    [name, *(f'{tried[r]:.4f}' if r in tried else '-' for r in columns)]
    for name, tried in rates.items()
  ]
  return markdown.table(['variant', *(f'{r:g}' for r in columns)], rows)


def _nats(run: runs.Run, dataset: str) -> float:
  return run.results['perplexity'][dataset]['nats_per_token']
