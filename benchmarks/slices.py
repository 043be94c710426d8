"""Which slices of TPUs a run fits, and at what cost; none is used.

  python benchmarks/slices.py --rows=slices.jsonl --page=docs/slices.md

Needs the extra `tpu` or `test`. Compiles each config for each slice, as it is
or with the first settings that make it fit (minutes each), and appends one JSON
row for each to --rows; what has a row there is not compiled again, so delete
the file when the code has changed. A compiler that is killed leaves no row.
Then prints a table for each config that has rows there, and puts them below the
line `<!-- tables -->` of --page.
"""

import collections
import importlib
import json
import pathlib
import sys

from absl import app
from absl import flags
import jax

from leviathan import aot
from leviathan import chips
from leviathan import compiled
from leviathan import experiment
from leviathan import fitting

ARMS = flags.DEFINE_list('arms', ['lev', 'tied'], 'Files in configs/.')
SCALES = flags.DEFINE_list('scales', ['200m', '400m', '1p2b'], 'Of the arms.')
TOPOLOGIES = flags.DEFINE_list(
  'topologies',
  [
    'v5e:4x4', 'v5e:8x8', 'v5e:16x16', 'v6e:8x8', 'v6e:16x16',
    'v5p:2x4x4', 'v5p:4x4x4', '2xv5e:16x16',
  ],
  'Slices, as `leviathan compile --topologies` takes them.',
)  # fmt: skip
ROWS = flags.DEFINE_string('rows', 'slices.jsonl', 'JSON, a row a compile.')
PAGE = flags.DEFINE_string('page', None, 'Markdown that the tables go into.')
MARK = '<!-- tables -->'


def read(file: pathlib.Path) -> dict[str, dict]:
  """{config and topology: row}; a line that a kill cut short is left out."""
  rows = {}
  for line in file.read_text().splitlines() if file.exists() else []:
    try:
      row = json.loads(line)
    except json.JSONDecodeError:
      continue
    rows[row['key']] = row
  return rows


def measure(name: str, topology: chips.Topology, key: str) -> dict:
  """A row: `lev.py:1p2b` on a slice."""
  arm, _, scale = name.partition('.py:')
  section = importlib.import_module(f'configs.{arm}').get_config(scale)
  config = experiment.read_config(section)

  def say(line):
    print(f'{name}: {line}', file=sys.stderr, flush=True)

  fit, why = fitting.anyhow(config, topology, say=say)
  row = compiled.row(topology, fit, why)
  say(f'{topology}: {compiled.verdict(row)}')
  return {'key': key} | row


def main(argv) -> None:
  """Compiles what has no row, and prints the tables."""
  del argv
  # Shapes are made here, for the CPU: a TPU or GPU that is here may be in use.
  jax.config.update('jax_platforms', 'cpu')
  file = pathlib.Path(ROWS.value)
  topologies = [chips.parse(text) for text in TOPOLOGIES.value]
  for topology in topologies:
    aot.check_compiler(topology)
  rows = read(file)
  for name in (f'{a}.py:{s}' for s in SCALES.value for a in ARMS.value):
    for topology in topologies:
      key = f'{name} {topology}'
      if key in rows:
        continue
      try:
        rows[key] = measure(name, topology, key)
      except aot.CompilerError as e:
        print(f'{name}: {e}', file=sys.stderr, flush=True)
        continue
      with file.open('a') as opened:
        # A line of its own, also after one that was cut short.
        opened.write(f'\n{json.dumps(rows[key])}\n')
  tables = collections.defaultdict(list)
  for key, row in rows.items():
    tables[key.partition(' ')[0]].append(row)
  text = '\n'.join(
    f'### `{name}`\n\n{compiled.table(table)}\n'
    for name, table in tables.items()
  )
  print(text)
  if PAGE.value is not None:
    page = pathlib.Path(PAGE.value)
    head, mark, _ = page.read_text().partition(MARK)
    page.write_text(f'{head}{mark or MARK}\n\n{text}')


if __name__ == '__main__':
  app.run(main)
