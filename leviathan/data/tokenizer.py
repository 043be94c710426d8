"""Tokenizers that give back the very text they were given.

Bits per byte mean nothing once text is lost on the way, so a model that loses
any is refused where data are prepared, and training makes none that does.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import hashlib
import io
import re
from typing import Protocol

from etils import epath
import sentencepiece

from leviathan import errors
from leviathan.data import outputs
from leviathan.data import text

MODEL_FILE = 'tokenizer.model'
CHECKED_BYTES = 16 << 20  # Text whose round trip is checked after training.
_SPACE = '\u2581'  # SentencePiece writes a space so, and its decoder undoes it.
# A character that no vocabulary has, so that no piece reaches across it.
_WALL = '\U0010ffff'

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
  ('control symbols as text', '<s>a</s> <unk> <pad> <0x41>'),
  ('U+2581', f'a {_SPACE}b{_SPACE}'),
)


class Tokenizer(Protocol):
  """What the rest of the code needs of a tokenizer.

  Attributes:
    kind: the prefix of its SPEC.
    vocab_size: V; ids are in [0, V).
    eos_id: the id between documents, which no text encodes to.
    sha256: of the model file, in hex.
  """

  kind: str
  vocab_size: int
  eos_id: int
  sha256: str

  def encode(self, text: str) -> list[int]:
    """Token ids of `text`, without beginning or end of sequence."""
    ...

  def decode(self, ids: Sequence[int]) -> str:
    """The text of `ids`; EOS has none."""
    ...

  def token_text(self, token_id: int) -> str:
    """One token for people to read; bytes are written <0xE2>."""
    ...

  def save(self, directory: epath.PathLike) -> epath.Path:
    """Writes the model file into `directory` and returns its path."""
    ...


class SentencePieceTokenizer:
  """A SentencePiece model file."""

  kind = 'spm'

  def __init__(self, model: bytes, name: str):
    """From the bytes of a model file; `name` is for messages."""
    self._model = model
    self._pieces = sentencepiece.SentencePieceProcessor()
    try:
      self._pieces.load_from_serialized_proto(model)
    except RuntimeError as e:
      raise errors.DataError(
        f'tokenizer {name} is not a SentencePiece model; give the .model file'
      ) from e
    self.vocab_size = self._pieces.get_piece_size()
    self.eos_id = self._pieces.eos_id()
    if self.eos_id < 0:
      raise errors.DataError(
        f'tokenizer {name} has no end-of-sequence symbol; train one that has'
      )
    self.sha256 = hashlib.sha256(model).hexdigest()
    self._space = [
      self._pieces.piece_to_id(f'<0x{byte:02X}>') for byte in _SPACE.encode()
    ]
    self._wall = len(self._pieces.encode(_WALL))

  def encode(self, text: str) -> list[int]:
    """See Tokenizer. The sign that stands for a space goes as its bytes."""
    first, *others = text.split(_SPACE)
    ids = self._pieces.encode(first)
    for other in others:
      # The wall keeps a model that begins every text with a space from putting
      # one in the middle of ours.
      ids += self._space + self._pieces.encode(_WALL + other)[self._wall :]
    return ids

  def decode(self, ids: Sequence[int]) -> str:
    """See Tokenizer."""
    return self._pieces.decode([int(i) for i in ids])

  def token_text(self, token_id: int) -> str:
    """See Tokenizer."""
    return self._pieces.id_to_piece(int(token_id)).replace(_SPACE, ' ')

  def save(self, directory: epath.PathLike) -> epath.Path:
    """See Tokenizer."""
    path = epath.Path(directory) / MODEL_FILE
    path.write_bytes(self._model)
    return path


KINDS = {SentencePieceTokenizer.kind: SentencePieceTokenizer}


def load(spec: str) -> Tokenizer:
  """The tokenizer that SPEC names, as `spm:FILE.model`.

  Raises:
    ConfigError: the prefix is not in KINDS.
    DataError: the file is missing or is not such a model.
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
      f'tokenizer file {path} does not exist; `leviathan tokenizer` makes one'
    )
  return KINDS[kind](path.read_bytes(), str(path))


def lossless_problem(tokenizer: Tokenizer) -> str | None:
  """What the tokenizer loses, as 'newline, runs of spaces', or None.

  Fixed short texts must come back as they went in, none through EOS.
  """
  lost = []
  for name, probe in PROBES:
    ids = tokenizer.encode(probe)
    if tokenizer.eos_id in ids or tokenizer.decode(ids) != probe:
      lost.append(name)
  return ', '.join(lost) or None


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
  model = _fit(documents, vocab_size, checked)
  check_round_trip(SentencePieceTokenizer(model, MODEL_FILE), checked)
  with outputs.new_file(final) as temporary:
    temporary.write_bytes(model)
  return final


def check_round_trip(
  tokenizer: Tokenizer, documents: Iterable[text.Document]
) -> None:
  """Raises DataError for the first document that does not come back."""
  for document in documents:
    ids = tokenizer.encode(document.text)
    if tokenizer.decode(ids) != document.text:
      raise errors.DataError(
        f'{document.where} is not the same after encoding and decoding; the '
        f'tokenizer loses {lossless_problem(tokenizer) or "some of its text"}'
      )


def _fit(
  documents: Iterable[text.Document],
  vocab_size: int,
  checked: list[text.Document],
) -> bytes:
  """The model's bytes; also fills `checked`, see `_lines`."""
  model = io.BytesIO()
  failures = []
  try:
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=_lines(documents, checked, failures),
      model_writer=model,
      model_type='bpe',
      vocab_size=vocab_size,
      # The defaults fold characters together, drop spaces and newlines.
      normalization_rule_name='identity',
      add_dummy_prefix=False,
      remove_extra_whitespaces=False,
      allow_whitespace_only_pieces=True,
      user_defined_symbols=['\n'],
      byte_fallback=True,
      # Numbers as digits: no piece a number, so V goes to words.
      split_digits=True,
      unk_id=0,
      eos_id=1,
      bos_id=-1,
      pad_id=-1,
      # The most it takes; it skips longer lines without a word.
      max_sentence_length=1 << 30,
      # It is written into the model file, whose hash must not depend on the
      # machine; the pieces themselves do not depend on it.
      num_threads=8,
      minloglevel=2,
    )
  except RuntimeError as e:
    raise (failures or [_training_error(e, vocab_size)])[0] from e
  return model.getvalue()


def _lines(
  documents: Iterable[text.Document],
  checked: list[text.Document],
  failures: list[Exception],
) -> Iterator[str]:
  """Lines; keeps the first CHECKED_BYTES of documents for the round trip.

  They come without their newline, a symbol by itself that no piece contains.
  The trainer keeps only the text of an error in here; `failures` keeps it all.
  """
  size = 0
  try:
    for document in documents:
      if size < CHECKED_BYTES:
        checked.append(document)
      size += len(document.text.encode())
      yield from document.text.split('\n')
  except Exception as e:
    failures.append(e)
    raise


def _training_error(error: RuntimeError, vocab_size: int) -> errors.DataError:
  """SentencePiece's message, as one that says what to do."""
  message = str(error)
  if found := re.search(r'value <= (\d+)', message):
    remedy = f'is too large for this corpus; at most {found[1]} is possible'
  elif found := re.search(r'required_chars\. \d+ vs (\d+)', message):
    remedy = f'is too small for this corpus; at least {found[1]} is needed'
  elif 'sentences_.empty()' in message:
    remedy = 'has no text to train on; give documents that are not empty'
  else:
    remedy = f'failed in SentencePiece: {" ".join(message.split())}'
  return errors.DataError(f'vocab_size={vocab_size} {remedy}')
