"""`leviathan tokenizer`, as its main function."""

import json

from absl import flags
from absl.testing import flagsaver
import pytest

from leviathan import errors
from leviathan.cli import tokenizer as command
from leviathan.data import tokenizer as tokenizers


@pytest.fixture(autouse=True)
def parsed():
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()


@pytest.fixture
def corpus(tmp_path):
  path = tmp_path / 'corpus' / 'a.jsonl'
  path.parent.mkdir()
  texts = ['def f():\n  return  1\n' * 9, 'the cat sat on the mat\n' * 9]
  path.write_text(''.join(json.dumps({'body': t}) + '\n' for t in texts))
  return path


def run(corpus, output, **changes):
  values = {'input': str(corpus), 'output': str(output), 'vocab_size': 300}
  with flagsaver.flagsaver(text_key='body', **(values | changes)):
    command.main(['tokenizer'])


def test_it_trains_and_says_so(corpus, tmp_path, capsys):
  run(corpus, tmp_path / 'out')
  path = tmp_path / 'out' / 'tokenizer.model'
  said = capsys.readouterr().out
  for part in ('vocab_size 300', '2 documents', 'round trip exact', str(path)):
    assert part in said
  assert len(said.splitlines()) == 1
  tokenizer = tokenizers.load(f'spm:{path}')
  assert tokenizer.vocab_size == 300
  assert len(tokenizer.encode('the cat sat on the mat')) < 15


def test_a_bad_line_leaves_nothing(corpus, tmp_path):
  with corpus.open('a') as file:
    file.write('{"text": "wrong key"}\n')
  with pytest.raises(errors.DataError, match=r'a.jsonl:3 has no key'):
    run(corpus, tmp_path / 'out')
  assert list(tmp_path.iterdir()) == [corpus.parent]


def test_a_model_that_exists_is_kept(corpus, tmp_path):
  run(corpus, tmp_path)
  before = (tmp_path / 'tokenizer.model').read_bytes()
  with pytest.raises(errors.DataError, match='never overwritten'):
    run(corpus, tmp_path, vocab_size=280)
  assert (tmp_path / 'tokenizer.model').read_bytes() == before


def test_a_vocabulary_below_the_bytes_is_refused(corpus, tmp_path):
  with pytest.raises(flags.IllegalFlagValueError, match='>= 260'):
    run(corpus, tmp_path / 'out', vocab_size=259)
