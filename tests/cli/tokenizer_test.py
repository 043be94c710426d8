"""`leviathan tokenizer`, as its main function."""

import io
import json

from absl import flags
from absl.testing import flagsaver
import pytest
import sentencepiece

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


def check(corpus, spec, **changes):
  values = {'input': str(corpus), 'tokenizer': spec, 'check': True}
  values |= {'output': '', 'vocab_size': None, 'text_key': 'body'}
  with flagsaver.flagsaver(**(values | changes)):
    command.main(['tokenizer'])


@pytest.fixture
def lossy(tmp_path):
  """A model as SentencePiece trains it by default."""
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['the cat sat on the mat'] * 9),
    model_writer=model,
    minloglevel=2,
    vocab_size=30,
    hard_vocab_limit=False,
  )
  path = tmp_path / 'lossy.model'
  path.write_bytes(model.getvalue())
  return f'spm:{path}'


def test_a_tokenizer_that_loses_nothing_passes_the_check(
  corpus, tmp_path, capsys
):
  run(corpus, tmp_path / 'out')
  capsys.readouterr()
  check(corpus, f'spm:{tmp_path}/out/tokenizer.model')
  said = capsys.readouterr().out
  for part in (
    'vocab_size 300',
    '2 documents, 396 bytes',
    '2 of 2 documents (100.00%), 396 of 396 bytes (100.00%)',
    'unknown: 0 of ',
    'lost of the fixed texts: none',
  ):
    assert part in said
  assert 'first document' not in said


def test_a_lossy_tokenizer_is_reported_and_fails_the_check(
  corpus, lossy, capsys
):
  with corpus.open('a') as file:
    file.write('{"body": "the cat"}\n')
  with pytest.raises(errors.DataError, match='lossy: newline, .*allow_lossy'):
    check(corpus, lossy)
  said = capsys.readouterr().out
  assert '1 of 3 documents (33.33%), 7 of 403 bytes (1.74%)' in said
  assert f'does not come back: {corpus}:1' in said
  assert 'lost of the fixed texts: newline, runs of spaces' in said
  assert 'unknown: 0 of' not in said
  check(corpus, lossy, allow_lossy=True)
  assert capsys.readouterr().out == said


@pytest.mark.parametrize(
  'mode, changes, words',
  [
    (check, {'output': 'x'}, '--output does not go with --check'),
    (check, {'vocab_size': 300}, '--vocab_size does not go with'),
    (run, {'tokenizer': 'spm:x'}, '--tokenizer only goes with --check'),
    (run, {'allow_lossy': True}, '--allow_lossy only goes with'),
    (run, {'vocab_size': None}, 'both --output and --vocab_size'),
  ],
)
def test_flags_belong_to_training_or_to_the_check(
  corpus, tmp_path, lossy, mode, changes, words
):
  argument = lossy if mode is check else tmp_path / 'out'
  with pytest.raises(errors.ConfigError, match=words):
    mode(corpus, argument, **changes)
  assert not (tmp_path / 'out').exists()
