r"""Runs a command, and again whenever it was preempted.

Which is exit code 75, or an end by SIGTERM: a run that has not begun its first
step has nothing to save.

  python launch/babysit.py -- leviathan train --config=... --workdir=...

Told to stop itself (SIGTERM, Ctrl-C), it passes that on, waits until the run is
saved, and leaves with the command's code. Any other end is final: it wants
a person to look. --dry_run prints the command.
"""

from collections.abc import Sequence
import itertools
import shlex
import signal
import sys
import time

from absl import flags

from leviathan import errors
from leviathan.cli import main as main_lib

_WAIT = flags.DEFINE_float(
  'wait', 10.0, 'Seconds before the next start.', lower_bound=0.0
)
_AGAIN = (errors.PreemptedError.exit_code, -signal.SIGTERM)
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print the command, and stop.')


def main(argv: Sequence[str]) -> None:
  """Starts the command until its end is final."""
  del argv
  command = main_lib.words_after_dashes()
  if _DRY_RUN.value:
    print(shlex.join(command))
    return
  told: list[int] = []
  early: list[int] = []  # Told while there was no process.
  process = None

  def pass_on(signum, frame):
    del frame
    told.append(signum)
    if process is None:
      early.append(signum)
    else:
      process.send_signal(signum)

  signal.signal(signal.SIGTERM, pass_on)
  signal.signal(signal.SIGINT, pass_on)
  for starts in itertools.count(1):
    process = main_lib.start(command)
    for signum in early:
      process.send_signal(signum)
    code, process = process.wait(), None
    print(f'start {starts} ended with exit code {code}', flush=True)
    if code in _AGAIN:
      until = time.monotonic() + _WAIT.value
      while not told and time.monotonic() < until:
        time.sleep(0.1)
    if told or code not in _AGAIN:
      sys.exit(code if code >= 0 else 128 - code)


if __name__ == '__main__':
  sys.exit(main_lib.run_module(sys.modules[__name__], sys.argv))
