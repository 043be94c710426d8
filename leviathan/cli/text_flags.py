"""Flags of the commands that read text."""

from absl import flags

from leviathan.data import text

INPUT = flags.DEFINE_string(
  'input', None, 'Files or globs, joined by commas.', required=True
)
OUTPUT = flags.DEFINE_string('output', None, 'Directory to make.')
TEXT_KEY = flags.DEFINE_string('text_key', 'text', 'Key of the text in JSON.')
MAX_RECORD_BYTES = flags.DEFINE_integer(
  'max_record_bytes',
  text.MAX_RECORD_BYTES,
  'A longer record is a bad one.',
  lower_bound=1,
)
TOKENIZER = flags.DEFINE_string(
  'tokenizer',
  None,
  'KIND:FILE, as spm:FILE.model, hf:tokenizer.json or tiktoken:FILE.tiktoken.',
)
ALLOW_LOSSY = flags.DEFINE_bool(
  'allow_lossy', False, 'Take a tokenizer that loses text all the same.'
)
