"""Compares runs in a picture and a table.

leviathan report --workdirs=runs/tied,runs/lev --output=runs/report
"""

from absl import flags
from etils import epath

from leviathan import errors
from leviathan.report import page

WORKDIRS = flags.DEFINE_list(
  'workdirs', None, 'Runs that were evaluated, with commas.', required=True
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
  path = page.write(workdirs, output)
  print(path.read_text())
  print(f'report: {path}')
  print(f'picture: {output / "curves.png"}')
