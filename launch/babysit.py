r"""Runs a command, and again whenever it was preempted (exit code 75).

  python launch/babysit.py -- leviathan train --config=... --workdir=...

Told to stop itself (SIGTERM, Ctrl-C), it passes that on, waits until the run is
saved, and leaves with the command's code. Any other end than 75 is final: a
refusal, or a loss that is not finite, would only come again. --dry_run prints
the command.
"""

from collections.abc import Sequence
import shlex
import signal
import subprocess
import sys
import time

from absl import flags

from leviathan import errors
from leviathan.cli import main as main_lib

_WAIT = flags.DEFINE_float(
  'wait', 10.0, 'Seconds before the next start.', lower_bound=0.0
)
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print the command, and stop.')


def main(argv: Sequence[str]) -> None:
  """Starts the command until its end is final."""
  del argv
  command = main_lib.words_after_dashes()
  if _DRY_RUN.value:
    print(shlex.join(command))
    return
  told: list[int] = []
  process = None

  def pass_on(signum, frame):
    del frame
    told.append(signum)
    if process is not None:
      process.send_signal(signum)

  signal.signal(signal.SIGTERM, pass_on)
  signal.signal(signal.SIGINT, pass_on)
  starts = 0
  while not told:
    process = start(command)
    starts += 1
    code = process.wait()
    print(f'start {starts} ended with exit code {code}', flush=True)
    if code != errors.PreemptedError.exit_code or told:
      sys.exit(code if code >= 0 else 128 - code)
    time.sleep(_WAIT.value)


def start(command: Sequence[str]) -> subprocess.Popen:
  """The command's process, in a group of its own: Ctrl-C comes through us.

  Raises:
    ConfigError: there is no such program.
  """
  try:
    return subprocess.Popen(command, start_new_session=True)
  except OSError as e:
    raise errors.ConfigError(
      f'{command[0]!r} cannot be started ({e.strerror}); give a program after '
      '`--`'
    ) from e


if __name__ == '__main__':
  sys.exit(main_lib.run_module(sys.modules[__name__], sys.argv))
