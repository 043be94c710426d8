"""The flags of a command that runs as several processes."""

from absl import flags

from leviathan import pod

_COORDINATOR = flags.DEFINE_string(
  'coordinator',
  None,
  'Of several processes: HOST:PORT at which process 0 can be reached, or auto '
  'on a TPU pod, Slurm or Open MPI.',
)
_NUM_PROCESSES = flags.DEFINE_integer(
  'num_processes', None, 'How many, with --coordinator=HOST:PORT.'
)
_PROCESS_ID = flags.DEFINE_integer(
  'process_id', None, 'Which one this is, from 0.'
)


def read() -> pod.PodConfig:
  """What the flags say."""
  return pod.PodConfig(
    coordinator=_COORDINATOR.value,
    num_processes=_NUM_PROCESSES.value,
    process_id=_PROCESS_ID.value,
  )
