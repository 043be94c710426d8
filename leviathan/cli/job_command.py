"""The command of a job, which each of its hosts runs, and what it may hold."""

from collections.abc import Sequence
import itertools
import pathlib
import re

from absl import flags

from leviathan import errors
from leviathan.cli import main as main_lib

SECRETS = flags.DEFINE_string(
  'secrets',
  None,
  'File of NAME=value lines for the environment of the command, as '
  'WANDB_API_KEY=...; goes on no command line.',
)

# A variable in capitals, or a name in any: `--text_key` and `--eos_token` are
# none.
_NAME = (
  r'(?:\b[A-Z][A-Z0-9_]*(?:KEY|TOKEN)|(?i:[\w.-]*'
  r'(?:(?:api|access)[_-]?key|(?:access|auth|hf|wandb)[_-]?token'
  r'|password|secret)[\w.-]*))'
)
# NAME=value or --NAME value, also within a word.
_SECRET = re.compile(rf'{_NAME}=(?=\S)|(?<!\S)--?{_NAME}\s+(?=[^\s-])')


def read(several: bool) -> list[str]:
  """The user's command, for each of the hosts.

  Args:
    several: whether there is more than one process, which must meet.

  Raises:
    ConfigError: there is none, or a secret in it, or it does not say how its
      processes meet and is none that we know.
  """
  words = main_lib.words_after_dashes()
  if found := _SECRET.search(' '.join(words)):
    raise errors.ConfigError(
      f'{found[0].strip()}... is a secret on a command line, where others read '
      'it; write it into a file of your own as NAME=value, and give '
      '--secrets=FILE'
    )
  if not several or any('--coordinator' in word for word in words):
    return words
  if name(words) is None:
    raise errors.ConfigError(
      f'{words[0]} ... is not `leviathan COMMAND`, and more than one process '
      'runs it; say in the command how they meet, as --coordinator=auto'
    )
  if name(words) == 'train':
    words.append('--coordinator=auto')
  return words


def name(words: Sequence[str]) -> str | None:
  """'train' of `leviathan train`, by any path and behind any other program."""
  for program, command in itertools.pairwise(words):
    if pathlib.PurePath(program).name == 'leviathan':
      if command in main_lib.COMMANDS and not program.startswith('-'):
        return command
  return None


def secrets() -> str | None:
  """The file of --secrets, from the root on; None if there is none.

  Raises:
    ConfigError: there is no such file.
  """
  if SECRETS.value is None:
    return None
  file = pathlib.Path(SECRETS.value).expanduser()
  if not file.is_file():
    raise errors.ConfigError(
      f'--secrets={SECRETS.value}: there is no such file; give another path'
    )
  return str(file.resolve())


def config_flags(words: Sequence[str]) -> list[str]:
  """--config and --config.FIELD of a command, as they were given.

  Raises:
    ConfigError: one is written in two words, or there is none.
  """
  found = [w for w in words if re.match(r'--(no)?config\b', w)]
  for word in found:
    if '=' not in word:
      raise errors.ConfigError(
        f'{word} of the command is written without `=`; write {word}=VALUE'
      )
  if not _given(found, '--config'):
    raise errors.ConfigError(
      'the command has no --config; give --config=FILE.py:SCALE'
    )
  return found


def config_file(words: Sequence[str]) -> str | None:
  """The file that --config names, without its scale; None without --config."""
  if not _given(words, '--config'):
    return None
  value = next(w for w in config_flags(words) if w.startswith('--config='))
  return value.removeprefix('--config=').split(':')[0]


def _given(words: Sequence[str], flag: str) -> bool:
  return any(word.split('=')[0] == flag for word in words)
