"""What a job's command may hold, and what is read from it."""

import sys

import pytest

from leviathan import errors
from leviathan.cli import job_command


@pytest.fixture
def read(monkeypatch):
  """job_command.read of some words."""

  def call(*words, several=True):
    monkeypatch.setattr(sys, 'argv', ['launch/x.py', '--flag', '--', *words])
    return job_command.read(several)

  return call


def test_several_processes_are_told_to_meet_unless_they_are(read):
  train = ('leviathan', 'train', '--config=c.py:x')
  assert read(*train) == [*train, '--coordinator=auto']
  assert read(*train, several=False) == [*train]
  by_hand = (*train, '--coordinator=host:1')
  assert read(*by_hand) == [*by_hand]


@pytest.mark.parametrize(
  'before',
  [
    ('.venv/bin/leviathan',),
    ('python', '-m', 'leviathan'),
    ('env', 'X=1', 'leviathan'),
    ('python', 'launch/babysit.py', '--', '/a/leviathan'),
  ],
)
def test_the_command_is_known_by_any_path_and_behind_any_program(read, before):
  train = (*before, 'train', '--workdir=runs/leviathan')
  assert job_command.name(train) == 'train'
  assert read(*train) == [*train, '--coordinator=auto']
  evaluate = (*before, 'evaluate')
  assert read(*evaluate) == [*evaluate]


@pytest.mark.parametrize(
  'words',
  [
    ('python', 'my.py', '--output=a/leviathan', 'train'),
    ('leviathan',),
    ('leviathan', 'trian'),
    ('bash', '-c', 'leviathan train'),
  ],
)
def test_several_processes_of_what_is_not_known_must_say_how_they_meet(
  read, words
):
  with pytest.raises(errors.ConfigError, match='--coordinator=auto'):
    read(*words)
  assert read(*words, several=False) == [*words]
  told = (*words[:-1], f'{words[-1]} --coordinator=auto')
  assert read(*told) == [*told]


@pytest.mark.parametrize(
  'word',
  [
    'WANDB_API_KEY=abc',
    'HF_TOKEN=abc',
    'MY_PASSWORD=abc',
    'AWS_SECRET=abc',
    'export X=1; WANDB_API_KEY=abc leviathan train',
    'AWS_ACCESS_KEY_ID=abc',
    'wandb_api_key=abc',
    '--api_key=abc',
    '--api-key=abc',
    '--api_key abc',
    '--wandb_token=abc',
    '--hf-token=abc',
    '--config.log.password=abc',
  ],
)
def test_a_secret_is_refused_and_not_repeated(read, word):
  with pytest.raises(errors.ConfigError, match='--secrets=FILE') as caught:
    read('env', word)
  assert 'abc' not in str(caught.value)
  if '--' in word:
    with pytest.raises(errors.ConfigError, match='--secrets=FILE'):
      read('env', *word.split('='))


@pytest.mark.parametrize(
  'word',
  [
    '--text_key=text',
    '--eos_token=</s>',
    '--max_token 5',
    '--api_key --other',
    '--tokenizer=spm:a.model',
    '--config.data.train=gs://b/key=1/data',
    '--prompt=KEY = value',
    'WANDB_API_KEY=',
    'XLA_FLAGS=--xla_x=1',
  ],
)
def test_other_words_are_none(read, word):
  assert read('env', word, several=False) == ['env', word]


def test_the_config_and_its_file():
  words = ['leviathan', 'train', '--config=a/b.py:1p2b', '--config.x.y=(1, 2)',
           '--workdir=w', '--noconfig.z=1', '--configs=no']  # fmt: skip
  assert job_command.config_flags(words) == [
    '--config=a/b.py:1p2b',
    '--config.x.y=(1, 2)',
    '--noconfig.z=1',
  ]
  assert job_command.config_file(words) == 'a/b.py'
  assert job_command.config_file(['leviathan', 'evaluate']) is None
