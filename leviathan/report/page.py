"""The report: what runs say of one another, as a document."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from etils import epath

from leviathan.report import compare
from leviathan.report import curves
from leviathan.report import document
from leviathan.report import groups as groups_lib
from leviathan.report import provenance
from leviathan.report import runs as runs_lib
from leviathan.report import scaling
from leviathan.report import sections
from leviathan.report import sizes
from leviathan.report import strata
from leviathan.report import tables
from leviathan.report import tasks

TITLE = 'Report'


def write(
  workdirs: Sequence[str],
  directory: epath.Path,
  baseline: str | None = None,
) -> epath.Path:
  """Writes the report of these runs, and returns the path of `report.md`.

  Args:
    workdirs: of runs; those that cannot be shown are named and left out.
    directory: of the report, made when missing.
    baseline: see `groups.read`.

  Raises:
    ConfigError: the baseline is none of them.
    CheckpointError: no run can be shown, or two that are compared were
      evaluated on different tokens; nothing is written.
  """
  groups = groups_lib.read(workdirs, baseline)
  return document.write(TITLE, build(groups), directory)


class Part(NamedTuple):
  """Of a study, what trained on one dataset.

  Attributes:
    first: sections that come before those of the runs.
    runs: all of them.
  """

  first: Sequence[document.Section]
  runs: Sequence[runs_lib.Run]


def write_parts(parts: Mapping[str, Part], directory: epath.Path) -> epath.Path:
  """Writes the report of a study, and returns the path of `report.md`.

  Where runs of one vocabulary were trained on different data, which cannot
  stand side by side, each dataset has all sections for itself.

  Args:
    parts: {dataset: what trained on it}; of several, the dataset stands in the
      title of what is of it alone.
    directory: of the report, made when missing.

  Raises:
    CheckpointError: see `write`.
  """
  every = [run for part in parts.values() for run in part.runs]
  data = {(r.manifest['vocab_size'], r.dataset_fingerprint) for r in every}
  apart = len(data) > len({size for size, _ in data})
  found: list[document.Section] = []
  for dataset, part in parts.items():
    words = f', trained on {dataset}' if len(parts) > 1 else ''
    of_it = [*part.first, *(_of_runs(part.runs) if apart else [])]
    found += [s._replace(title=s.title + words) for s in of_it]
  if not apart:
    found += _of_runs(every)
  return document.write(TITLE, found, directory)


def _of_runs(found: Sequence[runs_lib.Run]) -> list[document.Section]:
  return build(groups_lib.read([str(run.path) for run in found]))


def build(groups: groups_lib.Groups) -> list[document.Section]:
  """The sections, in order."""
  found = [provenance.left_out(groups), provenance.warnings(groups)]
  for dataset in groups.datasets:
    found += [
      sections.losses(groups, dataset),
      _curves(groups, dataset),
      sections.subsets(groups, dataset),
      sections.tokens_to_match(groups, dataset),
      sections.ablation(groups, dataset),
      *scaling.sections(groups, dataset),
      *strata.sections(groups, dataset),
    ]
  found += [
    tasks.section(groups),
    sizes.parameters(groups),
    sizes.cost(groups),
    provenance.compared(groups),
  ]
  return [section for section in found if section is not None]


def _curves(groups: groups_lib.Groups, dataset: str) -> document.Section | None:
  """Loss by tokens, by time and by FLOPs, of those that were evaluated."""
  entropy = groups.baselines[0].first.results['perplexity'][dataset]
  pictures = []
  for axis, words in curves.AXES.items():
    validation, training = (
      compare.curves(groups.drawn(), split, axis)
      for split in (f'validation/{dataset}', 'train')
    )
    if any(x for seeds in validation.values() for x, _ in seeds):
      figure = curves.draw(
        axis, validation, training, entropy['unigram_entropy_nats']
      )
      name = tables.name('curves', axis, dataset)
      caption = (
        f'Loss by {words}: with markers held out, the mean over seeds in a '
        'band from the lowest to the highest; thin lines are the losses in '
        'training, smoothed.'
        + groups_lib.said_of_drawn(groups.drawn(), groups.variants)
      )
      pictures.append(document.Picture(name, caption, figure))
  return document.Section(f'{dataset}: curves', pictures) if pictures else None
