"""Which runs of two variants are set against one another, and how sure that is.

Runs of one seed saw the same batches, so these are pairs. Of a single pair that
wrote what each sequence cost, the sequences are.
"""

from collections.abc import Iterable
from typing import NamedTuple

from leviathan.report import groups
from leviathan.report import runs

Pair = tuple[runs.Run, runs.Run]
LISTED = 8  # Names in a sentence; more are counted.


class Pairing(NamedTuple):
  """What a difference is the mean of.

  Attributes:
    by: 'seed', 'sequence', or '' of what is unpaired.
    count: how many pairs.
  """

  by: str
  count: int

  def __str__(self) -> str:
    """'3 seeds', 'sequences' or 'unpaired'."""
    if self.by == 'seed':
      return f'{self.count} seed' + ('s' if self.count > 1 else '')
    return 'sequences' if self.by else 'unpaired'

  @property
  def said(self) -> str:
    """The same as a reader needs it who sees an interval."""
    if self.by == 'sequence':
      return (
        'paired by sequence, with the 95 % interval of the bootstrap over the '
        'sequences of one pair of runs, which says nothing of other seeds'
      )
    if not self.by:
      return 'of runs without a seed in common: unpaired, without an interval'
    if self.count == 1:
      return 'of one pair of runs of one seed, without an interval'
    return (
      f"paired by seed, with the 95 % interval of Student's t over the "
      f'{self.count} seeds'
    )


def pairs(ours: groups.Variant, theirs: groups.Variant) -> list[Pair]:
  """Their runs of one seed each, of the seeds that both have."""
  by_seed = {run.seed: run for run in theirs.runs}
  return [(r, by_seed[r.seed]) for r in ours.runs if r.seed in by_seed]


def by_sequence(
  ours: groups.Variant, theirs: groups.Variant, dataset: str
) -> Pair | None:
  """Their one pair, if both have samples of the dataset."""
  paired = pairs(ours, theirs)
  if len(paired) == 1 and all(dataset in run.samples for run in paired[0]):
    return paired[0]
  return None


def of(
  ours: groups.Variant, theirs: groups.Variant, dataset: str = ''
) -> Pairing:
  """How their losses on a dataset are paired; without one, any other figure."""
  if dataset and (pair := by_sequence(ours, theirs, dataset)):
    return Pairing('sequence', len(pair[0].samples[dataset]))
  count = len(pairs(ours, theirs))
  return Pairing('seed' if count else '', count)


def sentence(named: Iterable[tuple[str, Pairing]]) -> str:
  """How differences are paired: 'Differences are paired by seed, ...'.

  Args:
    named: what is compared, and how; names stand there where ways differ.
  """
  names: dict[str, list[str]] = {}
  for name, how in named:
    names.setdefault(how.said, []).append(name)
  ways = [
    f'{said} ({_list(of_it)})' if len(names) > 1 else said
    for said, of_it in names.items()
  ]
  return f'Differences are {"; ".join(ways)}.'


def _list(names: list[str]) -> str:
  return '; '.join(names) if len(names) <= LISTED else f'{len(names)} of them'


def of_rivals(
  rivals: Iterable[tuple[groups.Variant, groups.Variant]], dataset: str = ''
) -> str:
  """The `sentence` of variants and their baselines."""
  return sentence((v.label, of(v, b, dataset)) for v, b in rivals)
