"""The ids of an exported tokenizer are ours, in transformers too."""

import io
import json
import pathlib

from etils import epath
import pytest
import sentencepiece
import tokenizers as library
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers

from leviathan import errors
from leviathan.data import tokenizer as tokenizer_lib
from leviathan.huggingface import tokenizers

SIZE = 10_000  # characters of each text
LICENSE = pathlib.Path(__file__).parents[2] / 'LICENSE'


def unigram(directory, **changes):
  """A small SentencePiece model that loses nothing."""
  made = io.BytesIO()
  # Of one space: theirs adds scores in float64, so a tie may break elsewhere.
  lines = [' '.join(LICENSE.read_text().split()).replace('. ', '.\n')]
  # With a piece for each character that controls are written in.
  lines += [chr(i) for i in range(33, 127)] * 3
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter('\n'.join(lines).split('\n')),
    model_writer=made,
    vocab_size=420,
    character_coverage=1.0,
    hard_vocab_limit=False,
    minloglevel=2,
    **{
      'model_type': 'unigram',
      'normalization_rule_name': 'identity',
      'add_dummy_prefix': False,
      'remove_extra_whitespaces': False,
      'allow_whitespace_only_pieces': True,
      'user_defined_symbols': ['\n', 'return\u2581x'],
      'byte_fallback': True,
      'bos_id': -1,
      'pad_id': -1,
    }
    | changes,
  )
  path = directory / 'tokenizer.model'
  path.write_bytes(made.getvalue())
  return f'spm:{path}'


@pytest.fixture(scope='module')
def corpus(shared):
  directory = shared / 'data' / 'corpus'
  paths = [
    *sorted(directory.glob('*.txt')),
    *sorted(directory.glob('peps/*.rst'))[:6],
    *sorted(directory.glob('gutenberg/*.txt')),
  ]
  assert len(paths) > 8
  return [p.read_bytes().decode()[:SIZE] for p in paths]


@pytest.fixture(
  params=['ours', 'unigram', 'unigram with a prefix', 'prefix', 'cl100k_base',
          'o200k_base', 'hf'],
)  # fmt: skip
def spec(request, tiny, shared, tmp_path):
  files = shared / 'data' / 'tokenizers'
  prefixed = {'add_dummy_prefix': True, 'user_defined_symbols': []}
  if request.param == 'unigram':
    return unigram(tmp_path)
  if request.param == 'unigram with a prefix':
    return unigram(tmp_path, **prefixed)
  return {
    'ours': f'spm:{tiny.tokenizer}',
    'prefix': f'spm:{files}/mistral_tokenizer.model.v1',
    'hf': f'hf:{files}/20B_tokenizer.json',
  }.get(request.param, f'tiktoken:{files}/{request.param}.tiktoken')


def test_ids_are_ours_and_nothing_is_added(spec, corpus, tmp_path):
  transformers = pytest.importorskip('transformers')
  ours = tokenizer_lib.load(spec)
  directory = epath.Path(tmp_path / 'out')
  directory.mkdir()
  tokenizers.write(ours, directory, 128)
  (directory / 'config.json').write_text(json.dumps({'model_type': 'llama'}))
  theirs = transformers.AutoTokenizer.from_pretrained(str(directory))
  for text in (*corpus, *tokenizers.texts(ours)):
    ids = list(ours.encode(text))
    assert theirs(text)['input_ids'] == ids
    assert theirs.decode(ids) == ours.decode(ids)
  assert theirs.eos_token_id == theirs.bos_token_id == ours.eos_id
  end = theirs(theirs.eos_token, split_special_tokens=False)['input_ids']
  assert end == [ours.eos_id]
  # The original lies beside.
  kept = [p for p in directory.iterdir() if p.name != 'tokenizer.json']
  if ours.kind != 'hf':
    assert any(p.read_bytes() == ours_bytes(spec) for p in kept)


def ours_bytes(spec):
  return epath.Path(spec.partition(':')[2]).read_bytes()


def test_the_end_of_a_text_has_the_name_that_its_file_gives_it(tmp_path):
  """Where a sign in it would be shown to people as a space, too."""
  transformers = pytest.importorskip('transformers')
  end = '<\uff5cend\u2581of\u2581sentence\uff5c>'
  made = library.Tokenizer(models.BPE({'a': 0, 'b': 1, 'ab': 2}, [('a', 'b')]))
  made.add_special_tokens([end])
  (tmp_path / 'any.json').write_text(made.to_str())
  ours = tokenizer_lib.load(f'hf:{tmp_path}/any.json')
  directory = epath.Path(tmp_path / 'out')
  directory.mkdir()
  assert tokenizers.write(ours, directory, 128) == end
  (directory / 'config.json').write_text(json.dumps({'model_type': 'llama'}))
  theirs = transformers.AutoTokenizer.from_pretrained(str(directory))
  assert theirs.eos_token == end and len(theirs) == ours.vocab_size
  assert theirs.eos_token_id == theirs.bos_token_id == ours.eos_id
  assert set(theirs('ab')) == {'input_ids', 'attention_mask'}


@pytest.mark.parametrize(
  'changes, words',
  [
    ({'normalization_rule_name': 'nmt_nfkc'}, 'normalization'),
    ({'remove_extra_whitespaces': True}, 'remove_extra_whitespaces'),
    ({'byte_fallback': False}, 'no byte_fallback'),
    ({'add_dummy_prefix': True}, 'add_dummy_prefix with user-defined'),
    ({'user_defined_symbols': ['return x']}, 'symbol with a plain space'),
    ({'model_type': 'char'}, 'neither BPE nor Unigram'),
  ],
)
def test_what_has_no_equal_is_refused(tmp_path, changes, words):
  ours = tokenizer_lib.load(unigram(tmp_path, **changes))
  directory = epath.Path(tmp_path / 'out')
  directory.mkdir()
  with pytest.raises(errors.DataError, match=words):
    tokenizers.write(ours, directory, 128)


def test_another_tokenizer_is_told_from_ours(tiny):
  ours = tokenizer_lib.load(f'spm:{tiny.tokenizer}')
  text = tokenizers._of_sentencepiece(ours, tiny.tokenizer.read_bytes())
  same = library.Tokenizer.from_str(text)
  assert tokenizers.difference(ours, same) is None
  same.normalizer = normalizers.Prepend(' ')
  assert tokenizers.difference(ours, same) is not None
  bytewise = library.Tokenizer(models.BPE())
  bytewise.pre_tokenizer = pre_tokenizers.ByteLevel()
  assert tokenizers.difference(ours, bytewise) is not None


def test_what_a_file_does_to_texts_besides_is_left_out(tmp_path):
  made = library.Tokenizer(models.BPE({'a': 0, 'b': 1, 'ab': 2}, [('a', 'b')]))
  made.add_special_tokens(['</s>'])
  made.enable_truncation(3)
  made.enable_padding(length=9)
  made.model.dropout = 0.5
  made.post_processor = library.processors.TemplateProcessing(
    single='</s> $A', special_tokens=[('</s>', 3)]
  )
  (tmp_path / 'any.json').write_text(made.to_str())
  ours = tokenizer_lib.load(f'hf:{tmp_path}/any.json')
  directory = epath.Path(tmp_path / 'out')
  directory.mkdir()
  tokenizers.write(ours, directory, 128)
  found = library.Tokenizer.from_file(str(directory / 'tokenizer.json'))
  assert found.encode('abab' * 20).ids == [2, 2] * 20
