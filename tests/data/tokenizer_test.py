"""Nothing is lost, nothing becomes a control token, training repeats."""

import gzip
import io
import json
import random
import re

from etils import epath
import pytest
import sentencepiece
import tokenizers as library
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers

from leviathan import errors
from leviathan.data import sentencepiece_model
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers

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


@pytest.mark.parametrize('spec', ['hf5:a.json', 'a.model', ''])
def test_an_unknown_kind_is_refused(spec):
  with pytest.raises(errors.ConfigError, match='one of spm, hf, tiktoken'):
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


class Letters:
  """By hand: a letter is its place in 'abc', 3 is EOS, 4 is unknown."""

  kind = 'letters'
  vocab_size = 5
  eos_id = 3
  unknown_id = 4
  sha256 = ''

  def encode(self, text):
    return ['abc$'.find(c) % 5 for c in text if c != '-']

  def decode(self, ids):
    return ''.join('abc$?'[i] for i in ids)

  def token_text(self, token_id):
    return 'abc$?'[token_id]


def test_a_corpus_is_measured():
  # \u00e9 is unknown and has two bytes, - gives no token, $ comes back through
  # EOS, as no text may.
  corpus = documents(['abc', 'a\u00e9', 'a-b', '', '$', 'ca'])
  report = tokenizers.measure(Letters(), iter(corpus))
  assert (report.documents, report.exact_documents) == (6, 3)
  assert (report.bytes, report.exact_bytes) == (12, 5)
  assert (report.tokens, report.unknown_tokens) == (10, 1)
  assert report.bytes_per_token == 1.2
  assert report.unknown_tokens / report.tokens == 0.1
  assert report.first_inexact == 'corpus.jsonl:2'
  assert report.lost.startswith('newline, ')
  assert 'the name of its EOS as text' in report.lost
  assert not report.lossless


def test_a_loss_outside_the_corpus_counts(tokenizer):
  corpus = documents(['abc', 'ca'])
  report = tokenizers.measure(Letters(), corpus)
  assert report.exact_documents == 2 and report.first_inexact is None
  assert not report.lossless
  report = tokenizers.measure(tokenizer, documents(CORPUS))
  assert report.lossless and report.exact_documents == len(CORPUS)


@pytest.mark.parametrize('texts', [[], ['', '-']])
def test_a_corpus_without_tokens_is_refused(texts):
  with pytest.raises(errors.DataError, match=f'{len(texts)} documents have 0'):
    tokenizers.measure(Letters(), documents(texts))


def gpt2(directory, tmp_path):
  """GPT-2's two files as one tokenizer.json."""
  made = library.Tokenizer(
    models.BPE.from_file(
      str(directory / 'gpt2_encoder.json'), str(directory / 'gpt2_vocab.bpe')
    )
  )
  made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  made.decoder = decoders.ByteLevel()
  made.add_special_tokens(['<|endoftext|>'])
  made.save(str(tmp_path / 'gpt2.json'))
  return f'hf:{tmp_path}/gpt2.json'


def real_documents(data):
  """Pages of C4 and the Pile, three PEPs, the beginnings of two books."""
  found = list(text.documents(data / 'pile' / 'pile_real_rows.jsonl', 'text'))
  for path in sorted((data / 'c4').iterdir()):
    rows = gzip.decompress(path.read_bytes()).decode().splitlines()
    found += documents([json.loads(row)['text'] for row in rows])
  corpus = data / 'corpus'
  peps = sorted((corpus / 'peps').iterdir())[:3]
  books = sorted((corpus / 'gutenberg').iterdir())[:2]
  found += documents(path.read_text() for path in peps)
  found += documents(
    path.read_bytes()[:100_000].decode(errors='ignore') for path in books
  )
  return found


@pytest.mark.parametrize(
  'name, vocab_size, eos_id, lost',
  [
    ('hf:20B_tokenizer.json', 50_277, 0, 'combining accents'),
    ('tiktoken:cl100k_base.tiktoken', 100_277, 100_257, None),
    ('tiktoken:o200k_base.tiktoken', 200_019, 199_999, None),
    ('gpt2', 50_257, 50_256, None),
    ('spm:mistral_tokenizer.model.v1', 32_000, 2, None),
  ],
)
def test_tokenizers_in_the_wild_give_real_text_back(
  shared, tmp_path, name, vocab_size, eos_id, lost
):
  directory = shared / 'data' / 'tokenizers'
  kind, _, file = name.partition(':')
  spec = f'{kind}:{directory}/{file}' if file else gpt2(directory, tmp_path)
  tokenizer = tokenizers.load(spec)
  assert (tokenizer.vocab_size, tokenizer.eos_id) == (vocab_size, eos_id)
  report = tokenizers.measure(tokenizer, real_documents(shared / 'data'))
  assert report.documents == 38
  assert report.exact_documents == 38 and report.exact_bytes == report.bytes
  assert report.unknown_tokens == 0
  assert 3 < report.bytes_per_token < 5
  assert report.lost == lost


def test_a_lossy_model_in_the_wild_is_measured(shared):
  file = 'sentencepiece_test_model.model'
  tokenizer = tokenizers.load(f'spm:{shared}/data/tokenizers/{file}')
  report = tokenizers.measure(tokenizer, real_documents(shared / 'data'))
  assert report.exact_documents == 1 and report.documents == 38
  assert 0.01 < report.unknown_tokens / report.tokens < 0.1
  assert report.first_inexact.endswith('pile_real_rows.jsonl:1')
  assert {'newline', 'runs of spaces', 'emoji'} <= set(report.lost.split(', '))
