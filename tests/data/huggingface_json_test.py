"""Whatever a tokenizer.json says, text is text and all of it is encoded."""

import hashlib
import json
import random

import pytest
import tokenizers as library
from tokenizers import decoders
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers
from tokenizers import processors
from tokenizers import trainers

from leviathan import errors
from leviathan.data import huggingface_json
from leviathan.data import tokenizer as tokenizers

CONTROLS = ['<|endoftext|>', '</s>', '[INST]', '<0x41>', '<|pad|>', '<unk>']
CORPUS = ['The cat sat on the mat.  The dog did not.\t\n' * 20, *CONTROLS * 50]
ELLIPSIS = '\u2026'


def byte_level(special=('<|endoftext|>', '<|pad|>')):
  """A small tokenizer like GPT-2's."""
  tokenizer = library.Tokenizer(models.BPE())
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(
    vocab_size=340,
    special_tokens=list(special),
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  tokenizer.train_from_iterator(CORPUS, trainer)
  return tokenizer


def unigram(pieces, unknown):
  tokenizer = library.Tokenizer(
    models.Unigram([(piece, -1.0) for piece in pieces], unk_id=unknown)
  )
  tokenizer.add_special_tokens(['</s>'])
  return tokenizer


def load(tokenizer, tmp_path):
  path = tmp_path / 'any.json'
  tokenizer.save(str(path))
  return tokenizers.load(f'hf:{path}')


def test_any_text_comes_back(tmp_path):
  tokenizer = load(byte_level(), tmp_path)
  rng = random.Random(0)
  characters = 'the cat \n\t\r\x00\u2581\u0301\ufeff\U0001f600\U0010ffff'
  for _ in range(300):
    one = ''.join(rng.choices([*characters, *CONTROLS], k=rng.randrange(30)))
    ids = tokenizer.encode(one)
    assert tokenizer.decode(ids) == one
    assert all(0 <= i < tokenizer.vocab_size for i in ids)
  assert tokenizers.lossless_problem(tokenizer) is None
  assert tokenizer.kind == 'hf'


@pytest.mark.parametrize('name', CONTROLS)
def test_control_symbols_are_text(tmp_path, name):
  made = byte_level()
  special = set(made.get_added_tokens_decoder())
  assert len(special) == 2
  tokenizer = load(made, tmp_path)
  ids = tokenizer.encode(f'a{name}\n{name}')
  assert not special & set(ids)
  assert tokenizer.decode(ids) == f'a{name}\n{name}'
  assert tokenizer.decode([*ids, *special]) == f'a{name}\n{name}'


def test_lengths_templates_and_dropout_of_the_file_are_not_followed(tmp_path):
  plain = byte_level()
  wanted = load(plain, tmp_path).encode(CORPUS[0])
  plain.model.dropout = 0.9
  plain.enable_truncation(3)
  plain.enable_padding(length=5000)
  plain.post_processor = processors.TemplateProcessing(
    single='$A <|endoftext|>', special_tokens=[('<|endoftext|>', 0)]
  )
  assert load(plain, tmp_path).encode(CORPUS[0]) == wanted


def test_the_vocabulary_ends_at_the_highest_id(tmp_path):
  made = library.Tokenizer(models.BPE({'a': 0, 'b': 7}, []))
  made.add_special_tokens(['</s>'])
  tokenizer = load(made, tmp_path)
  eos_id = made.token_to_id('</s>')
  assert tokenizer.eos_id == eos_id
  assert tokenizer.vocab_size == max(7, eos_id) + 1
  assert tokenizer.token_text(7) == 'b'
  assert tokenizer.token_text(5) == '<no token 5>'
  assert tokenizer.decode([0, 5, 7]).replace(' ', '') == 'ab'


@pytest.mark.parametrize(
  'special, eos',
  [
    (['</s>'], '</s>'),
    (['</s>', '<|im_end|>', '<|endoftext|>'], '<|endoftext|>'),
    (['<bos>', '<eos>'], '<eos>'),
    (['<|end_of_text|>', '<|eot_id|>'], '<|end_of_text|>'),
  ],
)
def test_the_end_of_a_text_is_found_by_name(tmp_path, special, eos):
  tokenizer = load(byte_level(special), tmp_path)
  assert tokenizer.token_text(tokenizer.eos_id) == eos


def test_without_an_end_of_text_it_is_refused(tmp_path):
  made = byte_level(['<|im_end|>'])
  made.add_tokens(['</s>'])  # Looked for in texts, for it is not special.
  with pytest.raises(errors.DataError, match='any.json has no special.*</s>'):
    load(made, tmp_path)


def test_save_writes_the_bytes_that_were_read(tmp_path):
  path = tmp_path / 'any.json'
  path.write_text(json.dumps(json.loads(byte_level().to_str()), indent=3))
  tokenizer = tokenizers.load(f'hf:{path}')
  (tmp_path / 'copy').mkdir()
  saved = tokenizer.save(tmp_path / 'copy')
  assert saved.read_bytes() == path.read_bytes()
  assert hashlib.sha256(saved.read_bytes()).hexdigest() == tokenizer.sha256
  assert tokenizers.load(f'hf:{saved}').encode('cat') == tokenizer.encode('cat')


@pytest.mark.parametrize(
  'data', [b'', b'{', b'\xff\xfe', b'{}', b'[]', b'null', b'cut']
)
def test_a_damaged_file_is_one_line(tmp_path, data):
  if data == b'cut':
    data = byte_level().to_str().encode()[:-300]
  (tmp_path / 'bad.json').write_bytes(data)
  with pytest.raises(errors.DataError, match='bad.json is not a') as e:
    tokenizers.load(f'hf:{tmp_path}/bad.json')
  assert len(str(e.value).splitlines()) == 1


def test_the_unknown_token_of_each_model(tmp_path):
  assert load(byte_level(), tmp_path).unknown_id is None
  tokenizer = load(unigram(['a', 'b', '?'], 2), tmp_path)
  assert tokenizer.unknown_id == 2
  assert 2 in tokenizer.encode('axb')
  words = models.WordLevel({'a': 0, '[UNK]': 1}, unk_token='[UNK]')
  made = library.Tokenizer(words)
  made.add_special_tokens(['</s>'])
  tokenizer = load(made, tmp_path)
  assert tokenizer.unknown_id == 1
  assert list(tokenizer.encode('x')) == [1]


def test_a_model_that_reads_eos_out_of_text_is_lossy(tmp_path):
  # Unigram takes any piece of its vocabulary, the name of EOS among them.
  tokenizer = load(unigram([*'</s>', '?', '</s>'], 4), tmp_path)
  assert tokenizer.eos_id in tokenizer.encode('</s>')
  lost = tokenizers.lossless_problem(tokenizer)
  assert lost is not None and 'the name of its EOS as text' in lost


def test_normalisation_is_lossy(tmp_path):
  made = byte_level()
  made.normalizer = normalizers.NFC()
  lost = tokenizers.lossless_problem(load(made, tmp_path))
  assert lost == 'combining accents'


def test_token_text_is_for_people(tmp_path):
  tokenizer = load(byte_level(), tmp_path)
  ids = tokenizer.encode(f'The cat\n{ELLIPSIS}\x00')
  pieces = [tokenizer.token_text(i) for i in ids]
  assert ''.join(pieces) == 'The cat\n<0xE2><0x80><0xA6>\x00'
  assert ' cat' in pieces
  tokenizer = load(unigram(['\u2581the', '?'], 1), tmp_path)
  assert tokenizer.token_text(0) == ' the'


def test_every_byte_has_its_character():
  found = huggingface_json.bytes_of_characters()
  assert sorted(found.values()) == list(range(256))
  # As GPT-2's table has them.
  assert found['A'] == 65 and found['\u0120'] == 32 and found['\u010a'] == 10
  assert found['\u00e2'] == 0xE2 and found['\u0143'] == 0xAD


def test_a_tokenizer_in_the_wild(shared):
  path = shared / 'data' / 'tokenizers' / '20B_tokenizer.json'
  tokenizer = tokenizers.load(f'hf:{path}')
  assert tokenizer.vocab_size == 50_277
  assert tokenizer.eos_id == 0
  assert tokenizer.sha256.startswith('56ac4821')
  assert tokenizers.lossless_problem(tokenizer) == 'combining accents'
  assert 0 not in tokenizer.encode('<|endoftext|>')
