r"""Trains a SentencePiece tokenizer that loses no text, or checks any.

Training writes OUTPUT/tokenizer.model. --check measures on a corpus what a
tokenizer makes of it, and fails when text is lost. Inputs are .txt, .jsonl,
.jsonl.gz or .jsonl.zst.

  leviathan tokenizer --input='text/**/*.jsonl' --vocab_size=16384 \
      --output=tokenizer
  leviathan tokenizer --check --input='text/**/*.jsonl' \
      --tokenizer=tiktoken:o200k_base.tiktoken
"""

from collections.abc import Iterator
from collections.abc import Sequence

from absl import flags
from etils import epath
import tqdm

from leviathan import errors
from leviathan.cli import text_flags
from leviathan.data import files
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers

_CHECK = flags.DEFINE_bool(
  'check', False, 'Measure --tokenizer on --input; train nothing.'
)
_VOCAB_SIZE = flags.DEFINE_integer(
  'vocab_size',
  None,
  'V in all, with 256 bytes, end of sequence, unknown and newline.',
  lower_bound=260,
)


def main(argv: Sequence[str]) -> None:
  """Trains or checks, and prints what came of it."""
  del argv
  pattern, text_key = text_flags.INPUT.value, text_flags.TEXT_KEY.value
  if _CHECK.value:
    _refuse(text_flags.OUTPUT, _VOCAB_SIZE)
    if text_flags.TOKENIZER.value is None:
      raise errors.ConfigError(
        '--check needs a tokenizer; give --tokenizer=...'
      )
    check(
      pattern,
      text_key,
      text_flags.TOKENIZER.value,
      bool(text_flags.ALLOW_LOSSY.value),
    )
    return
  _refuse(text_flags.TOKENIZER, text_flags.ALLOW_LOSSY)
  if _VOCAB_SIZE.value is None or not text_flags.OUTPUT.value:
    raise errors.ConfigError('training needs both --output and --vocab_size')
  path, documents, size = train(
    pattern, text_key, _VOCAB_SIZE.value, text_flags.OUTPUT.value
  )
  checked = min(size, tokenizers.CHECKED_BYTES)
  print(
    f'vocab_size {_VOCAB_SIZE.value:,}, {documents:,} documents of '
    f'{size / 1e6:.1f} MB, round trip exact on {checked / 1e6:.1f} MB: {path}'
  )


def train(
  pattern: str, text_key: str, vocab_size: int, output: str
) -> tuple[epath.Path, int, int]:
  """Trains on all files of `pattern`; see tokenizers.train.

  Returns:
    The path of the model, and the number of documents and of their bytes.
  """
  documents = size = 0

  def read() -> Iterator[text.Document]:
    nonlocal documents, size
    for document in _read(pattern, text_key):
      documents += 1
      size += len(document.text.encode())
      yield document

  model = tokenizers.train(read(), vocab_size, output)
  return model, documents, size


def check(pattern: str, text_key: str, spec: str, allow_lossy: bool) -> None:
  """Prints what the tokenizer of `spec` makes of all files of `pattern`.

  Raises:
    DataError: text is lost and that is not allowed, or nothing can be measured.
  """
  tokenizer = tokenizers.load(spec)
  documents = _read(pattern, text_key)
  with tqdm.tqdm(documents, unit=' documents', disable=None) as bar:
    report = tokenizers.measure(tokenizer, bar)
  print('\n'.join(_lines(tokenizer, report)))
  if not report.lossless and not allow_lossy:
    raise errors.DataError(
      f'tokenizer={spec!r} is lossy: {report.lost or report.first_inexact}; '
      '`leviathan tokenizer` trains one that loses nothing, --allow_lossy lets '
      'this one pass'
    )


def _lines(
  tokenizer: tokenizers.Tokenizer, report: tokenizers.Report
) -> Iterator[str]:
  """The report, for people."""
  yield (
    f'vocab_size {tokenizer.vocab_size:,}, end of sequence {tokenizer.eos_id} '
    f'{tokenizer.token_text(tokenizer.eos_id)}'
  )
  yield (
    f'{report.documents:,} documents, {report.bytes:,} bytes, '
    f'{report.tokens:,} tokens, {report.bytes_per_token:.2f} bytes per token'
  )
  yield (
    'round trip exact: '
    f'{_share(report.exact_documents, report.documents, "documents")}, '
    f'{_share(report.exact_bytes, report.bytes, "bytes")}'
  )
  yield f'unknown: {_share(report.unknown_tokens, report.tokens, "tokens")}'
  if report.first_inexact:
    yield f'first document that does not come back: {report.first_inexact}'
  yield f'lost of the fixed texts: {report.lost or "none"}'


def _share(part: int, whole: int, unit: str) -> str:
  """The numbers too, since a percentage may round to all or nothing."""
  return f'{part:,} of {whole:,} {unit} ({part / whole:.2%})'


def _read(pattern: str, text_key: str) -> Iterator[text.Document]:
  """The documents of all files of `pattern`."""
  for path in files.expand(pattern):
    yield from text.documents(path, text_key, text_flags.MAX_RECORD_BYTES.value)


def _refuse(*others: flags.FlagHolder) -> None:
  """Raises ConfigError for a flag of the other mode that is given."""
  for flag in others:
    if flag.value:
      way = 'does not go' if _CHECK.value else 'only goes'
      raise errors.ConfigError(f'--{flag.name} {way} with --check')
