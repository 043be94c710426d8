"""Tokenizers that give back the very text they were given.

Bits per byte mean nothing once text is lost on the way, so a tokenizer that
loses any is refused where data are prepared, and training makes none that does.
"""

import array
import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
from typing import Protocol

from etils import epath

from leviathan import errors
from leviathan.data import huggingface_json
from leviathan.data import outputs
from leviathan.data import sentencepiece_model
from leviathan.data import text
from leviathan.data import tiktoken_file

MODEL_FILE = sentencepiece_model.MODEL_FILE  # What `train` writes.
CHECKED_BYTES = 16 << 20  # Text whose round trip is checked after training.

# What people's models were found to lose, and a text that shows it.
PROBES = (
  ('newline', 'a\n\nb\n'),
  ('runs of spaces', 'a  b    c'),
  ('leading space', ' a'),
  ('trailing space', 'a '),
  ('tab', 'a\tb'),
  ('carriage return', 'a\r\nb'),
  ('ligatures', '\ufb01n'),
  ('ellipsis', 'a\u2026'),
  ('combining accents', 'e\u0301'),
  ('emoji', '\U0001f600'),
  ('NUL', 'a\x00b'),
  ('byte order mark', '\ufeffa'),
  (
    'control symbols as text',
    '<s>a</s> <unk> <pad> <0x41> <|endoftext|> <|im_end|> [INST] [UNK]',
  ),
  ('U+2581', 'a \u2581b\u2581'),
)


class Tokenizer(Protocol):
  """What the rest of the code needs of a tokenizer.

  Attributes:
    kind: the prefix of its SPEC.
    vocab_size: V; ids are in [0, V).
    eos_id: the id between documents, which no text encodes to.
    unknown_id: the id of text that has no token, or None if all text has.
    sha256: of the file, in hex.
  """

  kind: str
  vocab_size: int
  eos_id: int
  unknown_id: int | None
  sha256: str

  def encode(self, text: str) -> array.array:
    """Token ids of `text` ('I'), without beginning or end of sequence."""
    ...

  def decode(self, ids: Sequence[int]) -> str:
    """The text of `ids`; EOS has none."""
    ...

  def token_text(self, token_id: int) -> str:
    """One token for people to read; bytes are written <0xE2>."""
    ...

  def token_bytes(self, token_id: int) -> bytes:
    """What one token stands for in a text; none for special tokens."""
    ...

  def save(self, directory: epath.PathLike) -> epath.Path:
    """Writes the bytes that were read into `directory`; returns the path."""
    ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
  """What a tokenizer makes of a corpus.

  Attributes:
    documents: how many were read, and of them `exact_documents` came back.
    bytes: of their text in UTF-8; `exact_bytes` are of those that came back.
    tokens: without EOS; `unknown_tokens` of them are the unknown id.
    first_inexact: FILE:LINE of the first document that did not come back.
    lost: see lossless_problem; PROBES may lose what this corpus has not.
  """

  documents: int
  exact_documents: int
  bytes: int
  exact_bytes: int
  tokens: int
  unknown_tokens: int
  first_inexact: str | None
  lost: str | None

  @property
  def bytes_per_token(self) -> float:
    """Bytes per token."""
    return self.bytes / self.tokens

  @property
  def lossless(self) -> bool:
    """Whether every document and every probe came back."""
    return self.lost is None and self.first_inexact is None


KINDS = {
  kind.kind: kind
  for kind in (
    sentencepiece_model.SentencePieceTokenizer,
    huggingface_json.HuggingFaceTokenizer,
    tiktoken_file.TiktokenTokenizer,
  )
}


def load(spec: str) -> Tokenizer:
  """The tokenizer that SPEC names, as `spm:FILE.model`.

  Raises:
    ConfigError: the prefix is not in KINDS.
    DataError: the file is missing or is not of that kind.
  """
  kind, colon, name = spec.partition(':')
  if not colon or kind not in KINDS:
    raise errors.ConfigError(
      f'tokenizer={spec!r} is of no known kind; write KIND:FILE with KIND '
      f'one of {", ".join(KINDS)}'
    )
  path = epath.Path(name).expanduser()
  if not path.is_file():
    raise errors.DataError(
      f'tokenizer file {path} does not exist; check the path, or make one '
      'with `leviathan tokenizer`'
    )
  return KINDS[kind](path.read_bytes(), str(path))


load_once = functools.lru_cache(maxsize=2)(load)  # Large ones take a second.


def lossless_problem(tokenizer: Tokenizer) -> str | None:
  """What the tokenizer loses, as 'newline, runs of spaces', or None.

  Fixed short texts must come back as they went in, none through EOS.
  """
  own = ('the name of its EOS as text', tokenizer.token_text(tokenizer.eos_id))
  lost = [
    name
    for name, probe in (*PROBES, own)
    if not _comes_back(tokenizer, tokenizer.encode(probe), probe)
  ]
  return ', '.join(lost) or None


def measure(tokenizer: Tokenizer, documents: Iterable[text.Document]) -> Report:
  """What the tokenizer makes of the documents, which are read once.

  Raises:
    DataError: there is no text in them.
  """
  unknown = tokenizer.unknown_id
  sums = collections.Counter()
  first_inexact = None
  for document in documents:
    ids = tokenizer.encode(document.text)
    size = len(document.text.encode())
    exact = _comes_back(tokenizer, ids, document.text)
    if not exact and first_inexact is None:
      first_inexact = document.where
    sums.update(
      documents=1,
      exact_documents=int(exact),
      bytes=size,
      exact_bytes=exact * size,
      tokens=len(ids),
      unknown_tokens=0 if unknown is None else ids.count(unknown),
    )
  if not sums['tokens']:
    raise errors.DataError(
      f'{sums["documents"]} documents have 0 tokens; give some with text'
    )
  lost = lossless_problem(tokenizer)
  return Report(**sums, first_inexact=first_inexact, lost=lost)


def train(
  documents: Iterable[text.Document],
  vocab_size: int,
  output_dir: epath.PathLike,
) -> epath.Path:
  """Trains a lossless SentencePiece BPE model.

  The same documents in the same order give the same file, on any number of
  cores. All of the text is held in memory.

  Args:
    documents: read once.
    vocab_size: V, EOS, newline and the 256 bytes included.
    output_dir: where `tokenizer.model` is written, if there is none.

  Returns:
    The path of the model file.

  Raises:
    DataError: the file exists, V does not suit the corpus, or a document (of
      the first CHECKED_BYTES) does not come back as it was.
  """
  final = epath.Path(output_dir).expanduser() / MODEL_FILE
  outputs.check_free(final)
  checked = []
  model = sentencepiece_model.fit(_keep(documents, checked), vocab_size)
  trained = sentencepiece_model.SentencePieceTokenizer(model, MODEL_FILE)
  check_round_trip(trained, checked)
  with outputs.new_file(final) as temporary:
    temporary.write_bytes(model)
  return final


def check_round_trip(
  tokenizer: Tokenizer, documents: Iterable[text.Document]
) -> None:
  """Raises DataError for the first document that does not come back."""
  for document in documents:
    ids = tokenizer.encode(document.text)
    if not _comes_back(tokenizer, ids, document.text):
      raise errors.DataError(
        f'{document.where} is not the same after encoding and decoding; the '
        f'tokenizer loses {lossless_problem(tokenizer) or "some of its text"}'
      )


def _comes_back(tokenizer: Tokenizer, ids: Sequence[int], content: str) -> bool:
  """Whether the ids of a text decode to it, without EOS among them."""
  return tokenizer.eos_id not in ids and tokenizer.decode(ids) == content


def _keep(
  documents: Iterable[text.Document], kept: list[text.Document]
) -> Iterator[text.Document]:
  """The documents, the first CHECKED_BYTES of which are put into `kept`."""
  size = 0
  for document in documents:
    if size < CHECKED_BYTES:
      kept.append(document)
    size += len(document.text.encode())
    yield document
