r"""Runs a command as several processes of this machine, as a pod would.

  python launch/local.py --processes=2 --devices=4 -- leviathan train \
      --config=configs/lev.py:smoke --workdir=runs/lev

Each process gets --coordinator, --num_processes and --process_id, and lines
that bear its number; --devices is how many virtual CPU devices it sees: to see
how a run behaves on several hosts. A signal goes to all. The exit code is the
first that is not 0. --dry_run prints the commands.
"""

from collections.abc import Sequence
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading

from absl import flags

from leviathan.cli import main as main_lib

_PROCESSES = flags.DEFINE_integer('processes', 2, 'How many.', lower_bound=1)
_DEVICES = flags.DEFINE_integer(
  'devices', None, 'Virtual CPU devices of each process.', lower_bound=1
)
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Print the commands, and stop.')


def main(argv: Sequence[str]) -> None:
  """Starts the processes, and waits for them."""
  del argv
  words = main_lib.words_after_dashes()
  port = free_port()
  count = _PROCESSES.value
  commands = [
    [
      *words,
      f'--coordinator=localhost:{port}',
      f'--num_processes={count}',
      f'--process_id={i}',
    ]
    for i in range(count)
  ]
  if _DRY_RUN.value:
    for command in commands:
      added = [f'{k}={shlex.quote(v)}' for k, v in environment().items()]
      print(' '.join([*added, shlex.join(command)]))
    return
  processes: list[subprocess.Popen] = []
  told: list[int] = []

  def pass_on(signum, frame):
    del frame
    told.append(signum)
    for process in processes:
      process.send_signal(signum)

  signal.signal(signal.SIGTERM, pass_on)
  signal.signal(signal.SIGINT, pass_on)
  for command in commands:
    if not told:
      processes.append(
        main_lib.start(
          command,
          env=os.environ | environment(),
          stdout=subprocess.PIPE,
          stderr=subprocess.STDOUT,
          text=True,
        )
      )
  threads = [
    threading.Thread(target=_relay, args=(i, process.stdout))
    for i, process in enumerate(processes)
  ]
  for thread in threads:
    thread.start()
  codes = [process.wait() for process in processes]
  for thread in threads:
    thread.join()
  bad = [code for code in codes if code]
  sys.exit(0 if not bad else bad[0] if bad[0] > 0 else 128 - bad[0])


def environment() -> dict[str, str]:
  """What the processes see beside our own environment."""
  if _DEVICES.value is None:
    return {}
  flag = f'--xla_force_host_platform_device_count={_DEVICES.value}'
  return {
    'JAX_PLATFORMS': 'cpu',
    'XLA_FLAGS': f'{os.environ.get("XLA_FLAGS", "")} {flag}'.strip(),
  }


def free_port() -> int:
  """A port at which nobody listens."""
  with socket.socket() as s:
    s.bind(('localhost', 0))
    return s.getsockname()[1]


def _relay(process: int, lines) -> None:
  for line in lines:
    print(f'[{process}] {line}', end='', flush=True)


if __name__ == '__main__':
  sys.exit(main_lib.run_module(sys.modules[__name__], sys.argv))
