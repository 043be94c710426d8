"""Each known file gives what tiktoken itself makes of it."""

import base64
import hashlib
import shutil

import pytest
import tiktoken
from tiktoken import load as tiktoken_load

from leviathan import errors
from leviathan.data import tokenizer as tokenizers

URL = 'https://openaipublic.blob.core.windows.net/encodings/'
SIZES = {
  'r50k_base': 50_257,
  'p50k_base': 50_281,
  'cl100k_base': 100_277,
  'o200k_base': 200_019,
}
CONTROLS = '<|endoftext|></s>[INST]<0x41><|endofprompt|> <|fim_prefix|>\n'
TEXT = (
  "I'LL say: it's 1234567 o'clock!!\r\n\r\n\n  \tx  y   \n"
  'CamelCase fooBAR \u00c9tude na\u00efve e\u0301a\u0308 \u01c5x\u02b0 '
  '\u6f22\u5b57\u3000\u0e01\u0e33 \u0661\u0662\u0663\u0664 \U0001f600\u200d '
  f"///\n//\r\n .,;\n we'Re they'D  \x00\ufeff\u2581{CONTROLS}   "
)


def rebuilt(directory, name):
  """r50k_base and p50k_base out of GPT-2's two files."""
  ranks = tiktoken_load.data_gym_to_mergeable_bpe_ranks(
    str(directory / 'gpt2_vocab.bpe'), str(directory / 'gpt2_encoder.json')
  )
  if name == 'p50k_base':
    ranks |= {b' ' * (2 + i): 50_257 + i for i in range(24)}
  return b''.join(
    base64.b64encode(piece) + f' {rank}\n'.encode()
    for piece, rank in sorted(ranks.items(), key=lambda item: item[1])
  )


@pytest.fixture(scope='module', params=SIZES)
def path(request, shared, tmp_path_factory):
  directory = shared / 'data' / 'tokenizers'
  path = tmp_path_factory.mktemp('ranks') / f'{request.param}.tiktoken'
  if (directory / path.name).exists():
    shutil.copy(directory / path.name, path)
  else:
    path.write_bytes(rebuilt(directory, request.param))
  return path


@pytest.fixture(scope='module')
def tokenizer(path):
  return tokenizers.load(f'tiktoken:{path}')


@pytest.fixture
def reference(path, monkeypatch):
  """tiktoken's own, which finds the file in its cache."""
  key = hashlib.sha1(f'{URL}{path.name}'.encode()).hexdigest()
  shutil.copy(path, path.parent / key)
  monkeypatch.setenv('TIKTOKEN_CACHE_DIR', str(path.parent))
  return tiktoken.get_encoding(path.stem)


def test_it_is_as_large_as_its_highest_id(tokenizer, path):
  assert tokenizer.vocab_size == SIZES[path.stem]
  assert tokenizer.kind == 'tiktoken'
  assert tokenizer.unknown_id is None


def test_ids_are_those_of_tiktoken(tokenizer, reference, shared):
  assert tokenizer.vocab_size == reference.n_vocab
  assert tokenizer.eos_id == reference.eot_token
  for token in reference.special_tokens_set:
    (i,) = reference.encode(token, allowed_special='all')
    assert tokenizer.token_text(i) == token
  corpus = shared / 'data' / 'corpus'
  with (corpus / 'tinyshakespeare_input.txt').open() as file:
    play = file.read(50_000)
  pep = (corpus / 'peps' / 'pep-0538.rst').read_text()
  novel = (corpus / 'gutenberg' / '1342-0_pride_and_prejudice.txt').read_bytes()
  for one in (TEXT, play, pep, novel[:50_000].decode(errors='ignore')):
    ids = tokenizer.encode(one)
    assert list(ids) == reference.encode_ordinary(one)
    assert tokenizer.decode(ids) == one


def test_nothing_is_lost_and_control_symbols_are_text(tokenizer):
  assert tokenizers.lossless_problem(tokenizer) is None
  ids = tokenizer.encode(CONTROLS)
  assert tokenizer.decode(ids) == CONTROLS
  assert max(ids) < tokenizer.eos_id
  assert tokenizer.decode([*ids, tokenizer.eos_id]) == CONTROLS


def test_token_text_is_for_people(tokenizer):
  pieces = [
    tokenizer.token_text(i) for i in tokenizer.encode(' the \x00\U000e0001')
  ]
  assert ''.join(pieces) == ' the \x00<0xF3><0xA0><0x80><0x81>'


def test_save_writes_the_bytes_that_were_read(tokenizer, path, tmp_path):
  saved = tokenizer.save(tmp_path)
  assert saved.read_bytes() == path.read_bytes()
  assert hashlib.sha256(saved.read_bytes()).hexdigest() == tokenizer.sha256
  assert tokenizers.load(f'tiktoken:{saved}').vocab_size == tokenizer.vocab_size


def test_a_damaged_file_is_refused(path, tmp_path):
  (tmp_path / 'cut.tiktoken').write_bytes(path.read_bytes()[:-1])
  with pytest.raises(errors.DataError, match='cut.tiktoken .* is damaged'):
    tokenizers.load(f'tiktoken:{tmp_path}/cut.tiktoken')


def test_ids_that_are_no_token_have_no_text(shared):
  path = shared / 'data' / 'tokenizers' / 'o200k_base.tiktoken'
  tokenizer = tokenizers.load(f'tiktoken:{path}')
  assert tokenizer.decode([199_999, 200_005, 200_018]) == ''
  assert tokenizer.token_text(200_005) == '<no token 200005>'


def test_white_space_that_tiktoken_dies_of_is_refused(shared):
  path = shared / 'data' / 'tokenizers' / 'o200k_base.tiktoken'
  tokenizer = tokenizers.load(f'tiktoken:{path}')
  longest = 'a' + ' ' * 900_000 + 'b'
  assert tokenizer.decode(tokenizer.encode(longest)) == longest
  with pytest.raises(errors.DataError, match='1,000,000 characters of white'):
    tokenizer.encode('a' + ' ' * 1_000_000 + 'b')


@pytest.mark.parametrize('data', [b'', b'IQ== 0\nIg== 1\n', b'\xff no ranks'])
def test_an_unknown_file_is_refused_and_the_known_are_named(tmp_path, data):
  (tmp_path / 'my.tiktoken').write_bytes(data)
  with pytest.raises(errors.DataError, match='my.tiktoken') as e:
    tokenizers.load(f'tiktoken:{tmp_path}/my.tiktoken')
  assert ', '.join(SIZES) in str(e.value)
  assert len(str(e.value).splitlines()) == 1
