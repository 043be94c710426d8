"""Programs that are not here: each writes down what it was called with."""

import dataclasses
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
GOLDEN = pathlib.Path(__file__).parent / 'golden'
# Answers are [exit code, stdout, stderr], in order, by a word of the command;
# the last one stays.
PROGRAM = r"""#!PYTHON
import json, pathlib, sys
here = pathlib.Path('DIRECTORY')
words = ['NAME', *sys.argv[1:]]
with (here / 'calls.jsonl').open('a') as f:
  f.write(json.dumps(words) + '\n')
file = here / 'answers.json'
answers = json.loads(file.read_text())
for word in words:
  if word in answers:
    code, stdout, stderr = answers[word][0]
    answers[word][:-1] = answers[word][1:-1] if len(answers[word]) > 2 else []
    file.write_text(json.dumps(answers))
    print(stdout)
    print(stderr, file=sys.stderr)
    sys.exit(code)
"""
# `python -m leviathan` of a launcher is the program of that name.
SITE = r"""
import os, sys
if sys.orig_argv[1:3] == ['-m', 'leviathan']:
  os.execv('DIRECTORY/leviathan', ['leviathan', *sys.orig_argv[3:]])
"""


@dataclasses.dataclass
class Fakes:
  """A directory of such programs, first in the PATH."""

  directory: pathlib.Path

  def add(self, name: str, content: str | None = None) -> None:
    """Puts a program there."""
    file = self.directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
      content
      or PROGRAM.replace('PYTHON', sys.executable)
      .replace('DIRECTORY', str(self.directory))
      .replace('NAME', name.split('/')[0])
    )
    file.chmod(0o755)

  def answer(self, **answers) -> None:
    """Says what they answer, by a word of the command."""
    (self.directory / 'answers.json').write_text(json.dumps(answers))

  def calls(self) -> list[list[str]]:
    """What was called, in order."""
    file = self.directory / 'calls.jsonl'
    return [json.loads(line) for line in file.read_text().splitlines()]

  def launch(self, script: str, *words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a script of launch/."""
    (self.directory / 'calls.jsonl').write_text('')
    done = subprocess.run(
      [sys.executable, f'launch/{script}.py', *words],
      cwd=ROOT,
      capture_output=True,
      text=True,
      timeout=120,
      env=os.environ
      | {
        'PATH': f'{self.directory}:{os.environ["PATH"]}',
        # Where Python looks for pip and sitecustomize.
        'PYTHONPATH': f'{self.directory}:{ROOT}',
      },
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def fakes(tmp_path) -> Fakes:
  """See Fakes."""
  made = Fakes(tmp_path / 'fakes')
  for name in ('gcloud', 'xpk', 'kubectl', 'leviathan', 'tar', 'cp'):
    made.add(name)
  site = SITE.replace('DIRECTORY', str(made.directory))
  made.add('sitecustomize.py', site)
  made.add('pip/__main__.py')
  made.add('pip/__init__.py', '# Of Python, not of a namespace.')
  made.answer()
  return made


@pytest.fixture
def check_golden():
  """Compares a dry run with golden/NAME.txt; a new one is written by hand."""

  def check(name: str, said: str) -> None:
    said = said.replace(sys.executable, 'PYTHON').replace(str(ROOT), 'ROOT')
    assert said == (GOLDEN / f'{name}.txt').read_text()

  return check


@pytest.fixture
def commands_of():
  """The commands of a dry run, as words."""

  def read(said: str) -> list[list[str]]:
    lexer = shlex.shlex(said, posix=True, punctuation_chars='\n')
    lexer.whitespace, lexer.commenters = ' ', '#'
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for token in lexer:
      if set(token) == {'\n'}:
        found.append([])
      else:
        found[-1].append(token)
    return [words for words in found if words]

  return read


@pytest.fixture(scope='session')
def shellcheck(shellcheck):
  """But `$` in single quotes: it is the user's, and is not to expand."""
  return lambda script: shellcheck(script, '--exclude=SC2016')


@pytest.fixture(scope='session')
def until():
  """Waits until something is so, but not for ever."""

  def wait(is_so, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not is_so():
      assert time.monotonic() < end, f'not so after {seconds} s'
      time.sleep(0.02)

  return wait
