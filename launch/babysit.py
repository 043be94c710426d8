r"""Runs a command, and again whenever it was preempted.

Which is exit code 75, or an end by SIGTERM: a run that has not begun its first
step has nothing to save.

  python launch/babysit.py -- leviathan train --config=... --workdir=...

Also after a kill (SIGKILL, as of a machine that is out of memory) and where
other hosts were killed or hung (exit code 6, SIGABRT), but at most --tries
times in a row without a new checkpoint in the command's --workdir: what ends
the same way each time wants a person to look, as any other end does.

Told to stop itself (SIGTERM, Ctrl-C), it passes that on, waits until the run is
saved, and leaves with the command's code. --dry_run prints the command.
"""

from collections.abc import Sequence
import itertools
import shlex
import signal
import sys
import time

from absl import flags

from leviathan import errors
from leviathan import rundir
from leviathan import step_folder
from leviathan import storage
from leviathan.cli import main as main_lib

_WAIT = flags.DEFINE_float(
  'wait', 10.0, 'Seconds before the next start.', lower_bound=0.0
)
_TRIES = flags.DEFINE_integer(
  'tries',
  3,
  'Starts in a row that end by a kill, or as other hosts hang, and leave no '
  'new checkpoint.',
  lower_bound=1,
)
# A process that a signal ended has the code that a shell gives it: 128 more.
_PREEMPTED = (errors.PreemptedError.exit_code, 128 + signal.SIGTERM)
# JAX aborts a process whose peers are gone.
_KILLED = (
  errors.StalledError.exit_code,
  128 + signal.SIGABRT,
  128 + signal.SIGKILL,
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
  tries, newest = 0, newest_step(command)
  for starts in itertools.count(1):
    process = main_lib.start(command)
    for signum in early:
      process.send_signal(signum)
    code, process = process.wait(), None
    code = code if code >= 0 else 128 - code
    print(f'start {starts} ended with exit code {code}', flush=True)
    if told or code not in _PREEMPTED + _KILLED:
      sys.exit(code)
    before, newest = newest, newest_step(command) or newest
    tries = tries + 1 if code in _KILLED and newest == before else 0
    if tries == _TRIES.value:
      print(f'{tries} in a row left no new checkpoint: see why', flush=True)
      sys.exit(code)
    until = time.monotonic() + _WAIT.value
    while not told and time.monotonic() < until:
      time.sleep(0.1)
    if told:
      sys.exit(code)


def newest_step(command: Sequence[str]) -> int | None:
  """Of the checkpoints in a command's --workdir; None if none is seen."""
  workdir = None
  for word, following in zip(command, [*command[1:], ''], strict=True):
    flag, equals, value = word.partition('=')
    if flag == '--workdir':
      workdir = value if equals else following
  if not workdir:
    return None
  try:
    folder = rundir.open_(workdir).checkpoint_dir
    return max(step_folder.steps(folder), default=None)
  except Exception as e:  # Whatever it is must not hide how the command ended.
    print(f'no progress is seen in {workdir}: {storage.said(e)}', flush=True)
    return None


if __name__ == '__main__':
  sys.exit(main_lib.run_module(sys.modules[__name__], sys.argv))
