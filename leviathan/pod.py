"""Several processes that run one program: starting, agreeing, stopping.

Each process runs the same command on its own machine and sees its own devices;
JAX makes one mesh of them all. What one process cannot do, none may go on
without: the others would wait for it in the next collective.
"""

from collections.abc import Callable
import dataclasses
import hashlib
import os
import pathlib
import secrets
import signal
import sys
import threading
from typing import Any
from typing import TypeVar

from etils import epath
import jax
from jax.experimental import multihost_utils
import numpy as np

from leviathan import config as config_lib
from leviathan import errors
from leviathan import storage

T = TypeVar('T')

AUTO = 'auto'
# To wait for the other processes; JAX aborts the process somewhat later.
START_SECONDS = 90


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodConfig:
  """Where the processes meet; see `leviathan.cli.pod_flags` for each field."""

  coordinator: str | None = None  # None: one process; 'auto': JAX finds all
  num_processes: int | None = None
  process_id: int | None = None

  def __post_init__(self):
    by_hand = self.coordinator not in (None, AUTO)
    given = [n is not None for n in (self.num_processes, self.process_id)]
    if by_hand and not all(given):
      raise errors.ConfigError(
        f'--coordinator={self.coordinator} needs --num_processes and '
        '--process_id; only --coordinator=auto finds them by itself'
      )
    if any(given) and not by_hand:
      raise errors.ConfigError(
        '--num_processes and --process_id need --coordinator=HOST:PORT, the '
        'address at which process 0 can be reached'
      )
    if self.num_processes is not None and self.process_id is not None:
      if not 0 <= self.process_id < self.num_processes:
        raise errors.ConfigError(
          f'--process_id={self.process_id} must be at least 0 and below '
          f'--num_processes={self.num_processes}'
        )


def start(config: PodConfig) -> None:
  """Meets the other processes; nothing may have asked for devices before.

  Raises:
    ConfigError: JAX does not find a cluster here, or it is a part of one that
      was not asked for.
  """
  if config.coordinator is None:
    workers = os.environ.get('TPU_WORKER_HOSTNAMES', '').split(',')
    if len(workers) > 1:
      raise errors.ConfigError(
        f'this machine is one of {len(workers)} of a TPU slice, which compute '
        'together or not at all; give --coordinator=auto and start the same '
        'command on all of them'
      )
    tasks = int(os.environ.get('SLURM_STEP_NUM_TASKS', 1))
    if tasks > 1:
      raise errors.ConfigError(
        f'this process is one of {tasks} of a step of Slurm, and each would '
        'train the same; give --coordinator=auto, or srun --ntasks=1'
      )
    return
  known: dict[str, Any] = {}
  if config.coordinator != AUTO:
    known = dataclasses.asdict(config)
    known['coordinator_address'] = known.pop('coordinator')
    known['cluster_detection_method'] = 'deactivate'
  # JAX aborts the process without a word that can be caught; a watchdog that
  # knows who is missing speaks before this.
  late = threading.Timer(START_SECONDS + 10, _leave_alone)
  late.daemon = True
  late.start()
  try:
    jax.distributed.initialize(
      **known, initialization_timeout=START_SECONDS + 20
    )
  except ValueError as e:
    raise errors.ConfigError(
      f'--coordinator={config.coordinator}: {e}; on a TPU pod, Slurm or Open '
      'MPI `auto` finds the processes, elsewhere give --coordinator=HOST:PORT '
      '--num_processes=N --process_id=I'
    ) from e
  finally:
    late.cancel()


def _leave_alone() -> None:
  """Ends a process that has met nobody."""
  error = errors.StalledError(
    f'not all processes came within {START_SECONDS} s; start the same command '
    'on all hosts'
  )
  print(f'error: {error}', file=sys.stderr, flush=True)
  os._exit(error.exit_code)


def check_platform(wanted: str) -> None:
  """Raises ConfigError unless JAX found the platform that was asked for.

  JAX goes on on the CPU when an accelerator cannot be opened.
  """
  found = jax.default_backend()
  if wanted in (AUTO, found):
    return
  remedy = 'set JAX_PLATFORMS=cpu'
  if wanted != 'cpu':
    extra = 'cuda' if wanted == 'gpu' else wanted
    remedy = (
      'look for another process that holds the devices, and for the extra '
      f'{extra!r} of the installation'
    )
  raise errors.ConfigError(
    f'config.train.platform={wanted!r}, but JAX found {found!r} '
    f'({jax.device_count()} x {jax.devices()[0].device_kind}); {remedy}'
  )


def is_first() -> bool:
  """Whether this process writes for all."""
  return jax.process_index() == 0


def gather(text: str) -> list[str]:
  """What each process says, in the order of the processes; all must call it."""
  if jax.process_count() == 1:
    return [text]
  mine = np.frombuffer(text.encode(), np.uint8)
  lengths = multihost_utils.process_allgather(np.int32(len(mine)))
  padded = np.zeros(max(1, int(lengths.max())), np.uint8)
  padded[: len(mine)] = mine
  rows = multihost_utils.process_allgather(padded)
  return [
    row[:length].tobytes().decode()
    for row, length in zip(rows, lengths, strict=True)
  ]


def of_first(value: int) -> int:
  """Process 0's value, in all of them: hosts see a disk a moment apart."""
  if jax.process_count() == 1:
    return value
  return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def all_agree(value: bool) -> bool:
  """Whether a value is true in all of them."""
  if jax.process_count() == 1:
    return value
  return bool(multihost_utils.process_allgather(np.array(value)).all())


def together(work: Callable[[], T]) -> T:
  """work() in every process; what one cannot do, all refuse.

  Raises:
    UserError: what it raised, here or in the first process where it failed;
      what a disk or a bucket refuses is a CheckpointError.
  """
  result: Any = None
  failed = None
  try:
    result = work()
  except errors.UserError as e:
    failed = e
  except Exception as e:
    if not storage.is_refusal(e):
      raise
    where = getattr(e, 'filename', None) or 'the disk or bucket'
    failed = errors.CheckpointError(
      f'{where}: {storage.said(e)}; mend that, or give another path'
    )
  if jax.process_count() == 1:
    if failed:
      raise failed
    return result
  said = gather(f'{failed.exit_code} {failed}' if failed else '')
  if failed:
    raise failed
  for process, message in enumerate(said):
    if message:
      code, _, text = message.partition(' ')
      raise errors.of_exit_code(int(code))(f'process {process}: {text}')
  return result


def first(work: Callable[[], object]) -> None:
  """work() in process 0 alone, while the others wait for it."""
  together(lambda: work() if is_first() else None)


def check_alike(values: dict[str, Any]) -> None:
  """Raises ConfigError if a value differs between processes, and names it.

  Args:
    values: flat, of what JSON holds; the sources of this package are added.
  """
  mine = {k: repr(v) for k, v in values.items()} | {'leviathan': _sources()}
  text = '\n'.join(f'{k}\t{v}' for k, v in mine.items())
  everyone = [
    dict(line.split('\t', 1) for line in said.split('\n'))
    for said in gather(text)
  ]
  for process, theirs in enumerate(everyone):
    for field, (a, b) in config_lib.differences(everyone[0], theirs).items():
      raise errors.ConfigError(
        f'{field} is {a} in process 0 and {b} in process {process}; start the '
        'same command, of the same version, on all hosts'
      )


def _sources() -> str:
  """A hash of this package's code, which must not differ between hosts."""
  root = pathlib.Path(__file__).parent
  digest = hashlib.sha256()
  for path in sorted(root.rglob('*.py')):
    digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
  return digest.hexdigest()[:12]


def check_shared(directory: epath.Path) -> None:
  """Raises ConfigError unless all processes see one and the same directory."""
  if jax.process_count() == 1:
    return
  nonce = gather(secrets.token_hex(8))[0]
  file = directory / f'.shared-{nonce}'

  def write():
    directory.mkdir(parents=True, exist_ok=True)
    file.write_text(nonce)

  first(write)
  seen = gather('yes' if file.exists() else '')
  first(lambda: file.unlink(missing_ok=True))
  blind = [str(process) for process, word in enumerate(seen) if not word]
  if blind:
    raise errors.ConfigError(
      f'--workdir={directory} is not shared between hosts: what process 0 '
      f'writes there is not seen by process {", ".join(blind)}; give a '
      'directory on a file system that all of them mount, or in a bucket'
    )


class Stop:
  """Whether to stop: asked after each step and each batch of an evaluation.

  SIGTERM, which comes before a preemption, and Ctrl-C are noticed there: in the
  middle of a save they would break it. A second Ctrl-C ends the process at
  once, which a run survives as it does a kill. Of several processes, a signal
  to one stops all, after the same step.
  """

  def __init__(self, say: Callable[[str], None]):
    """To be made after `start`, whose handler of SIGTERM tells all processes.

    Args:
      say: prints a line for the person who watches.
    """
    self._say = say
    self._signal: int | None = None
    self._questions = 0
    self._agreed = jax.process_count() > 1
    signal.signal(signal.SIGINT, self._notice)
    if not self._agreed:
      signal.signal(signal.SIGTERM, self._notice)

  def _notice(self, signum, frame):
    del frame
    if self._signal == signum == signal.SIGINT:
      os._exit(130)
    self._signal = signum
    if self._agreed:
      os.kill(os.getpid(), signal.SIGTERM)  # Which JAX hands on to the others.
    again = '; again to stop at once' if signum == signal.SIGINT else ''
    self._say(f'stopping after this step{again}')

  def __call__(self) -> bool:
    """All processes must ask equally often; all get the same answer."""
    self._questions += 1
    if self._agreed:
      return multihost_utils.reached_preemption_sync_point(self._questions)
    return self._signal is not None

  def reason(self, saved: str) -> BaseException:
    """What to raise once the run is saved, which `saved` says."""
    if self._signal == signal.SIGINT:
      return KeyboardInterrupt()
    return errors.PreemptedError(f'{saved}; run the same command again')
