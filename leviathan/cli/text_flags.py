"""Flags of the commands that read text."""

from absl import flags

INPUT = flags.DEFINE_string(
  'input', None, 'Files or globs, joined by commas.', required=True
)
OUTPUT = flags.DEFINE_string('output', None, 'Directory to make.')
TEXT_KEY = flags.DEFINE_string('text_key', 'text', 'Key of the text in JSON.')
TOKENIZER = flags.DEFINE_string(
  'tokenizer',
  None,
  'KIND:FILE, as spm:FILE.model, hf:tokenizer.json or tiktoken:FILE.tiktoken.',
)
ALLOW_LOSSY = flags.DEFINE_bool(
  'allow_lossy', False, 'Take a tokenizer that loses text all the same.'
)
