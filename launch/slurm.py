r"""Submits a command to Slurm: one process for each GPU of one or more nodes.

  python launch/slurm.py --name=lev --nodes=4 --gpus=8 --time=24:00:00 -- \
      leviathan train --config=configs/lev.py:1p2b --workdir=/shared/runs/lev \
      --config.train.platform=gpu

Slurm tells the run two minutes before the time is over, or when it takes the
nodes away; it saves and ends with 75, and the job goes back into the queue. It
does so after the loss of a node too. Any other end is final, scancel as well.

--dry_run prints the script. What else sbatch should know goes into its own
variables, as SBATCH_ACCOUNT. The programs of the command, the data and
--workdir lie on a disk that all nodes share. More: docs/launch_slurm.md.
"""

from collections.abc import Sequence
import re
import shlex
import sys

from absl import flags

from leviathan import errors
from leviathan.cli import job_command
from leviathan.cli import launching
from leviathan.cli import main as main_lib

_NAME = flags.DEFINE_string('name', None, 'Of the job.', required=True)
_NODES = flags.DEFINE_integer('nodes', 1, 'How many.', lower_bound=1)
_GPUS = flags.DEFINE_integer('gpus', 8, 'Of each node.', lower_bound=1)
_CPUS = flags.DEFINE_integer(
  'cpus_per_task', 8, 'Beside each GPU.', lower_bound=1
)
_TIME = flags.DEFINE_string('time', '24:00:00', 'Until the job is queued anew.')
_PARTITION = flags.DEFINE_string('partition', None, "Else Slurm's own.")

_PREEMPTED = errors.PreemptedError.exit_code
# Only scancel tells this script itself to stop; it waits for srun even so. One
# task that ends must not end the others, which are still saving. srun does not
# take over the number of CPUs from sbatch.
_BODY = f"""cancelled=
trap 'cancelled=yes' TERM
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=0 COMMAND
code=$?
if [ "$code" = {_PREEMPTED} ] && [ -z "$cancelled" ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code\""""
_ENVIRONMENT = """set -a
# shellcheck source=/dev/null
. FILE
set +a
"""


def main(argv: Sequence[str]) -> None:
  """Submits the job, or prints its script."""
  del argv
  if not re.fullmatch(r'[\w.-]+', _NAME.value):
    raise errors.ConfigError(
      f'--name={_NAME.value} is no name of a job; give letters, digits, dots '
      'and dashes'
    )
  script = _script()
  if launching.DRY_RUN.value:
    print(script, end='')
    return
  job = launching.sbatch(script)
  launching.say(f'submitted: job {job}')
  launching.say(f'logs: tail -F {_NAME.value}-{job}.log')
  launching.say(f'status: squeue --job={job}')
  launching.say(f'stop: scancel {job}')


def _script() -> str:
  """What sbatch runs."""
  # Every task sees all GPUs of its node, and JAX takes the one of the task's
  # number (jax/_src/clusters); a GPU bound to a task would be number 0 in each.
  options = {
    'job-name': _NAME.value,
    'nodes': str(_NODES.value),
    'ntasks-per-node': str(_GPUS.value),
    'gpus-per-node': str(_GPUS.value),
    'cpus-per-task': str(_CPUS.value),
    'time': _TIME.value,
    'signal': 'TERM@120',
    'output': f'{_NAME.value}-%j.log',
    'open-mode': 'append',
  }
  if _PARTITION.value:
    options['partition'] = _PARTITION.value
  command = shlex.join(job_command.read(_NODES.value * _GPUS.value > 1))
  body = _BODY.replace('COMMAND', command, 1)
  if secrets := job_command.secrets():
    body = _ENVIRONMENT.replace('FILE', shlex.quote(secrets)) + body
  return launching.sbatch_script(options, '#SBATCH --requeue\n' + body)


if __name__ == '__main__':
  sys.exit(main_lib.run_module(sys.modules[__name__], sys.argv))
