"""What the scripts of launch/ that submit jobs have in common."""

from collections.abc import Sequence
import shlex
import subprocess

from absl import flags

from leviathan import errors

DRY_RUN = flags.DEFINE_bool(
  'dry_run', False, 'Print what would be run or submitted, and stop.'
)


def say(line: str) -> None:
  """Prints a line for the person; among dry commands it is a comment."""
  print(f'# {line}' if DRY_RUN.value else line, flush=True)


def run(words: Sequence[str], **options) -> None:
  """Runs a command, or prints it.

  Args:
    words: of the command.
    **options: of subprocess.run.

  Raises:
    ConfigError: it cannot be started, or fails.
  """
  print(shlex.join(words), flush=True)
  if DRY_RUN.value:
    return
  if code := _finish(words, **options).returncode:
    raise errors.ConfigError(
      f'{_short(words)} ended with exit code {code}; see what it says above, '
      'and --dry_run for the command'
    )


def ask(words: Sequence[str], **options) -> subprocess.CompletedProcess[str]:
  """Runs a command quietly, and returns what it says and its exit code."""
  return _finish(words, capture_output=True, text=True, **options)


def answer(words: Sequence[str], **options) -> str:
  """What a command prints; ConfigError if it fails."""
  done = ask(words, **options)
  if done.returncode:
    said = ' '.join(done.stderr.split())
    raise errors.ConfigError(f'{_short(words)} refuses ({said}); see --dry_run')
  return done.stdout.strip()


def sbatch(script: str) -> str:
  """Hands a script to Slurm; returns the id of the job."""
  # The cluster may follow the id.
  return answer(['sbatch', '--parsable'], input=script).split(';')[0]


def sbatch_script(options: dict[str, str], body: str) -> str:
  """What sbatch runs: its options, then commands of bash."""
  header = [f'#SBATCH --{k}={shlex.quote(v)}' for k, v in options.items()]
  return '\n'.join(['#!/bin/bash', *header, body, ''])


def _finish(words: Sequence[str], **options) -> subprocess.CompletedProcess:
  try:
    return subprocess.run(words, **options)
  except OSError as e:
    raise errors.ConfigError(
      f'there is no {words[0]} here ({e.strerror}); start from where it is, or '
      'give --dry_run'
    ) from e


def _short(words: Sequence[str]) -> str:
  """A command's name and what it does, without its flags."""
  plain = [word for word in words if not word.startswith('-')]
  return ' '.join(plain[:5])
