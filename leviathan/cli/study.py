r"""Runs a study: trains what is missing, one run after another, and reports.

  leviathan study --study=configs/studies/order.py --workdir=runs/order

--dry_run prints the commands of the next stage (orders, learning rates, seeds),
to be run wherever you like; ask again when they are done. Any key of the study
can be set: --study.seeds="(0,)". Keys of the runs' configs go into its
`overrides`.
"""

from collections.abc import Sequence
import shlex
import subprocess
import sys

from absl import flags
from etils import epath
from ml_collections import config_flags

from leviathan import config as config_lib
from leviathan import errors
from leviathan import study as studies
from leviathan.cli import config_flag
from leviathan.report import study as report

_STUDY = config_flags.DEFINE_config_file('study', None, 'FILE.py of a study.')
_WORKDIR = flags.DEFINE_string(
  'workdir', None, 'Directory of the study, made when missing.', required=True
)
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print commands, run none.')


def main(argv: Sequence[str]) -> None:
  """Runs what is missing and writes WORKDIR/report.md."""
  del argv
  section = config_flag.read(_STUDY)
  study = config_lib.build(studies.Study, section, 'study')
  path = epath.Path(_WORKDIR.value).expanduser()
  workspace = studies.Workspace(study, path)
  workspace.claim(write=not _DRY_RUN.value)
  for jobs in workspace.stages():
    if _DRY_RUN.value and jobs:
      print('\n'.join(' && '.join(map(_line, job)) for job in jobs))
      return
    for job in jobs:
      _run(job)
  text = report.page(
    {name: workspace.results(name) for name in study.variants},
    {name: workspace.rates(name) for name in study.variants},
    study.pairs(),
  )
  (path / 'report.md').write_text(text)
  print(text)
  print(f'report: {path / "report.md"}')


def _run(job: studies.Job) -> None:
  """Runs commands; a loss that is not finite ends them, but not the study."""
  for command in job:
    print(_line(command), flush=True)
    with subprocess.Popen(
      [sys.executable, '-m', 'leviathan', *command]
    ) as child:
      try:
        code = child.wait()
      except KeyboardInterrupt:
        child.wait()  # It was told too, and saves first.
        raise
    if code == errors.NotFiniteError.exit_code:
      return
    if code:
      raise errors.CheckpointError(
        f'leviathan {command[0]} ended with exit code {code}, see above; mend '
        "that (keys of a run's config by study.overrides) and start the study "
        'again'
      )


def _line(command: list[str]) -> str:
  return shlex.join(['leviathan', *command])
