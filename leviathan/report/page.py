"""The report: what runs say of one another, as a document."""

from collections.abc import Sequence
import dataclasses

from etils import epath

from leviathan.report import curves
from leviathan.report import document
from leviathan.report import groups as groups_lib
from leviathan.report import provenance
from leviathan.report import scaling
from leviathan.report import sections
from leviathan.report import strata
from leviathan.report import tables
from leviathan.report import tasks


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
  return _write('Report', build(groups), directory, groups)


def build(groups: groups_lib.Groups) -> list[document.Section]:
  """The sections, in order."""
  found = [provenance.left_out(groups), provenance.warnings(groups)]
  for dataset in groups.datasets:
    found += [
      sections.losses(groups, dataset),
      sections.subsets(groups, dataset),
      sections.tokens_to_match(groups, dataset),
      sections.ablation(groups, dataset),
      *scaling.sections(groups, dataset),
      *strata.sections(groups, dataset),
    ]
  found += [
    tasks.section(groups),
    sections.parameters(groups),
    sections.cost(groups),
    provenance.compared(groups),
  ]
  return [section for section in found if section is not None]


# Until document.write is there, which this call gives way to.
def _write(title, found, directory, groups) -> epath.Path:
  parts = [f'# {title}', '![Loss by tokens](curves.png)']
  directory.mkdir(parents=True, exist_ok=True)
  for section in found:
    parts.append(f'## {section.title}')
    for part in section.parts:
      match part:
        case document.Table():
          parts += [part.caption, tables.markdown(part.header, part.rows)]
        case document.Picture():
          parts.append(f'![{part.caption}]({part.name}.png)')
          with (directory / f'{part.name}.png').open('wb') as file:
            part.figure.savefig(file, format='png')
        case str():
          parts.append(part)
  entropies = {
    name: row['unigram_entropy_nats']
    for name, row in groups.baselines[0].first.results['perplexity'].items()
  }
  labelled = [
    dataclasses.replace(run, label=variant.label)
    for variant in groups.variants
    for run in variant.runs
  ]
  curves.draw(labelled, entropies, directory / 'curves.png')
  page = directory / 'report.md'
  page.write_text('\n\n'.join(parts) + '\n')
  return page
