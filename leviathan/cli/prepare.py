r"""Turns text into a dataset: token ids in shards, and a manifest.

Inputs are .txt, .jsonl, .jsonl.gz or .jsonl.zst. The tokenizer must lose
nothing, as one made by `leviathan tokenizer` does.

  leviathan prepare --input='text/**/*.jsonl' \
      --tokenizer=spm:tokenizer/tokenizer.model --output=data
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import hashlib

from absl import flags
from etils import epath
import tqdm

from leviathan import errors
from leviathan.cli import text_flags
from leviathan.data import outputs
from leviathan.data import records
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers

_TOKENIZER = flags.DEFINE_string(
  'tokenizer', None, 'KIND:FILE, as spm:FILE.model.', required=True
)
_SEQ_LEN = flags.DEFINE_integer('seq_len', 512, 'Tokens of a sequence.')
_VALIDATION_FRACTION = flags.DEFINE_float(
  'validation_fraction',
  0.0,
  'Share of the documents that goes to OUTPUT/validation, the rest to '
  'OUTPUT/train; with 0 there is one dataset, OUTPUT itself.',
)


def main(argv: Sequence[str]) -> None:
  """Writes the datasets and prints a line for each."""
  del argv
  manifests = prepare(
    pattern=text_flags.INPUT.value,
    tokenizer_spec=_TOKENIZER.value,
    output=epath.Path(text_flags.OUTPUT.value).expanduser(),
    seq_len=_SEQ_LEN.value,
    text_key=text_flags.TEXT_KEY.value,
    validation_fraction=_VALIDATION_FRACTION.value,
  )
  for path, manifest in manifests.items():
    skipped = ', '.join(f'{n:,} {why}' for why, n in manifest.skipped.items())
    print(
      f'{manifest.sequences:,} sequences, {manifest.tokens:,} tokens, '
      f'{manifest.bytes / manifest.tokens:.2f} bytes per token, '
      f'{manifest.documents:,} documents, skipped {skipped or 0}: {path}'
    )


def prepare(
  *,
  pattern: str,
  tokenizer_spec: str,
  output: epath.Path,
  seq_len: int,
  text_key: str,
  validation_fraction: float,
) -> dict[epath.Path, records.Manifest]:
  """Writes one dataset, or two, under `output`, all or nothing.

  The side of a document depends on its text alone, so that copies of one text
  are never on both.

  Args:
    pattern: see text.expand.
    tokenizer_spec: see tokenizers.load.
    output: directory to make.
    seq_len: L, in tokens.
    text_key: see text.documents.
    validation_fraction: share of documents, in [0, 1); 0 means one dataset.

  Returns:
    The manifest of each dataset, by its directory.

  Raises:
    ConfigError: a value is out of range.
    DataError: an input, the tokenizer or the output cannot be used.
  """
  if not 0 <= validation_fraction < 1:
    raise errors.ConfigError(
      f'validation_fraction={validation_fraction}; give one in [0, 1)'
    )
  outputs.check_free(output)
  paths = text.expand(pattern)
  tokenizer = _lossless(tokenizer_spec)
  names = ('train', 'validation') if validation_fraction else ('',)
  with contextlib.ExitStack() as stack:
    root = output
    if validation_fraction:
      root = stack.enter_context(outputs.new_directory(output))
    writers = [
      stack.enter_context(
        records.Writer(
          root / name, tokenizer=tokenizer, seq_len=seq_len, inputs=paths
        )
      )
      for name in names
    ]
    for document in _read(paths, text_key):
      writers[_side(document.text, validation_fraction)].add(document)
    for name, writer in zip(names, writers, strict=True):
      if not writer.documents:
        raise errors.DataError(
          f'dataset {output / name} would have 0 tokens; give more text or '
          'another --validation_fraction'
        )
  return {
    output / name: writer.manifest
    for name, writer in zip(names, writers, strict=True)
  }


def _lossless(spec: str) -> tokenizers.Tokenizer:
  """The tokenizer, unless it loses text."""
  tokenizer = tokenizers.load(spec)
  if lost := tokenizers.lossless_problem(tokenizer):
    raise errors.DataError(
      f'tokenizer={spec!r} is lossy: {lost}; `leviathan tokenizer` trains '
      'one that loses nothing'
    )
  return tokenizer


def _read(paths: list[epath.Path], text_key: str) -> Iterator[text.Document]:
  """All documents, behind a progress bar in bytes of text."""
  with tqdm.tqdm(unit='B', unit_scale=True, disable=None) as bar:
    for i, path in enumerate(paths, start=1):
      bar.set_description(f'file {i} of {len(paths)}')
      for document in text.documents(path, text_key):
        yield document
        bar.update(len(document.text.encode()))


def _side(content: str, validation_fraction: float) -> int:
  """1 for validation and 0 for the rest, by the hash of the text."""
  digest = hashlib.sha256(content.encode()).digest()
  return int.from_bytes(digest[:8], 'big') < validation_fraction * 2**64
