"""tiktoken's files of ranks, each known by its hash.

Such a file holds the pieces only. How a text is split before they are merged,
and the tokens besides, stand in tiktoken's source, within functions that fetch
the file; so they are written down here, as data.
"""

import array
import binascii
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import re

from etils import epath
import tiktoken
from tiktoken_ext import openai_public

from leviathan import errors
from leviathan.data import token_text

_END = '<|endoftext|>'
# Characters of white space in a row; from a million on the library panics.
_LONGEST_BLANK = 900_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
  """What goes with a file.

  Attributes:
    name: as tiktoken has it.
    pattern: a regular expression that matches the words of a text, tiktoken's.
    special: {token: id} of the tokens that are not in the file.
  """

  name: str
  pattern: str
  special: dict[str, int]


# The word of o200k_base: what may stand before it, its capitals, its small
# letters, what may stand after it.
_BEFORE = r'[^\r\n\p{L}\p{N}]?'
_UPPER = r'[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]'
_LOWER = r'[\p{Ll}\p{Lm}\p{Lo}\p{M}]'
_AFTER = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

# By the sha256 of the file.
KNOWN = {
  '306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930': Known(
    name='r50k_base',
    pattern=openai_public.r50k_pat_str,
    special={_END: 50256},
  ),
  '94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069': Known(
    name='p50k_base',
    pattern=openai_public.r50k_pat_str,
    special={_END: 50256},
  ),
  '223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7': Known(
    name='cl100k_base',
    pattern=(
      r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
      r'| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s'
    ),
    special={
      _END: 100257,
      '<|fim_prefix|>': 100258,
      '<|fim_middle|>': 100259,
      '<|fim_suffix|>': 100260,
      '<|endofprompt|>': 100276,
    },
  ),
  '446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d': Known(
    name='o200k_base',
    pattern=(
      f'{_BEFORE}{_UPPER}*{_LOWER}+{_AFTER}|{_BEFORE}{_UPPER}+{_LOWER}*{_AFTER}'
      r'|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+'
    ),
    special={_END: 199999, '<|endofprompt|>': 200018},
  ),
}


class TiktokenTokenizer:
  """A .tiktoken file; see tokenizer.Tokenizer.

  V is the highest id + 1; a few ids below it are no token.
  """

  kind = 'tiktoken'
  unknown_id: int | None = None  # Every byte is a token.

  def __init__(self, data: bytes, name: str):
    """From the bytes of a file; `name` is for messages."""
    self._data = data
    self.sha256 = hashlib.sha256(data).hexdigest()
    if self.sha256 not in KNOWN:
      raise errors.DataError(
        f'tokenizer {name} (sha256 {self.sha256[:12]}) is damaged or unknown; '
        f'give the file of {", ".join(known.name for known in KNOWN.values())}'
      )
    self._known = KNOWN[self.sha256]
    # A piece and its rank, and so on; 200,000 pairs are worth no loop.
    words = data.split()
    pieces = map(binascii.a2b_base64, words[::2])
    self._ranks = dict(zip(pieces, map(int, words[1::2]), strict=True))
    self._encoding = tiktoken.Encoding(
      self._known.name,
      pat_str=self._known.pattern,
      mergeable_ranks=self._ranks,
      special_tokens=self._known.special,
    )
    self.vocab_size = self._encoding.n_vocab
    self.eos_id = self._known.special[_END]

  @functools.cached_property
  def _pieces(self) -> dict[int, bytes]:
    """The piece of each id."""
    return {rank: piece for piece, rank in self._ranks.items()}

  def encode(self, text: str) -> array.array:
    """See Tokenizer.

    Raises:
      DataError: the text has more white space in a row than can be split.
    """
    if len(text) > _LONGEST_BLANK:
      blank = max(map(len, re.findall(r'\s+', text)), default=0)
      if blank > _LONGEST_BLANK:
        raise errors.DataError(
          f'a text has {blank:,} characters of white space in a row, more than '
          f'the {_LONGEST_BLANK:,} that tiktoken can split; shorten it'
        )
    # With nothing special it is `encode_ordinary`, but makes no list.
    ids = self._encoding.encode_to_numpy(
      text, allowed_special=set(), disallowed_special=()
    )
    return array.array('I', ids.tobytes())

  def decode(self, ids: Sequence[int]) -> str:
    """See Tokenizer; neither special tokens nor ids of no token have text."""
    return b''.join(self._pieces.get(i, b'') for i in ids).decode(
      errors='replace'
    )

  def token_text(self, token_id: int) -> str:
    """See Tokenizer."""
    if token_id in self._pieces:
      return token_text.of_bytes(self._pieces[token_id])
    names = {i: token for token, i in self._known.special.items()}
    return names.get(token_id, token_text.of_none(token_id))

  def token_bytes(self, token_id: int) -> bytes:
    """See Tokenizer."""
    return self._pieces.get(token_id, b'')

  def save(self, directory: epath.PathLike) -> epath.Path:
    """See Tokenizer."""
    path = epath.Path(directory) / f'{self._known.name}.tiktoken'
    path.write_bytes(self._data)
    return path
