"""TPU slices by the name that Google sells them under, and their flags.

Names, topologies and chips of a host: cloud.google.com/tpu/docs, the pages of
each version; runtime versions: cloud.google.com/tpu/docs/runtimes.
"""

from collections.abc import Sequence
import dataclasses
import pathlib
import sys

from absl import flags

from leviathan import chips
from leviathan import config as config_lib
from leviathan import errors
from leviathan.cli import job_command
from leviathan.cli import launching

_ACCELERATOR = flags.DEFINE_string(
  'accelerator', None, 'Kind and size of a slice, as v5litepod-64 or v6e-256.'
)
_NUM_SLICES = flags.DEFINE_integer(
  'num_slices', 1, 'How many of them make one job.', lower_bound=1
)
_COMPILE = flags.DEFINE_bool(
  'compile',
  True,
  'First compile the step for these slices, here and without a TPU, and go on '
  'only if it fits.',
)

# Chips of a host that GKE makes, at most; XPK 1.16.0, compute_chips_per_vm.
_GKE_HOST_CHIPS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
  """One version of TPUs."""

  name: str  # As `leviathan compile` calls it.
  cores: int  # Of a chip; a slice's name counts them.
  host_chips: int  # At most this many are on one TPU VM.
  runtime: str | None  # Image of a TPU VM; None: sold through GKE alone.

  @property
  def topologies(self) -> dict[int, str]:
    """{chips: sides} of the slices that are sold."""
    shapes = chips.CHIPS[self.name].shapes
    return {chips.parse(f'{self.name}:{s}').chips: s for s in shapes}


# The first part of a slice's name: its kind.
KINDS = {
  'v4': Kind(
    name='v4',
    cores=2,
    host_chips=4,
    runtime='tpu-ubuntu2204-base',
  ),
  'v5litepod': Kind(
    name='v5e',
    cores=1,
    host_chips=8,
    runtime='v2-alpha-tpuv5-lite',
  ),
  'v5p': Kind(
    name='v5p',
    cores=2,
    host_chips=4,
    runtime='v2-alpha-tpuv5',
  ),
  'v6e': Kind(
    name='v6e',
    cores=1,
    host_chips=8,
    runtime='v2-alpha-tpuv6e',
  ),
  'tpu7x': Kind(name='tpu7x', cores=2, host_chips=4, runtime=None),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Slices:
  """One or several slices of a kind.

  Raises:
    ConfigError: the name is none; says which there are.
  """

  accelerator: str
  count: int = 1

  def __post_init__(self):
    prefix, _, size = self.accelerator.partition('-')
    if prefix not in KINDS:
      near = config_lib.nearest(prefix, KINDS)
      raise errors.ConfigError(
        f'--accelerator={self.accelerator} is of no kind of TPU{near}; give '
        f'one of {", ".join(KINDS)}, a dash and a size'
      )
    sizes = {str(n * self.kind.cores) for n in self.kind.topologies}
    if size not in sizes:
      raise errors.ConfigError(
        f'--accelerator={self.accelerator} is no size of {prefix}; give one of '
        f'{", ".join(f"{prefix}-{s}" for s in sorted(sizes, key=int))}'
      )

  @property
  def kind(self) -> Kind:
    """What its chips are."""
    return KINDS[self.accelerator.partition('-')[0]]

  @property
  def chips(self) -> int:
    """Of one slice."""
    return int(self.accelerator.partition('-')[2]) // self.kind.cores

  @property
  def topology(self) -> str:
    """As `leviathan compile` takes it: v5e:8x8."""
    return f'{self.kind.name}:{self.kind.topologies[self.chips]}'

  @property
  def several_hosts(self) -> bool:
    """Whether a job on TPU VMs is more than one process."""
    return self.count > 1 or self.chips > self.kind.host_chips

  @property
  def several_pods(self) -> bool:
    """Whether a job on GKE is."""
    return self.count > 1 or self.chips > _GKE_HOST_CHIPS


def of_flags() -> Slices:
  """What the flags say."""
  if _ACCELERATOR.value is None:
    raise errors.ConfigError(
      '--accelerator is missing; give the kind and size of a slice, as '
      '--accelerator=v5litepod-64'
    )
  return Slices(accelerator=_ACCELERATOR.value, count=_NUM_SLICES.value)


def check_fits(
  slices: Slices, words: Sequence[str], root: pathlib.Path
) -> None:
  """Compiles the step of a training command for the slices.

  Args:
    slices: to run on.
    words: of the command; its config is a path from `root`.
    root: of the checkout that is compiled, whatever else is installed.

  Raises:
    ConfigError: it does not fit.
  """
  if not _COMPILE.value or job_command.name(words) != 'train':
    return
  compile_words = [
    sys.executable,
    '-m',
    'leviathan',
    'compile',
    *job_command.config_flags(words),
    f'--topology={slices.topology}',
  ]
  if slices.count > 1:
    compile_words.append(f'--num_slices={slices.count}')
  try:
    launching.run(compile_words, cwd=root)
  except errors.ConfigError as e:
    raise errors.ConfigError(f'{e}; --nocompile goes on without') from e
