"""Nothing is lost, nothing becomes a control token, training repeats."""

import io
import pathlib
import random
import re

from etils import epath
import pytest
import sentencepiece

from leviathan import errors
from leviathan.data import sentencepiece_model
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers

SHARED = pathlib.Path(__file__).parents[3] / 'shared' / 'data' / 'tokenizers'
CONTROLS = '</s> <unk> <s> <pad> <0x0A> <0x41>\n'
CORPUS = [
  'def f():\n    return  1\n\n\n',
  'The cat sat on the mat.  The dog did not.\t\n' * 20,
  CONTROLS * 200,
  '\ufb01 \u2026 \u2581 \x00 \r\n',
  'w' * 100_000,
  '',
]


def documents(texts):
  path = epath.Path('corpus.jsonl')
  return [
    text.Document(text=t, path=path, line=i)
    for i, t in enumerate(texts, start=1)
  ]


def foreign(**settings):
  """A model trained by SentencePiece with settings that are not ours."""
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(CORPUS[0].splitlines() + CORPUS[1].splitlines()),
    model_writer=model,
    minloglevel=2,
    hard_vocab_limit=False,
    **settings,
  )
  return sentencepiece_model.SentencePieceTokenizer(model.getvalue(), 'foreign')


@pytest.fixture(scope='module')
def path(tmp_path_factory):
  directory = tmp_path_factory.mktemp('tokenizer')
  return tokenizers.train(documents(CORPUS), 320, directory)


@pytest.fixture(scope='module')
def tokenizer(path):
  return tokenizers.load(f'spm:{path}')


def test_it_is_as_large_as_asked(tokenizer):
  assert tokenizer.vocab_size == 320
  assert tokenizer.kind == 'spm'
  assert 0 <= tokenizer.eos_id < 320


def test_any_text_comes_back(tokenizer):
  rng = random.Random(0)
  planes = ['ab \n', '\t\r\x00 \u2581\u2585\u2047', CONTROLS]
  planes += [chr(c) for c in (0x7F, 0xFFFD, 0xFEFF, 0x0301, 0x10FFFF, 0x1F600)]
  characters = ''.join(planes)
  for _ in range(500):
    one = ''.join(rng.choices(characters, k=rng.randrange(30)))
    ids = tokenizer.encode(one)
    assert tokenizer.decode(ids) == one
    assert all(0 <= i < tokenizer.vocab_size for i in ids)
    assert tokenizer.eos_id not in ids
  assert tokenizers.lossless_problem(tokenizer) is None


def test_control_symbols_are_text(tokenizer):
  # They are frequent in the corpus, hence worth a piece if they could be one.
  ids = tokenizer.encode(CONTROLS)
  assert tokenizer.decode(ids) == CONTROLS
  assert not {'</s>', '<unk>'} & {tokenizer.token_text(i) for i in ids}
  assert tokenizer.decode([*tokenizer.encode('a'), tokenizer.eos_id]) == 'a'


def test_token_text_is_for_people(tokenizer):
  ids = tokenizer.encode('the  cat\n\x00')
  pieces = [tokenizer.token_text(i) for i in ids]
  assert ''.join(pieces) == 'the  cat\n<0x00>'


def test_training_repeats(path, tmp_path):
  again = tokenizers.train(iter(documents(CORPUS)), 320, tmp_path)
  assert again.read_bytes() == path.read_bytes()


def test_a_long_line_is_learnt_from_too(tmp_path):
  path = tokenizers.train(documents(['the cat ' * 20_000]), 270, tmp_path)
  assert len(tokenizers.load(f'spm:{path}').encode('the cat the cat')) < 8


def test_save_and_load_give_the_same(tokenizer, tmp_path):
  saved = tokenizer.save(tmp_path)
  again = tokenizers.load(f'spm:{saved}')
  assert again.sha256 == tokenizer.sha256
  assert again.encode(CORPUS[0]) == tokenizer.encode(CORPUS[0])


def test_the_largest_vocabulary_is_said_and_right(tmp_path):
  with pytest.raises(errors.DataError, match='too large') as e:
    tokenizers.train(documents(CORPUS), 99_999, tmp_path)
  most = int(re.search(r'at most (\d+)', str(e.value))[1])
  path = tokenizers.train(documents(CORPUS), most, tmp_path)
  assert tokenizers.load(f'spm:{path}').vocab_size == most


def test_the_smallest_vocabulary_is_said(tmp_path):
  with pytest.raises(errors.DataError, match=r'too small.* at least \d+'):
    tokenizers.train(documents(CORPUS), 100, tmp_path)


@pytest.mark.parametrize('texts', [[], ['', '']])
def test_no_text_is_an_error_and_leaves_nothing(tmp_path, texts):
  with pytest.raises(errors.DataError, match='no text to train on'):
    tokenizers.train(documents(texts), 300, tmp_path / 'out')
  assert not list(tmp_path.iterdir())


def test_an_error_of_the_documents_is_the_error(tmp_path):
  def broken():
    yield from documents(CORPUS)
    raise errors.DataError('corpus.jsonl:7 is bad')

  with pytest.raises(errors.DataError, match='^corpus.jsonl:7 is bad$'):
    tokenizers.train(broken(), 320, tmp_path / 'out')
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize('checked_bytes', [250, 1 << 20])
def test_a_loss_names_the_first_document_and_leaves_nothing(
  tmp_path, monkeypatch, checked_bytes
):
  # 250 bytes end within the second document, which is checked all the same.
  monkeypatch.setattr(tokenizers, 'CHECKED_BYTES', checked_bytes)
  decode = sentencepiece_model.SentencePieceTokenizer.decode
  monkeypatch.setattr(
    sentencepiece_model.SentencePieceTokenizer,
    'decode',
    lambda self, ids: decode(self, ids).replace('  ', ' '),
  )
  one_space = 'a b\n' * 50
  with pytest.raises(errors.DataError, match='jsonl:2 .*runs of spaces'):
    tokenizers.train(documents([one_space, *CORPUS]), 320, tmp_path / 'out')
  assert not list(tmp_path.iterdir())


def test_a_model_that_exists_is_kept(tmp_path):
  (tmp_path / tokenizers.MODEL_FILE).write_text('mine')
  with pytest.raises(errors.DataError, match='never overwritten'):
    tokenizers.train(documents(CORPUS), 320, tmp_path)
  assert (tmp_path / tokenizers.MODEL_FILE).read_text() == 'mine'


def test_a_default_model_is_lossy():
  lost = tokenizers.lossless_problem(foreign(vocab_size=60)).split(', ')
  assert {'newline', 'runs of spaces', 'tab', 'ligatures', 'emoji'} <= set(lost)


def test_a_model_that_prefixes_a_space_is_lossless():
  llama = foreign(
    model_type='bpe',
    vocab_size=300,
    byte_fallback=True,
    normalization_rule_name='identity',
    remove_extra_whitespaces=False,
  )
  assert llama.token_text(llama.encode('cat')[0]).startswith(' ')
  assert tokenizers.lossless_problem(llama) is None
  spaces = '\u2581the \u2581\u2581 cat\u2581'
  assert llama.decode(llama.encode(spaces)) == spaces


def test_a_model_in_the_wild_is_lossless():
  path = SHARED / 'mistral_tokenizer.model.v1'
  if not path.exists():
    pytest.skip('shared/data/tokenizers is not beside the repository')
  assert tokenizers.lossless_problem(tokenizers.load(f'spm:{path}')) is None


@pytest.mark.parametrize('spec', ['hf5:a.json', 'a.model', ''])
def test_an_unknown_kind_is_refused(spec):
  with pytest.raises(errors.ConfigError, match='one of spm'):
    tokenizers.load(spec)


def test_a_bad_file_is_named(tmp_path):
  with pytest.raises(errors.DataError, match='no.model does not exist'):
    tokenizers.load(f'spm:{tmp_path}/no.model')
  (tmp_path / 'bad.model').write_text('{}')
  with pytest.raises(errors.DataError, match='bad.model is not a Sentence'):
    tokenizers.load(f'spm:{tmp_path}/bad.model')


def test_a_model_without_eos_is_refused():
  with pytest.raises(errors.DataError, match='no end-of-sequence'):
    foreign(vocab_size=60, eos_id=-1)
