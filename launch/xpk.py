r"""Submits a command to a GKE cluster with TPUs, through XPK.

  python launch/xpk.py --name=lev --accelerator=v5litepod-64 \
      --project=P --zone=us-west4-a --cluster=C \
      --image=us-west4-docker.pkg.dev/P/R/leviathan:1 -- leviathan train \
      --config=configs/lev.py:1p2b --workdir=gs://BUCKET/runs/lev

compiles the step for that slice, then hands the command to `xpk workload
create` (XPK 1.16.0). --image is made with launch/Dockerfile and used as it is;
on a --base_image made with it XPK lays this checkout, and the command runs from
there. The cluster starts all hosts again after a preemption (exit code 75), a
kill, or where one hangs (6), --max_restarts times.

--action=logs, status or delete comes later. --dry_run prints the commands. From
an empty project on: docs/launch_xpk.md.
"""

from collections.abc import Sequence
import pathlib
import re
import shlex
import sys

from absl import flags

from leviathan import errors
from leviathan.cli import job_command
from leviathan.cli import launching
from leviathan.cli import main as main_lib
from leviathan.cli import slices as slices_lib

_NAME = flags.DEFINE_string('name', None, 'Of the workload.', required=True)
_PROJECT = flags.DEFINE_string('project', None, 'Pays for it.', required=True)
_ZONE = flags.DEFINE_string('zone', None, 'Of the cluster.', required=True)
_CLUSTER = flags.DEFINE_string('cluster', None, 'Of GKE.', required=True)
_IMAGE = flags.DEFINE_string('image', None, 'Runs as it is.')
_BASE_IMAGE = flags.DEFINE_string(
  'base_image', None, 'Gets this checkout on top; instead of --image.'
)
_RESTARTS = flags.DEFINE_integer(
  'max_restarts', 50, 'Of all hosts together.', lower_bound=0
)

ROOT = pathlib.Path(__file__).resolve().parents[1]
# The run is saved, or others were killed; XPK itself adds 127 to 255.
_AGAIN = f'{errors.StalledError.exit_code},{errors.PreemptedError.exit_code}'
# From SIGTERM to SIGKILL: a step, and a save.
_GRACE_SECONDS = 120


def main(argv: Sequence[str]) -> None:
  """Does what --action says."""
  del argv
  if not re.fullmatch(r'[a-z]([-a-z0-9]{0,38}[a-z0-9])?', _NAME.value):
    raise errors.ConfigError(
      f'--name={_NAME.value} is no name of a workload; give at most 40 small '
      'letters, digits and dashes, a letter first'
    )
  _ACTIONS[_ACTION.value]()


def run() -> None:
  """Compiles, and submits."""
  slices = slices_lib.of_flags()
  words = job_command.read(slices.several_pods)
  if bool(_IMAGE.value) == bool(_BASE_IMAGE.value):
    raise errors.ConfigError(
      'give either --image or --base_image, made with launch/Dockerfile'
    )
  slices_lib.check_fits(slices, words, ROOT)
  image = [f'--docker-image={_IMAGE.value}']
  if _BASE_IMAGE.value:
    _check_comes_along(words)
    image = [
      f'--base-docker-image={_BASE_IMAGE.value}',
      f'--script-dir={ROOT}',
    ]
  secrets = _secrets()
  launching.run(
    _xpk(
      'create', f'--workload={_NAME.value}',
      f'--tpu-type={slices.accelerator}', f'--num-slices={slices.count}',
      *image, *([f'--env-file={secrets}'] if secrets else []),
      f'--max-restarts={_RESTARTS.value}', f'--restart-on-exit-codes={_AGAIN}',
      f'--termination-grace-period-seconds={_GRACE_SECONDS}',
      f'--command={container_command(words)}',
    )
  )  # fmt: skip
  again = shlex.join(
    ['python', 'launch/xpk.py', f'--name={_NAME.value}',
     f'--project={_PROJECT.value}', f'--zone={_ZONE.value}',
     f'--cluster={_CLUSTER.value}']
  )  # fmt: skip
  launching.say(f'logs: {again} --action=logs')
  launching.say(f'stop, saved, and delete: {again} --action=delete')
  launching.say(
    'the nodes are paid for by the hour of a chip while they are in the '
    'cluster, also when no workload is on them'
  )


def _secrets() -> str | None:
  """The file of --secrets, of which XPK takes each line as it stands.

  Raises:
    ConfigError: a shell would not.
  """
  file = job_command.secrets()
  text = pathlib.Path(file).read_text() if file else ''
  for number, line in enumerate(text.splitlines(), start=1):
    if line.strip() and not re.match(r'#|\w+=(?![\'"])', line):
      raise errors.ConfigError(
        f'--secrets={file}: line {number} is not NAME=value without quotes, '
        'which XPK would keep as a part of the value; leave them out'
      )
  return file


def _check_comes_along(words: Sequence[str]) -> None:
  """Raises ConfigError if .dockerignore keeps the command's config out."""
  file = job_command.config_file(words)
  if file and pathlib.PurePath(file).parts[0] != 'configs':
    raise errors.ConfigError(
      f'--config={file} does not come into the image; put it below configs/, '
      'and give its path from the checkout'
    )


def container_command(words: Sequence[str]) -> str:
  """A command for the script of bash that XPK writes into a container's spec.

  There it stands on one line, in brackets and in the background; SIGTERM goes
  to what the brackets become. Kubernetes makes `$` of `$$`, and puts variables
  in the place of `$(NAME)`.

  Raises:
    ConfigError: a word has more than one line.
  """
  for word in words:
    if '\n' in word:
      raise errors.ConfigError(
        f'{word.splitlines()[0]!r}... of the command has more than one line, '
        'which XPK does not pass on; put it into a file of the image'
      )
  return 'exec ' + shlex.join(words).replace('$', '$$')


def logs() -> None:
  """Follows what the first host prints."""
  labels = {
    'jobset.sigs.k8s.io/jobset-name': _NAME.value,
    'jobset.sigs.k8s.io/job-index': '0',
    'batch.kubernetes.io/job-completion-index': '0',
  }
  selector = ','.join(f'{k}={v}' for k, v in labels.items())
  status()  # With which XPK makes kubectl speak to this cluster.
  launching.run(
    ['kubectl', 'logs', f'--selector={selector}', '--tail=100', '--follow']
  )


def status() -> None:
  """What XPK says of the workload."""
  launching.run(_xpk('list', f'--filter-by-job={_NAME.value}'))


def delete() -> None:
  """Stops the workload, which saves, and deletes it; the nodes stay."""
  launching.run(_xpk('delete', f'--workload={_NAME.value}', '--force'))


_ACTIONS = {action.__name__: action for action in (run, logs, status, delete)}
_ACTION = flags.DEFINE_enum('action', 'run', list(_ACTIONS), 'What to do.')


def _xpk(verb: str, *words: str) -> list[str]:
  return [
    'xpk', 'workload', verb, f'--cluster={_CLUSTER.value}',
    f'--project={_PROJECT.value}', f'--zone={_ZONE.value}', *words,
  ]  # fmt: skip


if __name__ == '__main__':
  sys.exit(main_lib.run_module(sys.modules[__name__], sys.argv))
