"""Flags of the commands that read text."""

from absl import flags

INPUT = flags.DEFINE_string(
  'input', None, 'Files or globs, joined by commas.', required=True
)
OUTPUT = flags.DEFINE_string(
  'output', None, 'Directory to make.', required=True
)
TEXT_KEY = flags.DEFINE_string('text_key', 'text', 'Key of the text in JSON.')
