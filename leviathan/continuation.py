"""The text that a model writes, as its tokens come."""

import codecs
from collections.abc import Iterable
from collections.abc import Sequence

from leviathan.data import tokenizer as tokenizer_lib


def first_stop(text: str, stops: Iterable[str]) -> int | None:
  """Where a text ends: before the stop that is the first to be complete.

  So it matters not how much text has come after that. None where there is no
  stop; empty ones are none.
  """
  begins = [(text.find(stop), stop) for stop in stops if stop]
  found = [(at + len(stop), at) for at, stop in begins if at >= 0]
  return min(found)[1] if found else None


class Continuation:
  """One text: up to EOS, a stop, or so many tokens.

  Attributes:
    text: what is certain so far. Held back are the bytes of a character that
      is not complete, and what may be the beginning of a stop.
    tokens: how many have come, EOS and those of the stop included.
    done: whether the text has ended.
  """

  def __init__(
    self,
    tokenizer: tokenizer_lib.Tokenizer,
    stops: Sequence[str],
    max_tokens: int,
  ):
    """Takes what ends it."""
    self.text = ''
    self.tokens = 0
    self.done = not max_tokens
    self._tokenizer = tokenizer
    self._stops = [stop for stop in stops if stop]
    self._max_tokens = max_tokens
    self._decoder = codecs.getincrementaldecoder('utf-8')('replace')
    self._held = ''

  def feed(self, ids: Iterable[int]) -> str:
    """Takes the next tokens, any number, and returns what `text` grows by."""
    before = len(self.text)
    for token_id in ids:
      if self.done:
        break
      self._one(token_id)
    return self.text[before:]

  def _one(self, token_id: int) -> None:
    self.tokens += 1
    ends = token_id == self._tokenizer.eos_id
    data = b'' if ends else self._tokenizer.token_bytes(token_id)
    self.done = ends or self.tokens == self._max_tokens
    self._held += self._decoder.decode(data, final=self.done)
    end = first_stop(self._held, self._stops)
    if end is not None:
      self.done = True
    elif self.done:
      end = len(self._held)
    else:
      end = len(self._held) - self._beginning()
    self.text += self._held[:end]
    self._held = self._held[end:]

  def _beginning(self) -> int:
    """Of the last characters, how many may be the beginning of a stop."""
    longest = max(map(len, self._stops), default=0)
    for size in range(min(longest - 1, len(self._held)), 0, -1):
      if any(stop.startswith(self._held[-size:]) for stop in self._stops):
        return size
    return 0
