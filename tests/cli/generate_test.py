"""`leviathan generate`, as its main function."""

import builtins
import functools
import io
import sys
import types
from typing import Any

from absl import flags
from absl.testing import flagsaver
import jax
import pytest

from leviathan import errors
from leviathan import experiment
from leviathan import restore
from leviathan import sampling
from leviathan import sharding
from leviathan.cli import generate as command
from leviathan.cli import run_flags
from leviathan.data import tokenizer as tokenizer_lib

LINE = '-' * 40 + '\n'


@pytest.fixture(autouse=True)
def parsed():
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()


@pytest.fixture(scope='module')
def loaded(tiny):
  """Parameters larger than at the start, so that what came before counts."""
  config = tiny.config('tied', model__layers=1)
  parts = experiment.Experiment(
    config, sharding.make_mesh(config.mesh, jax.devices()[:1])
  )
  params = jax.tree.map(lambda p: 5 * p, parts.fresh_state().params)
  tokenizer = tokenizer_lib.load(f'spm:{tiny.tokenizer}')
  run: Any = types.SimpleNamespace(tokenizer=lambda: tokenizer)
  return restore.Restored(run, parts, params, 0)


@pytest.fixture(scope='module')
def make():
  """Of a module, and so compiled once."""
  return functools.cache(sampling.make)


class Terminal(io.StringIO):
  """What is written, and in which pieces."""

  def __init__(self):
    super().__init__()
    self.pieces = []

  def write(self, text):
    self.pieces.append(text)
    return super().write(text)

  def isatty(self):
    return True


@pytest.fixture
def generate(loaded, make, capsys, monkeypatch):
  """(stdout, stderr) of the command."""
  monkeypatch.setattr(run_flags, 'restored', lambda: loaded)
  monkeypatch.setattr(sampling, 'make', make)

  def run(*prompts, **values):
    values = {'max_tokens': 20, 'temperature': 1.5} | values
    with flagsaver.flagsaver(prompt=list(prompts), **values):
      command.main(['generate'])
    return capsys.readouterr()

  return run


def test_a_continuation_is_that_of_its_prompt_and_number_alone(generate):
  out, told = generate('def f', 'import os', samples=2)
  assert 'tokens in ' in told
  *texts, rest = out.split(LINE)
  assert not rest and len(set(texts)) == 4
  assert [t.startswith('def f') for t in texts] == [True, True, False, False]
  (alone, _) = generate('import os', samples=2)
  assert alone == LINE.join([*texts[2:], ''])
  assert generate('import os').out == texts[2]
  assert generate('import os', seed=1).out != texts[2]


def test_more_than_are_written_at_once(generate, monkeypatch):
  together = generate('x', samples=5, max_tokens=3).out
  monkeypatch.setattr(command, 'ROWS', 2)
  assert generate('x', samples=5, max_tokens=3).out == together
  assert together.count(LINE) == 5


def test_it_ends_before_a_stop(generate):
  text = generate('x = ', max_tokens=20).out.removeprefix('x = ')
  stop = text[5:8]
  found = generate('x = ', max_tokens=20, stop=['no such', stop]).out
  assert found == f'x = {text[: text.index(stop)]}\n'


def test_top_k_of_one_is_the_likeliest(generate):
  likeliest = generate('def f', temperature=0.0).out
  assert generate('def f', top_k=1).out == likeliest
  assert generate('def f', top_p=1e-6).out == likeliest
  assert generate('def f').out != likeliest


def test_a_terminal_sees_the_text_as_it_comes(generate, monkeypatch):
  whole = generate('def f', max_tokens=25).out
  terminal = Terminal()
  monkeypatch.setattr(sys, 'stdout', terminal)
  generate('def f', max_tokens=25)
  assert terminal.getvalue() == whole
  assert terminal.pieces[0] == 'def f'
  # Twenty-five tokens are more than come between two looks.
  assert len([piece for piece in terminal.pieces[1:] if piece.strip()]) == 2


def test_prompts_are_read_until_the_end_of_the_input(generate, monkeypatch):
  lines = ['def f', 'x ' * 40, 'import os']
  monkeypatch.setattr(sys, 'stdin', io.StringIO('\n'.join(lines)))
  out, told = generate(interactive=True)
  assert out == generate('def f').out + generate('import os').out
  assert told.count('error: the prompt') == 1


def test_a_line_that_is_no_text_is_one_error_and_the_next_is_read(
  generate, monkeypatch
):
  lines = io.BytesIO(b'def f\nab\xff\nimport os')
  monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(lines, 'utf-8'))
  out, told = generate(interactive=True)
  assert out == generate('def f').out + generate('import os').out
  assert r"error: the prompt 'ab\udcff' is not UTF-8 from character 3" in told
  with pytest.raises(errors.ConfigError, match='is not UTF-8 .*; give text'):
    generate('ab\udcff')


class Stopped:
  """A writer to whom Ctrl-C comes at some prompts."""

  def __init__(self, at):
    self.prompts, self.at = [], at

  def write(self, prompts):
    self.prompts += prompts
    if prompts[0] in self.at:
      raise KeyboardInterrupt


def test_ctrl_c_stops_what_is_written_and_leaves_at_the_prompt(monkeypatch):
  answers = iter(['a', 'b', None])

  def answer(sign):
    del sign
    given = next(answers)
    if given is None:
      raise KeyboardInterrupt
    return given

  monkeypatch.setattr(builtins, 'input', answer)
  writer: Any = Stopped(at=['a'])
  with pytest.raises(SystemExit) as left:
    command._converse(writer)
  assert left.value.code == 130  # And not as a command that goes on.
  assert writer.prompts == ['a', 'b']


def test_what_cannot_be_is_refused(generate):
  with pytest.raises(errors.ConfigError, match="--prompt='a' with --inter"):
    generate('a', interactive=True)
  with pytest.raises(errors.ConfigError, match='top_p=2'):
    generate('a', top_p=2.0)
  with pytest.raises(errors.ConfigError, match='give 30 or fewer'):
    generate('a', 'x ' * 40)
