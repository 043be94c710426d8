"""Hugging Face's tokenizer.json, read by their library `tokenizers`."""

import array
from collections.abc import Sequence
import hashlib
import json

from etils import epath
import tokenizers

from leviathan import errors
from leviathan.data import token_text

JSON_FILE = 'tokenizer.json'
# Names of a text's end. A file may have several: </s> is unused where there is
# a newer one, as in Phi-3. Those that end a turn of a chat, as <|im_end|>, are
# left out: their base models end texts by one of these.
END_OF_TEXT = (
  '<|endoftext|>',
  '<|end_of_text|>',
  '</s>',
  '<eos>',
  '<EOS_TOKEN>',
  '<\uff5cend\u2581of\u2581sentence\uff5c>',
)


class HuggingFaceTokenizer:
  """A tokenizer.json; see tokenizer.Tokenizer.

  V is the highest id + 1. What the file says about special tokens in text,
  truncation, padding and dropout is for other uses and is turned off.
  """

  kind = 'hf'

  def __init__(self, data: bytes, name: str):
    """From the bytes of a tokenizer.json; `name` is for messages."""
    self._data = data
    self.sha256 = hashlib.sha256(data).hexdigest()
    try:
      self._tokenizer = tokenizers.Tokenizer.from_buffer(data)
    except ValueError as e:
      raise errors.DataError(
        f'tokenizer {name} is not a tokenizer.json, or damaged '
        f'({" ".join(str(e).split())}); fetch it again'
      ) from e
    self.eos_id = _eos_id(self._tokenizer, name)
    self.vocab_size = 1 + max(self._tokenizer.get_vocab().values())
    added = self._tokenizer.get_added_tokens_decoder()
    self._special = {i for i, token in added.items() if token.special}
    make_plain(self._tokenizer)
    parsed = json.loads(data)
    model = parsed['model']
    self.unknown_id: int | None = model.get(
      'unk_id',  # Of Unigram; the others give the token itself.
      self._tokenizer.token_to_id(model.get('unk_token') or ''),
    )
    in_bytes = 'ByteLevel' in json.dumps(parsed.get('decoder'))
    self._bytes = bytes_of_characters() if in_bytes else {}

  def encode(self, text: str) -> array.array:
    """See Tokenizer."""
    found = self._tokenizer.encode(text, add_special_tokens=False)
    return array.array('I', found.ids)

  def decode(self, ids: Sequence[int]) -> str:
    """See Tokenizer; no special token has text."""
    return self._tokenizer.decode([int(i) for i in ids])

  def token_text(self, token_id: int) -> str:
    """See Tokenizer."""
    token = self._tokenizer.id_to_token(int(token_id))
    if token is None:
      return token_text.of_none(token_id)
    if self._bytes.keys() >= set(token):
      return token_text.of_bytes(bytes(self._bytes[c] for c in token))
    return token.replace('\u2581', ' ')

  def token_bytes(self, token_id: int) -> bytes:
    """See Tokenizer."""
    token = self._tokenizer.id_to_token(int(token_id))
    if token is None or token_id in self._special:
      return b''
    if self._bytes.keys() >= set(token):
      return bytes(self._bytes[c] for c in token)
    if token_text.is_byte(token):
      return token_text.byte(token)
    return token.replace('\u2581', ' ').encode()

  def save(self, directory: epath.PathLike) -> epath.Path:
    """See Tokenizer."""
    path = epath.Path(directory) / JSON_FILE
    path.write_bytes(self._data)
    return path


def _eos_id(tokenizer: tokenizers.Tokenizer, name: str) -> int:
  """The id of the first of END_OF_TEXT among the special tokens.

  A token that is added but not special is looked for in texts.
  """
  special = {
    token.content: i
    for i, token in tokenizer.get_added_tokens_decoder().items()
    if token.special
  }
  for token in END_OF_TEXT:
    if token in special:
      return special[token]
  raise errors.DataError(
    f'tokenizer {name} has no special token that ends a text; add one of '
    f'{", ".join(END_OF_TEXT)}'
  )


def make_plain(tokenizer: tokenizers.Tokenizer) -> None:
  """Makes ids a function of the whole text, in which nothing is special."""
  tokenizer.encode_special_tokens = True
  tokenizer.no_truncation()
  tokenizer.no_padding()
  if isinstance(tokenizer.model, tokenizers.models.BPE):
    tokenizer.model.dropout = None  # Noise, for training the tokenizer's user.


def bytes_of_characters() -> dict[str, int]:
  """The byte that each character stands for in a byte-level vocabulary.

  Bytes that print in Latin-1 are themselves. The others follow in order, from
  U+0100 on.
  """
  alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
  own = {c: ord(c) for c in alphabet if ord(c) < 256}
  others = [byte for byte in range(256) if chr(byte) not in own]
  return own | dict(zip(alphabet[len(own) :], others, strict=True))
