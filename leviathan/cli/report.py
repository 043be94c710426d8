"""Compares runs in a picture and a table.

leviathan report --workdirs=runs/tied,runs/lev --output=runs/report
"""

from absl import flags
from etils import epath

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
  path = page.write(WORKDIRS.value, output)
  print(path.read_text())
  print(f'report: {path}')
  print(f'picture: {output / "curves.png"}')
