r"""Trains a SentencePiece tokenizer that loses no text.

Writes OUTPUT/tokenizer.model. Inputs are .txt, .jsonl, .jsonl.gz or .jsonl.zst.

  leviathan tokenizer --input='text/**/*.jsonl' --vocab_size=16384 \
      --output=tokenizer
"""

from collections.abc import Iterator
from collections.abc import Sequence

from absl import flags
from etils import epath

from leviathan.cli import text_flags
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers

_VOCAB_SIZE = flags.DEFINE_integer(
  'vocab_size',
  None,
  'V in all, with 256 bytes, end of sequence, unknown and newline.',
  required=True,
  lower_bound=260,
)


def main(argv: Sequence[str]) -> None:
  """Trains, and prints V, the documents, the round trip and the path."""
  del argv
  path, documents, size = train(
    text_flags.INPUT.value,
    text_flags.TEXT_KEY.value,
    _VOCAB_SIZE.value,
    text_flags.OUTPUT.value,
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
    for path in paths:
      for document in text.documents(path, text_key):
        documents += 1
        size += len(document.text.encode())
        yield document

  paths = text.expand(pattern)
  model = tokenizers.train(read(), vocab_size, output)
  return model, documents, size
