"""A context and its continuation as token ids.

Both are encoded as one text, as lm-evaluation-harness does: a tokenizer that
joins the end of the one with the beginning of the other is met as in training.
"""

import array
from collections.abc import Sequence
import functools
import itertools
from typing import NamedTuple

from leviathan import errors
from leviathan.data import tokenizer as tokenizer_lib


class Pair(NamedTuple):
  """What a model is asked: how likely ids[start:] are after ids[:start].

  Attributes:
    ids: of both.
    start: first id of the continuation; 1 <= start < len(ids).
    merged: whether ids[:start] are not those of the context alone, as where
      one token holds its end and what follows.
  """

  ids: Sequence[int]
  start: int
  merged: bool


def encode_pair(
  tokenizer: tokenizer_lib.Tokenizer, context: str, continuation: str
) -> Pair:
  """The ids of a pair (the rules of the harness's `_encode_pair`).

  White space at the end of the context goes to the continuation, whose ids
  are those after as many as the context alone has. Where none are left, the
  continuation begins at the first id that the context alone does not have, or
  is the last id. EOS stands in front where nothing else would: of an empty
  context, and of one that is all merged, whose text is then scored too.

  The ids are those of the text, also where tokens are merged; the harness then
  puts the continuation's after the context's own.

  Raises:
    DataError: the continuation is empty, or has no token.
  """
  if not continuation:
    raise errors.DataError(
      f'the continuation of {context[-40:]!r} is empty; there is nothing to '
      'score: give it text'
    )
  bare = context.rstrip()
  continuation = context[len(bare) :] + continuation
  whole = tokenizer.encode(bare + continuation)
  before = _encoded(tokenizer, bare) if bare else whole[:0]
  start = len(before)
  merged = whole[:start] != before
  if start >= len(whole):
    merged = True
    start = min(_common(whole, before), len(whole) - 1)
  if start < 0:
    raise errors.DataError(
      f'the continuation {continuation[:40]!r} has no token in this tokenizer; '
      'give a tokenizer that loses no text'
    )
  if not start:
    whole.insert(0, tokenizer.eos_id)
    start = 1
  return Pair(whole, start, merged)


def encode_text(tokenizer: tokenizer_lib.Tokenizer, text: str) -> Pair:
  """A whole text after EOS, each of its tokens to be scored."""
  return encode_pair(tokenizer, '', text)


# The choices of a question have one context.
@functools.lru_cache(maxsize=1)
def _encoded(tokenizer: tokenizer_lib.Tokenizer, text: str) -> array.array:
  return tokenizer.encode(text)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
  """How many ids at the beginning are the same."""
  same = itertools.takewhile(lambda ab: ab[0] == ab[1], zip(a, b, strict=False))
  return sum(1 for _ in same)
