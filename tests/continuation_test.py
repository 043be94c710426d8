"""A text is the same however its tokens come, and ends before a stop."""

import random
from typing import Any

import pytest

from leviathan import continuation
from leviathan.data import tokenizer as tokenizer_lib

EOS = 256


class Bytes:
  """Ids are bytes; from 257 on, pieces of several."""

  eos_id = EOS
  pieces = ('ab', 'bca', 'c\u00e9')

  def token_bytes(self, token_id):
    if token_id < EOS:
      return bytes([token_id])
    return self.pieces[token_id - EOS - 1].encode()


def text_of(ids, stops=(), max_tokens=100):
  """The text, and what it grew by at each token."""
  tokenizer: Any = Bytes()
  text = continuation.Continuation(tokenizer, stops, max_tokens)
  grown = [text.feed([token_id]) for token_id in ids]
  assert ''.join(grown) == text.text
  return text, grown


def test_a_character_is_shown_once_all_its_bytes_have_come():
  text, grown = text_of('a\u00e9\U0001f600'.encode())
  assert grown == ['a', '', '\u00e9', '', '', '', '\U0001f600']
  assert not text.done


def test_bytes_that_are_no_text_are_shown_as_such():
  assert text_of(b'\xe9a\xf0\x9f', max_tokens=4)[0].text == '\ufffda\ufffd'


def test_a_stop_across_tokens_is_neither_shown_nor_passed():
  text, grown = text_of([*b'x', 257, *b'c', *b'y'], stops=['bc'])
  assert grown == ['x', 'a', '', '']
  assert text.done and text.tokens == 3


def test_what_was_not_a_stop_after_all_is_shown():
  text, grown = text_of(b'aab-', stops=['ab!', 'b-!'])
  assert grown == ['', 'a', '', 'a']
  assert not text.done
  text.feed([EOS])
  assert text.done and text.text == 'aab-'


def test_it_ends_at_eos_and_after_so_many_tokens():
  text, _ = text_of([*b'ab', EOS, *b'c'])
  assert (text.text, text.tokens, text.done) == ('ab', 3, True)
  text, _ = text_of(b'abc', stops=['bcd'], max_tokens=2)
  assert (text.text, text.tokens, text.done) == ('ab', 2, True)


def test_a_text_of_no_tokens_has_ended_before_it_begins():
  text, grown = text_of(b'ab', max_tokens=0)
  assert text.done and (text.text, text.tokens, grown) == ('', 0, ['', ''])


def test_empty_stops_are_none():
  assert text_of(b'ab', stops=[''])[0].text == 'ab'
  assert continuation.first_stop('ab', ['']) is None


def first_complete(text, stops):
  """One character after the other."""
  for end in range(1, len(text) + 1):
    begins = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
    if begins:
      return min(begins)
  return None


def test_neither_tokens_nor_groups_of_them_matter():
  rng = random.Random(0)
  ended = 0
  for _ in range(300):
    ids = rng.choices([*b'abc\xc3\xa9', 257, 258, 259], k=rng.randrange(12))
    stops = [
      ''.join(rng.choices('abc\u00e9', k=rng.randrange(1, 5))) for _ in range(2)
    ]
    tokenizer: Any = Bytes()
    full = b''.join(map(tokenizer.token_bytes, ids)).decode(errors='replace')
    end = first_complete(full, stops)
    text = continuation.Continuation(tokenizer, stops, 100)
    rest, shown = [*ids, EOS], ''
    while rest:
      some = rng.randrange(1, 4)
      shown += text.feed(rest[:some])
      rest = rest[some:]
    assert shown == text.text == full[:end]
    ended += end is not None
  assert 30 < ended < 270


@pytest.mark.parametrize('chunk', [1, 5])
def test_a_tokenizers_text_comes_back(tiny, chunk):
  tokenizer = tokenizer_lib.load(f'spm:{tiny.tokenizer}')
  wanted = ' def f(x):\n\n\treturn  \u00e9\U0001f600\u2581 x\n'
  ids = tokenizer.encode(wanted)
  text = continuation.Continuation(tokenizer, ['no such'], len(ids))
  for start in range(0, len(ids), chunk):
    text.feed(ids[start : start + chunk])
  assert text.text == wanted and text.done
