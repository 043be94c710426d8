r"""Runs a study: trains what is missing, and reports.

  leviathan study --study=configs/studies/order.py --workdir=runs/order

--dry_run prints the commands of the next stage (orders, learning rates, seeds),
to be run wherever you like; ask again when they are done. Any key of the study
can be set: --study.seeds="(0,)". Keys of the runs' configs go into its
`overrides`.
"""

from collections.abc import Sequence

from absl import flags
from etils import epath
from ml_collections import config_flags

from leviathan import config as config_lib
from leviathan import errors
from leviathan import storage
from leviathan import study as studies
from leviathan.cli import config_flag
from leviathan.cli import jobs
from leviathan.report import page
from leviathan.report import study as report

_STUDY = config_flags.DEFINE_config_file('study', None, 'FILE.py of a study.')
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Directory of the study, made when missing.', required=True
)
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print commands, run none.')
_JOBS = flags.DEFINE_integer(
  'jobs',
  1,
  'Runs at a time, on the CPU: each is held to its share of the cores, and its '
  'output goes to WORKDIR/logs.',
  lower_bound=1,
)


def main(argv: Sequence[str]) -> None:
  """Runs what is missing and writes WORKDIR/report/."""
  del argv
  section = config_flag.read(_STUDY)
  study = config_lib.build(studies.Study, section, 'study')
  path = epath.Path(_WORKDIR.value).expanduser()
  if storage.in_bucket(path):
    raise errors.ConfigError(
      f'--workdir={path} is in a bucket, where nothing can be locked; give a '
      'directory on a disk'
    )
  workspace = studies.Workspace(study, path)
  shares = jobs.cores(_JOBS.value)
  if _DRY_RUN.value:
    workspace.claim(write=False)
    for stage in workspace.stages():
      if stage:
        print('\n'.join(' && '.join(map(jobs.line, j.commands)) for j in stage))
        return
  else:
    with jobs.alone(path) as lock:
      workspace.claim()
      for stage in workspace.stages():
        jobs.run(stage, shares, lock, path / 'logs')
  _report(workspace)


def _report(workspace: studies.Workspace) -> None:
  """Writes the report of the runs, with what each dataset's say, and prints."""
  study = workspace.study
  parts = {}
  for dataset, names in study.by_dataset().items():
    found = {name: workspace.results(name) for name in names}
    rates = {name: workspace.rates(name) for name in names}
    pairs = [pair for pair in study.pairs() if pair[0] in found]
    lost = {name: [run.seed for run in workspace.lost(name)] for name in names}
    note = report.said(workspace.trial_tokens(names[0]), lost)
    first = report.sections(dataset, found, rates, pairs, note)
    parts[dataset] = page.Part(first, [r for of in found.values() for r in of])
  path = page.write_parts(parts, workspace.path / 'report')
  print(path.read_text())
  print(f'report: {path}')
  print(f'page: {path.parent / "index.html"}')
