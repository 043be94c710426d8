"""The continuation has a token, whatever the tokenizer does at the join."""

import array
import random

import pytest

from leviathan import errors
from leviathan.data import tokenizer as tokenizers
from leviathan.eval import pairs

REAL = [
  'hf:20B_tokenizer.json',
  'spm:mistral_tokenizer.model.v1',
  'spm:sentencepiece_test_model.model',
  'tiktoken:cl100k_base.tiktoken',
]


@pytest.fixture(scope='module', params=['tiny', *REAL])
def tokenizer(request):
  if request.param == 'tiny':
    return tokenizers.load(f'spm:{request.getfixturevalue("tiny").tokenizer}')
  directory = request.getfixturevalue('shared') / 'data' / 'tokenizers'
  return tokenizers.load(request.param.replace(':', f':{directory}/'))


class Table:
  """A tokenizer that is written down."""

  eos_id = 99

  def __init__(self, ids):
    self.ids = ids

  def encode(self, text):
    return array.array('I', self.ids[text])


def cuts(count):
  """(context, continuation): a text cut anywhere, in a word or between two."""
  rng = random.Random(0)
  words = ['hello', 'world', 'A', '1984', '\n', 'caf\u00e9', '\u65e5\u672c', '']
  for _ in range(count):
    text = ' '.join(rng.choices(words, k=rng.randrange(2, 9)))
    cut = rng.randrange(len(text)) if text else 0
    if text[cut:].strip():
      yield text[:cut], text[cut:]


def test_any_cut_leaves_context_continuation_and_all_of_the_text(tokenizer):
  for context, continuation in cuts(500):
    pair = pairs.encode_pair(tokenizer, context, continuation)
    assert 1 <= pair.start < len(pair.ids), (context, continuation)
    whole = tokenizer.encode(context + continuation)
    before = tokenizer.encode(context.rstrip())
    if pair.ids != whole:
      assert pair.ids[0] == tokenizer.eos_id
      assert (pair.ids[1:], pair.start) == (whole, 1)
      assert pair.merged or not context.strip()
    else:
      assert pair.merged == (pair.ids[: pair.start] != before)
      assert pair.merged or pair.start == len(before)


def test_a_space_belongs_to_the_continuation(tokenizer):
  one = pairs.encode_pair(tokenizer, 'Q: ', 'A')
  assert one == pairs.encode_pair(tokenizer, 'Q:', ' A')
  assert one.ids == tokenizer.encode('Q: A')


def test_a_token_that_spans_the_join_is_flagged(tokenizer):
  pair = pairs.encode_pair(tokenizer, 'hello wor', 'ld')
  assert pair.ids == tokenizer.encode('hello world')
  alone = tokenizer.encode('hello wor')
  assert pair.merged == (pair.ids[: len(alone)] != alone)
  apart = pairs.encode_pair(tokenizer, 'hello', '\nworld')
  assert not apart.merged


def test_large_vocabularies_join_a_word(shared):
  path = shared / 'data' / 'tokenizers' / '20B_tokenizer.json'
  tokenizer = tokenizers.load(f'hf:{path}')
  pair = pairs.encode_pair(tokenizer, 'hello wor', 'ld')
  assert pair.merged
  assert [tokenizer.token_text(i) for i in pair.ids] == ['hello', ' world']
  assert pair.start == 1  # Both of `hello wor`'s are gone with ` world`.


def test_an_empty_context_is_eos(tokenizer):
  pair = pairs.encode_pair(tokenizer, '', 'A word')
  assert list(pair.ids) == [tokenizer.eos_id, *tokenizer.encode('A word')]
  assert (pair.start, pair.merged) == (1, False)
  assert pair == pairs.encode_text(tokenizer, 'A word')


@pytest.mark.parametrize(
  'before, whole, wanted',
  [
    ([1, 2], [1, 2, 3], ([1, 2, 3], 2, False)),
    ([1, 2], [1, 4, 3], ([1, 4, 3], 2, True)),
    ([1, 2, 3], [1, 2, 4], ([1, 2, 4], 2, True)),
    ([1, 2], [1, 2], ([1, 2], 1, True)),
    ([1, 2], [1], ([99, 1], 1, True)),
    ([1, 2], [3, 4], ([99, 3, 4], 1, True)),
  ],
)
def test_what_is_left_when_tokens_join(before, whole, wanted):
  pair = pairs.encode_pair(Table({'a': before, 'ab': whole}), 'a', 'b')
  assert (list(pair.ids), pair.start, pair.merged) == wanted


def test_without_a_token_to_score_it_is_an_error(tokenizer):
  with pytest.raises(errors.DataError, match="'the context' is empty"):
    pairs.encode_pair(tokenizer, 'the context', '')
  with pytest.raises(errors.DataError, match="'b' has no token"):
    pairs.encode_pair(Table({'a': [1], 'ab': []}), 'a', 'b')


def test_pairs_are_the_harnesss_where_it_leaves_a_continuation(tokenizer):
  models = pytest.importorskip('lm_eval.api.model', reason='extra `eval`')

  class Harness(models.TemplateLM):
    eot_token_id = tokenizer.eos_id

    def tok_encode(self, string, add_special_tokens=None, **kwargs):
      return list(tokenizer.encode(string))

    _loglikelihood_tokens = loglikelihood_rolling = generate_until = None

  harness, compared = Harness(), 0
  for context, continuation in cuts(300):
    if not context.strip():
      continue
    before, after = harness._encode_pair(context, continuation)
    if after:
      pair = pairs.encode_pair(tokenizer, context, continuation)
      # The harness puts a context together that the model never sees as one.
      assert list(pair.ids[pair.start :]) == after
      assert pair.merged or list(pair.ids[: pair.start]) == before
      compared += 1
  assert compared > 100
