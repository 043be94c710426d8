r"""Submits `leviathan prepare` to Slurm: many machines read, then one writes.

  python launch/prepare_slurm.py --tasks=32 --cpus_per_task=16 --partition=cpu \
      --input='text/**/*.jsonl.zst' --tokenizer=spm:tokenizer/tokenizer.model \
      --output=data

takes the flags of `leviathan prepare` and those of Slurm. --dry_run prints the
two scripts. Text, tokenizer, output and this Python lie on a disk that all
machines share. What else sbatch should know goes into its own variables, as
SBATCH_ACCOUNT. Failed, killed or out of time: the same command goes on.

These are commands that run by hand as well, with their one-line errors, and
nothing is installed for them. datatrove's Slurm executor submits pickles, and
cannot show them first; where writing on one machine takes too long, it shares
that out too, see leviathan/data/datatrove_steps.py.
"""

from collections.abc import Sequence
import shlex
import sys

from absl import flags

from leviathan import errors
from leviathan.cli import launching
from leviathan.cli import main as main_lib
from leviathan.cli import prepare as command
from leviathan.cli import text_flags
from leviathan.data import outputs

_TASKS = flags.DEFINE_integer(
  'tasks', 16, 'Parts of the reading, each on a machine.', lower_bound=1
)
_CPUS = flags.DEFINE_integer(
  'cpus_per_task', 16, 'Of each machine, and of the one that writes.',
  lower_bound=1,
)  # fmt: skip
_MEMORY = flags.DEFINE_string('mem_per_cpu', '2G', 'As sbatch takes it.')
_TIME = flags.DEFINE_string('time', '24:00:00', 'Limit of each job.')
_PARTITION = flags.DEFINE_string('partition', None, "Else Slurm's own.")


def main(argv: Sequence[str]) -> None:
  """Submits both jobs, or prints them."""
  del argv
  outputs.check_free(command.job_of_flags().output)
  words = _command()
  read = _script(
    'prepare-read',
    [*words, f'--shard="$SLURM_ARRAY_TASK_ID"/{_TASKS.value}'],
    {'array': f'0-{_TASKS.value - 1}'},
  )
  first = 'JOB' if launching.DRY_RUN.value else launching.sbatch(read)
  # One that can never start would wait for ever.
  after = {'dependency': f'afterok:{first}', 'kill-on-invalid-dep': 'yes'}
  write = _script('prepare-write', words, after)
  if launching.DRY_RUN.value:
    print(f'{read}\n# JOB is the id of the above.\n{write}', end='')
  else:
    last = launching.sbatch(write)
    print(f'submitted: reading is job {first}, writing job {last}')


def _command() -> list[str]:
  """`leviathan prepare` and the flags that were given, quoted for a shell."""
  modules = flags.FLAGS.flags_by_module_dict()
  given = {
    flag.name: flag.serialize()
    for module in (text_flags, command)
    for flag in modules[module.__name__]
    if flag.present
  }
  for name in given.keys() & {'shard', 'workers'}:
    raise errors.ConfigError(
      f'--{name} is set by --tasks and --cpus_per_task; leave it out'
    )
  return [
    f'{shlex.quote(sys.executable)} -m leviathan prepare',
    *map(shlex.quote, given.values()),
    f'--workers={_CPUS.value}',
  ]


def _script(name: str, words: Sequence[str], options: dict[str, str]) -> str:
  """What sbatch runs."""
  options = {
    'job-name': name,
    **options,
    'nodes': '1',
    'ntasks': '1',
    'cpus-per-task': str(_CPUS.value),
    'mem-per-cpu': _MEMORY.value,
    'time': _TIME.value,
  }
  if _PARTITION.value:
    options['partition'] = _PARTITION.value
  return launching.sbatch_script(options, 'exec ' + ' \\\n  '.join(words))


if __name__ == '__main__':
  sys.exit(main_lib.run_module(sys.modules[__name__], sys.argv))
