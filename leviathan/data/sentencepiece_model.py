"""SentencePiece model files: reading them, and fitting one to text."""

import array
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import hashlib
import io
import re

from etils import epath
import sentencepiece

from leviathan import errors
from leviathan.data import text
from leviathan.data import token_text

MODEL_FILE = 'tokenizer.model'
_SPACE = '\u2581'  # SentencePiece writes a space so, and its decoder undoes it.
# A character that no vocabulary has, so that no piece reaches across it.
_WALL = '\U0010ffff'


class SentencePieceTokenizer:
  """A SentencePiece model file; see tokenizer.Tokenizer."""

  kind = 'spm'

  def __init__(self, data: bytes, name: str):
    """From the bytes of a model file; `name` is for messages."""
    self._data = data
    self._pieces = sentencepiece.SentencePieceProcessor()
    try:
      self._pieces.load_from_serialized_proto(data)
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
    self.unknown_id: int | None = self._pieces.unk_id()
    self.sha256 = hashlib.sha256(data).hexdigest()
    self._space = [
      self._pieces.piece_to_id(f'<0x{byte:02X}>') for byte in _SPACE.encode()
    ]
    self._wall = len(self._pieces.encode(_WALL))

  def encode(self, text: str) -> array.array:
    """See Tokenizer. The sign that stands for a space goes as its bytes."""
    first, *others = text.split(_SPACE)
    ids = self._pieces.encode(first)
    for other in others:
      # The wall keeps a model that begins every text with a space from putting
      # one in the middle of ours.
      ids += self._space + self._pieces.encode(_WALL + other)[self._wall :]
    return array.array('I', ids)

  def decode(self, ids: Sequence[int]) -> str:
    """See Tokenizer."""
    return self._pieces.decode([int(i) for i in ids])

  def token_text(self, token_id: int) -> str:
    """See Tokenizer."""
    return self._pieces.id_to_piece(int(token_id)).replace(_SPACE, ' ')

  def token_bytes(self, token_id: int) -> bytes:
    """See Tokenizer."""
    token_id, pieces = int(token_id), self._pieces
    if (
      pieces.is_control(token_id)
      or pieces.is_unknown(token_id)
      or pieces.is_unused(token_id)
    ):
      return b''
    piece = pieces.id_to_piece(token_id)
    if pieces.is_byte(token_id):
      return token_text.byte(piece)
    return piece.replace(_SPACE, ' ').encode()

  def save(self, directory: epath.PathLike) -> epath.Path:
    """See Tokenizer."""
    path = epath.Path(directory) / MODEL_FILE
    path.write_bytes(self._data)
    return path


def fit(documents: Iterable[text.Document], vocab_size: int) -> bytes:
  """The bytes of a BPE model of `vocab_size` that loses no text.

  Raises:
    DataError: V does not suit the corpus, or there is no text.
  """
  model = io.BytesIO()
  failures = []
  try:
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=_lines(documents, failures),
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
  documents: Iterable[text.Document], failures: list[Exception]
) -> Iterator[str]:
  """Lines without their newline, a symbol by itself that no piece contains.

  The trainer keeps only the text of an error in here; `failures` keeps it all.
  """
  try:
    for document in documents:
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
