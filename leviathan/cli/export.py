"""Writes a checkpoint as a Hugging Face Llama.

leviathan export --workdir=runs/lev --output=exports/lev

The input of any arm becomes an ordinary table. What was written is read back
and compared, logit by logit, before the directory gets its name.
"""

from absl import flags

from leviathan.cli import run_flags
from leviathan.huggingface import export

OUTPUT = flags.DEFINE_string(
  'output', None, 'Directory to write; it must not exist.', required=True
)
PRECISION = flags.DEFINE_enum(
  'precision', 'float32', list(export.PRECISIONS), 'Of the weights.'
)


def main(argv) -> None:
  """Runs the command."""
  del argv
  path = export.export(
    run_flags.restored(), OUTPUT.value, PRECISION.value, print
  )
  print(f'written: {path}')
