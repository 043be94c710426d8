r"""Runs a command on TPU VMs of Google Cloud: makes, installs, starts, ends.

  python launch/tpu_vm.py --name=lev --accelerator=v5litepod-64 \
      --project=P --zone=us-west4-a --spot -- leviathan train \
      --config=configs/lev.py:1p2b --workdir=gs://BUCKET/runs/lev

compiles the step for that slice, asks for the slice as a queued resource unless
it is there, waits until it is ACTIVE, installs a wheel of this checkout with
`configs/` on all hosts, and starts the command on all of them, each under
launch/babysit.py. --action does one of these alone, or what comes later:

  create  install  start       a part of the above
  babysit                      all of it, and again whenever the slice is gone
  logs  status  stop  delete   `stop` saves the run; `delete` ends the cost

--dry_run prints the commands. From an empty project on: docs/launch_tpu_vm.md.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import pathlib
import re
import shlex
import sys
import tempfile
import time

from absl import flags

from leviathan import errors
from leviathan.cli import job_command
from leviathan.cli import launching
from leviathan.cli import main as main_lib
from leviathan.cli import slices as slices_lib
from leviathan.cli import tpu_vm_scripts as scripts

_NAME = flags.DEFINE_string(
  'name', None, 'Of the queued resource and of its folder.', required=True
)
_PROJECT = flags.DEFINE_string('project', None, 'Pays for it.', required=True)
_ZONE = flags.DEFINE_string('zone', None, 'As us-west4-a.', required=True)
_SPOT = flags.DEFINE_bool('spot', False, 'Cheaper, and may be taken away.')
_RESERVED = flags.DEFINE_bool('reserved', False, 'Out of a reservation.')
_ACCOUNT = flags.DEFINE_string(
  'service_account', None, 'As which the hosts reach the bucket.'
)
_EXTRAS = flags.DEFINE_string('extras', 'tpu', 'Installed, as tpu,wandb.')
_POLL = flags.DEFINE_float(
  'poll', 60.0, 'Seconds between two looks.', lower_bound=0.0
)

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What a wheel is made of.
_SOURCES = ('setup.py', 'README.md', 'LICENSE', 'leviathan', 'configs')
# Of a queued resource; after these it never becomes ACTIVE again. What has
# FAILED was never had: there is no quota, or no such kind in the zone.
_TAKEN = ('SUSPENDED', 'PREEMPTED')
_DEAD = (*_TAKEN, 'FAILED')
# In a row: looks that fail, as the service does, or ssh to a host that goes
# away; and requests that become FAILED.
_FAILURES = 5


def main(argv: Sequence[str]) -> None:
  """Does what --action says."""
  del argv
  if not re.fullmatch(r'[a-z]([-a-z0-9]{0,58}[a-z0-9])?', _NAME.value):
    raise errors.ConfigError(
      f'--name={_NAME.value} is no name of a resource; give at most 60 small '
      'letters, digits and dashes, a letter first'
    )
  if _SPOT.value and _RESERVED.value:
    raise errors.ConfigError('--spot and --reserved exclude one another')
  job_command.secrets()  # Refused before anything is paid for.
  _ACTIONS[_ACTION.value]()


def run() -> None:
  """All from nothing to a running command."""
  _check()
  create()
  install()
  start()


def _check() -> None:
  """Refuses what cannot run there, the slowest check last."""
  slices = slices_lib.of_flags()
  _create_words(slices)
  _files()
  slices_lib.check_fits(slices, _words(), ROOT)


def create() -> None:
  """Asks for the slices unless they are there, and waits for them."""
  slices = slices_lib.of_flags()
  words = _create_words(slices)
  if launching.DRY_RUN.value:
    launching.run(_describe())
    launching.say('if there is none:')
    launching.run(words)
    launching.say('the first command again and again, until it says ACTIVE')
    return
  while (state := _state()) != 'ACTIVE':
    if state in _DEAD:
      raise errors.ConfigError(
        f'--name={_NAME.value} is {state}, which is final{_why(state)}; give '
        '--action=delete and start again, or --action=babysit, which does both'
      )
    _ask_for(slices, state)
    time.sleep(_POLL.value)


def _ask_for(slices: slices_lib.Slices, state: str | None) -> None:
  """Asks for the slices if there are none; else says what they are."""
  if state is None:
    launching.run(_create_words(slices))
  else:
    launching.say(f'{_NAME.value} is {state}')


def install() -> None:
  """Brings this checkout to all hosts where no command runs."""
  with _archive() as archive:
    _install(archive)


@contextlib.contextmanager
def _archive() -> Iterator[str]:
  """A file that holds what goes to the hosts: a wheel, configs, babysitter."""
  with contextlib.ExitStack() as stack:
    folder = 'DIRECTORY'
    if launching.DRY_RUN.value:
      launching.say('DIRECTORY is a new one, and is deleted in the end')
    else:
      # In a place that nobody clears while the babysitter runs, for weeks.
      (ROOT / 'build').mkdir(exist_ok=True)
      folder = stack.enter_context(
        tempfile.TemporaryDirectory(dir=ROOT / 'build')
      )
    # A build leaves behind in its folder what the next one would pack too.
    launching.run(
      ['cp', '-R', *(f'{ROOT / name}' for name in _SOURCES), folder]
    )
    launching.run(
      [sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps',
       f'--wheel-dir={folder}/wheel', folder]
    )  # fmt: skip
    archive = f'{folder}/{_NAME.value}.tar.gz'
    launching.run(
      ['tar', '--create', '--gzip', f'--file={archive}',
       '--exclude=__pycache__', f'--directory={folder}/wheel', '.',
       f'--directory={ROOT}', *_files()]
    )  # fmt: skip
    yield archive


def _install(archive: str) -> None:
  name = _NAME.value
  _copy(archive, f'{name}.tar.gz')
  if secrets := job_command.secrets():
    # Empty first, so that nobody reads it on the way.
    _ssh('install -m 600 /dev/null "$HOME/NAME.env"')
    _copy(secrets, f'{name}.env')
  _ssh(scripts.INSTALL)


def start() -> None:
  """Starts the command where it does not run."""
  _ssh(scripts.START)
  again = _again()
  launching.say(f'logs: {again} --action=logs')
  launching.say(f'stop, saved, while the hosts stay: {again} --action=stop')
  launching.say(f'delete, which ends the cost: {again} --action=delete')
  slices = slices_lib.of_flags()
  launching.say(
    f'{slices.count * slices.chips} chips are paid for by the hour from ACTIVE '
    'until deleted, also while nothing runs on them'
  )


def babysit() -> None:
  """Runs the command until its end is final, on new slices if need be."""
  _check()
  if launching.DRY_RUN.value:
    create()
    install()
    start()
    launching.say(f'then every {_POLL.value:g} s:')
    _ssh(scripts.STATUS)
    launching.say(f'and if it is {" or ".join(_TAKEN)}, then all of it again:')
    delete()
    return
  with _archive() as archive:
    _watch(archive)


def _watch(archive: str) -> None:
  """Looks until the command's end is final, and leaves with its code."""
  failures, refused, stopped = 0, 0, False
  while True:
    code = None
    try:
      state = _state()
      refused = 0 if state == 'ACTIVE' else refused + (state == 'FAILED')
      code = _look(state, archive)
      failures = 0
    except errors.ConfigError as e:
      failures += 1
      if failures == _FAILURES:
        raise
      launching.say(f'{e}; once more in {_POLL.value:g} s')
    if refused == _FAILURES:
      raise errors.ConfigError(
        f'--name={_NAME.value} was FAILED {refused} times in a row, see why '
        'above; ask for quota, or give another --accelerator or --zone'
      )
    # A slice that is being taken away tells the command to stop first.
    if code is not None and (stopped or code not in (75, 143)):
      launching.say(f'the command ended with exit code {code}; {_again()} '
                    '--action=delete ends the cost')  # fmt: skip
      sys.exit(code)
    stopped = code is not None
    time.sleep(_POLL.value)


def _look(state: str | None, archive: str) -> int | None:
  """Does what is missing; the exit code once all hosts have ended."""
  if state in _DEAD:
    launching.say(f'{_NAME.value} is {state}{_why(state)}')
    delete()
    return None
  if state != 'ACTIVE':
    _ask_for(slices_lib.of_flags(), state)
    return None
  said = launching.answer(_ssh_words(scripts.STATUS))
  print(said, flush=True)
  hosts = re.findall(r'^leviathan: (.*)$', said, re.MULTILINE)
  if 'bare' in hosts:
    _install(archive)
  if {'bare', 'absent'} & set(hosts):
    start()
  elif hosts and all(host.startswith('ended') for host in hosts):
    return max(int(host.split()[1]) for host in hosts)
  return None


def logs() -> None:
  """Follows what the first host prints."""
  launching.run(
    _ssh_words('tail --lines=100 --follow=name "$HOME/NAME/log"', '0')
  )


def status() -> None:
  """What the service and each host say."""
  launching.run(_describe())
  _ssh(scripts.STATUS)


def stop() -> None:
  """Tells the command to save and to end; the hosts stay, and their cost."""
  _ssh(scripts.STOP)


def delete() -> None:
  """Deletes the slices with all that is on them."""
  launching.run(_gcloud('delete', _NAME.value, '--force'))


_ACTIONS = {
  action.__name__: action
  for action in (
    run, create, install, start, babysit, logs, status, stop, delete
  )
}  # fmt: skip
_ACTION = flags.DEFINE_enum('action', 'run', list(_ACTIONS), 'What to do.')


def _words() -> list[str]:
  """The command of each host."""
  return job_command.read(slices_lib.of_flags().several_hosts)


def _files() -> list[str]:
  """What goes with the wheel: all configs, and the command's own."""
  files = ['configs', 'launch/babysit.py']
  words = _words() if '--' in sys.argv else []
  if name := job_command.config_file(words):
    file = pathlib.PurePath(name)
    if file.is_absolute() or not (ROOT / file).is_file():
      raise errors.ConfigError(
        f'--config={file} is no file of the checkout {ROOT}; put it there, and '
        'give its path from there'
      )
    if file.parts[0] != 'configs':
      files.append(str(file))
  return files


def _create_words(slices: slices_lib.Slices) -> list[str]:
  """The request for the slices.

  Of several, the service tells each host which one it is on: JAX and libtpu
  read MEGASCALE_COORDINATOR_ADDRESS, _NUM_SLICES and _SLICE_ID from its
  metadata (jax/_src/clusters/cloud_tpu_cluster.py), so none is set here.
  """
  kind = slices.kind
  if kind.runtime is None:
    raise errors.ConfigError(
      f'--accelerator={slices.accelerator} is no TPU VM; use launch/xpk.py'
    )
  nodes = [f'--node-id={_NAME.value}']
  if slices.count > 1:
    nodes = [f'--node-count={slices.count}', f'--node-prefix={_NAME.value}']
  more = ['--spot'] * _SPOT.value + ['--reserved'] * _RESERVED.value
  if _ACCOUNT.value:
    more.append(f'--service-account={_ACCOUNT.value}')
  return _gcloud(
    'create', _NAME.value, f'--accelerator-type={slices.accelerator}',
    f'--runtime-version={kind.runtime}', *nodes, *more,
  )  # fmt: skip


def _state() -> str | None:
  """Of the queued resource; None if there is none."""
  done = launching.ask(_describe())
  if done.returncode and 'NOT_FOUND' in done.stderr:
    return None
  if done.returncode:
    said = ' '.join(done.stderr.split())
    raise errors.ConfigError(f'gcloud does not tell of {_NAME.value} ({said})')
  return done.stdout.strip()


def _why(state: str) -> str:
  """What the service says of a request that FAILED, in brackets."""
  if state != 'FAILED':
    return ''
  said = launching.ask(_describe('failedData.error.message')).stdout
  return f' ({" ".join(said.split()) or "for no reason given"})'


def _describe(field: str = 'state') -> list[str]:
  return _gcloud('describe', _NAME.value, f'--format=value(state.{field})')


def _gcloud(verb: str, *words: str) -> list[str]:
  """A command on queued resources; --quiet: nobody is there to be asked."""
  return [
    'gcloud', 'compute', 'tpus', 'queued-resources', verb, *words,
    f'--project={_PROJECT.value}', f'--zone={_ZONE.value}', '--quiet',
  ]  # fmt: skip


def _ssh(script: str) -> None:
  """Runs a script of bash on all hosts."""
  launching.run(_ssh_words(script))


def _ssh_words(script: str, host: str = 'all') -> list[str]:
  values = {'NAME': _NAME.value, 'EXTRAS': _EXTRAS.value}
  if 'COMMAND' in script:
    values['COMMAND'] = shlex.join(_words())
  # In one pass: the command may hold these words too.
  script = re.sub('|'.join(values), lambda found: values[found[0]], script)
  return _gcloud(
    'ssh', _NAME.value, f'--worker={host}', f'--node={host}',
    f'--command=bash -c {shlex.quote(script)}',
  )  # fmt: skip


def _copy(file: str, to: str) -> None:
  """Copies a file into the home of all hosts."""
  launching.run(
    _gcloud('scp', file, f'{_NAME.value}:{to}', '--worker=all', '--node=all')
  )


def _again() -> str:
  """This launcher, for another action."""
  return shlex.join(
    ['python', 'launch/tpu_vm.py', f'--name={_NAME.value}',
     f'--project={_PROJECT.value}', f'--zone={_ZONE.value}']
  )  # fmt: skip


if __name__ == '__main__':
  sys.exit(main_lib.run_module(sys.modules[__name__], sys.argv))
