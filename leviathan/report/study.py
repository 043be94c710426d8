"""What a study says beyond the report of its runs: its rates and contrasts."""

from collections.abc import Mapping
from collections.abc import Sequence

from leviathan import errors
from leviathan.report import compare
from leviathan.report import document
from leviathan.report import groups
from leviathan.report import pairing
from leviathan.report import runs
from leviathan.report import sections as sections_lib
from leviathan.report import strata
from leviathan.report import tables

Rates = Mapping[str, Mapping[float, float]]
Pair = tuple[groups.Variant, groups.Variant]


def sections(
  dataset: str,
  found: Mapping[str, Sequence[runs.Run]],
  rates: Rates,
  pairs: Sequence[tuple[str, str]],
  note: str,
) -> list[document.Section]:
  """How rates were chosen, and the differences that were asked for.

  Args:
    dataset: the directory of what all train on.
    found: the runs of each variant, one a seed.
    rates: {variant: {learning rate: nats per token with the first seed}}.
    pairs: variants whose difference is asked for.
    note: see `said`.

  Raises:
    CheckpointError: the runs were trained on different data.
  """
  _check(found)
  first = next(iter(found.values()))[0]
  variants = {
    name: groups.Variant(label=name, runs=tuple(of_seeds))
    for name, of_seeds in found.items()
  }
  named = {f'{a} - {b}': (variants[a], variants[b]) for a, b in pairs}
  seeds = sorted({run.seed for runs_ in found.values() for run in runs_})
  intro = (
    f'{len(found)} variants, trained on {dataset} '
    f'({first.dataset_fingerprint[:12]}), {first.tokens:,} tokens each; seeds: '
    f'{", ".join(map(str, seeds))}. {note}'
  )
  return [
    document.Section('Study', [intro, _rates(rates)]),
    *(
      document.Section(
        f'Contrasts on {name}',
        [_contrasts(named, name), _strata(named, name)],
      )
      for name in first.evaluation_sets
      if named
    ),
  ]


def said(trial_tokens: int, lost: Mapping[str, Sequence[int]]) -> str:
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


def _check(found: Mapping[str, Sequence[runs.Run]]) -> None:
  """All of one dataset."""
  first = next(iter(found.values()))[0]
  for name, of_seeds in found.items():
    for run in of_seeds:
      if run.dataset_fingerprint != first.dataset_fingerprint:
        raise errors.CheckpointError(
          f'a run of {name} was trained on dataset '
          f'{run.dataset_fingerprint[:12]}, another on '
          f'{first.dataset_fingerprint[:12]}; give the study a new --workdir'
        )


def _contrasts(named: Mapping[str, Pair], dataset: str) -> document.Table:
  """A row a contrast."""
  header = ['contrast', 'pairs', 'difference, nats', 'gain, %']
  rows = []
  values: list[list] = [
    ['contrast', 'paired_by', 'pairs', *sections_lib.DIFFERENCE]
  ]
  for name, pair in named.items():
    cells, numbers = sections_lib.against(*pair, dataset)
    rows.append([name, *cells])
    values.append([name, *numbers])
  caption = (
    'The first less the second, nats per token, held out: below 0 the first is '
    'better, and its gain is by how much its perplexity is lower. '
    + _paired(named, dataset)
  )
  return document.Table(
    tables.name('contrasts', dataset), caption, header, rows, values
  )


def _strata(named: Mapping[str, Pair], dataset: str) -> document.Table:
  """A row a contrast, a column a bin that was met."""
  compared = {
    name: compare.strata(*pair, dataset, 'bins') for name, pair in named.items()
  }
  first = next(iter(compared.values()))
  met = [i for i, stratum in enumerate(first) if stratum.tokens]
  header = [f'{first[i].frequency} (n = {first[i].tokens:,})' for i in met]
  rows = [
    [name, *(tables.said(bins[i].difference, '+.4f') for i in met)]
    for name, bins in compared.items()
  ]
  caption = (
    'The same by how frequent the predicted token was in training, nats per '
    'token; in brackets the interval. ' + _paired(named, dataset)
  )
  return document.Table(
    tables.name('contrasts_strata', dataset),
    caption,
    ['contrast', *header],
    rows,
    strata.values(compared, 'contrast'),
  )


def _paired(named: Mapping[str, Pair], dataset: str) -> str:
  return pairing.sentence(
    (name, pairing.of(*pair, dataset)) for name, pair in named.items()
  )


def _rates(rates: Rates) -> document.Table:
  """A row a variant, a column a rate."""
  best = {name: min(t, key=t.__getitem__) for name, t in rates.items()}
  columns = sorted({rate for tried in rates.values() for rate in tried})
  rows = [
    [
      name,
      *(f'{tried[r]:.4f}' if r in tried else tables.NONE for r in columns),
      f'{best[name]:g}',
    ]
    for name, tried in rates.items()
  ]
  values = [['variant', 'learning_rate', 'nats_per_token', 'chosen']] + [
    [name, rate, loss, int(rate == best[name])]
    for name, tried in rates.items()
    for rate, loss in tried.items()
  ]
  caption = (
    'Nats per token, held out, by learning rate, with the first seed; the best '
    'is taken for all seeds.'
  )
  edges = [
    name
    for name, tried in rates.items()
    if len(tried) > 1 and best[name] in (min(tried), max(tried))
  ]
  if edges:
    caption += f' It is the lowest or the highest tried for {", ".join(edges)}.'
  header = ['variant', *(f'{r:g}' for r in columns), 'chosen']
  return document.Table('learning_rates', caption, header, rows, values)
