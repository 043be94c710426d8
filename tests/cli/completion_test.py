"""What bash offers is what there is."""

import pathlib
import re
import shlex
import subprocess

import pytest

from leviathan.cli import completion
from leviathan.cli import main

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope='module')
def offers(leviathan):
  """What bash offers for the last of some words."""
  code, script, stderr = leviathan('completion')
  assert code == 0, stderr

  def ask(*words):
    program = (
      f'{script}\nCOMP_WORDS=({shlex.join(words)})\n'
      f'COMP_CWORD={len(words) - 1}\ncompopt() {{ :; }}\n'
      '_leviathan\nprintf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
      ['bash', '-uc', program], capture_output=True, text=True, check=True
    )
    return done.stdout.split()

  return ask


def test_commands_by_their_first_letters(offers):
  assert offers('leviathan', 'tr') == ['train']
  assert offers('leviathan', '') == list(main.COMMANDS)


def test_the_flags_of_the_command_alone(offers):
  assert offers('leviathan', 'train', '--co') == ['--config=', '--coordinator=']
  assert offers(
    'leviathan', 'order', '--config=configs/lev.py:smoke', '--m'
  ) == ['--method=']
  assert offers('leviathan', 'study', '--dry') == ['--dry_run']


def test_what_is_no_flag_is_left_to_the_names_of_files(offers):
  assert offers('leviathan', 'train', 'configs/l') == []


@pytest.mark.parametrize('command', main.COMMANDS)
def test_flags_read_from_the_source_are_those_of_help(leviathan, command):
  _, stdout, _ = leviathan(command, '--help')
  shown = re.findall(r'^  --(?:\[no\])?(\w+):', stdout, flags=re.MULTILINE)
  read = [flag.strip('-=') for flag in completion.flags_of(command)]
  assert sorted(read) == sorted(shown)


@pytest.mark.parametrize('command', main.COMMANDS)
def test_the_example_of_a_command_has_flags_that_it_has(command):
  words = shlex.split(main.COMMANDS[command].example)
  flags = [word.partition('=')[0] for word in words if word.startswith('-')]
  known = {flag.rstrip('=') for flag in completion.flags_of(command)}
  assert set(flags) <= known
