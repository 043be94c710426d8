"""Compares runs: losses, gains over a baseline, strata, tasks, cost.

leviathan report --workdirs=runs/tied,runs/lev --output=runs/report

Runs that differ in their seeds alone are replicates of one variant. A directory
that cannot be shown is named in the report and left out.
"""

from absl import flags
from etils import epath

from leviathan import errors
from leviathan.report import page

WORKDIRS = flags.DEFINE_list(
  'workdirs', None, 'Runs that were evaluated, with commas.', required=True
)
BASELINE = flags.DEFINE_string(
  'baseline',
  None,
  'What others are compared with: an arm, or the label of a variant. By '
  'default tied where there is one, else the first.',
)
OUTPUT = flags.DEFINE_string(
  'output', None, 'Directory of the report.', required=True
)


def main(argv) -> None:
  """Runs the command."""
  del argv
  output = epath.Path(OUTPUT.value).expanduser()
  workdirs = [workdir for workdir in WORKDIRS.value if workdir]
  if not workdirs:
    raise errors.ConfigError('--workdirs is empty; give runs, with commas')
  if output.exists() and not output.is_dir():
    raise errors.ConfigError(f'--output={output} is a file; give a directory')
  path = page.write(workdirs, output, BASELINE.value)
  print(path.read_text())
  print(f'report: {path}')
  print(f'page: {output / "index.html"}')
