"""Copies of a run's metrics for those who watch: TensorBoard and W&B.

`metrics.jsonl` stays the truth. A row's metrics become scalars named
`split/metric`, at the row's own step.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import importlib
import logging
import math
import os
import tempfile
import time
from typing import Any
import uuid

from etils import epath

from leviathan import errors
from leviathan import storage


class TensorBoard:
  """Event files in RUN/tensorboard.

  Its thread ends with the first error, after which nothing takes what it is
  given. So it writes to a disk, from where a bucket is sent all anew at times.
  """

  def __init__(
    self,
    package: Any,
    directory: epath.Path,
    config: Mapping[str, Any],
    resumed_step: int,
  ):
    """See `open_`; TensorBoard hides what it has of later steps."""
    del config
    here = directory = directory / 'tensorboard'
    self._scratch = self._upload = None
    if storage.in_bucket(directory):
      self._scratch = tempfile.TemporaryDirectory()
      here = epath.Path(self._scratch.name)
    self._writer = package.SummaryWriter(
      os.fspath(here),
      purge_step=resumed_step + 1,
      flush_secs=1,  # What a kill may lose.
      # Files are named by the second: a fast restart would write over one.
      filename_suffix=f'.{time.time_ns()}',
    )
    if self._scratch is not None:
      (file,) = here.iterdir()
      self._upload = storage.Upload(directory / file.name, file.read_bytes)

  def write(self, step: int, scalars: Mapping[str, float]) -> None:
    """Adds the scalars of one row."""
    for name, value in scalars.items():
      self._writer.add_scalar(name, value, step)
    if self._upload is not None:
      self._upload.changed()

  def close(self) -> None:
    """Waits until all is on the disk, or in the bucket if that takes it."""
    self._writer.close()
    if self._upload is not None and self._scratch is not None:
      try:
        self._upload.sync()
      except errors.CheckpointError as e:  # It is only a copy of the metrics.
        logging.getLogger(__name__).warning('%s', e)
      self._scratch.cleanup()


class WandB:
  """A run of W&B, which goes on under its id when ours does.

  Its own step only rises, and rows of a step that it has passed are dropped.
  Ours is therefore a metric, `step`, that all charts are drawn by: what is run
  again after a crash is drawn again, at the same place.
  """

  def __init__(
    self,
    package: Any,
    directory: epath.Path,
    config: Mapping[str, Any],
    resumed_step: int,
  ):
    """See `open_`; the id is in RUN/wandb/id."""
    id_file = directory / 'wandb' / 'id'
    if not (resumed_step and id_file.exists()):
      # From its first step, a run is another one than what was here before.
      id_file.parent.mkdir(parents=True, exist_ok=True)
      id_file.write_text(uuid.uuid4().hex)
    try:
      self._run = package.init(
        project=os.environ.get('WANDB_PROJECT', 'leviathan'),
        name=directory.name,
        id=id_file.read_text(),
        resume='allow',
        # It writes to disks only, and has a place of its own there.
        dir=None if storage.in_bucket(directory) else os.fspath(directory),
        config=dict(config),
      )
    except package.Error as e:
      raise errors.ConfigError(
        f"config.log.sinks names 'wandb', which does not start "
        f'({str(e).splitlines()[0]}); run `wandb login`, set '
        'WANDB_MODE=offline, or leave the name out'
      ) from e
    self._run.define_metric('step')
    self._run.define_metric('*', step_metric='step')

  def write(self, step: int, scalars: Mapping[str, float]) -> None:
    """Adds the scalars of one row."""
    self._run.log({'step': step, **scalars})

  def close(self) -> None:
    """Waits until all is sent, or on the disk if it is offline."""
    self._run.finish()


# {name, which is also the extra of setup.py: (package, sink)}
SINKS: dict[str, tuple[str, Any]] = {
  'tensorboard': ('tensorboardX', TensorBoard),
  'wandb': ('wandb', WandB),
}


class Sinks:
  """All the sinks of a run as one; of none, it does nothing."""

  def __init__(self, sinks: Sequence[Any]):
    """Takes what `open_` has opened."""
    self._sinks = sinks

  def write(self, row: Mapping[str, Any]) -> None:
    """Copies a row of `metrics.jsonl`, without what is no finite number."""
    scalars = {
      f'{row["split"]}/{name}': float(value)
      for name, value in row.items()
      if name not in ('step', 'split')
      and isinstance(value, int | float)
      and math.isfinite(value)
    }
    for sink in self._sinks:
      sink.write(row['step'], scalars)

  def close(self) -> None:
    """Waits until all rows are where they belong."""
    for sink in self._sinks:
      sink.close()


def check(names: Sequence[str]) -> None:
  """Raises ConfigError if a sink's package is not installed."""
  for name in names:
    _package(name)


def open_(
  names: Sequence[str],
  directory: epath.PathLike,
  config: Mapping[str, Any],
  resumed_step: int,
) -> Sinks:
  """Opens sinks, in one process of a run.

  Args:
    names: of `SINKS`.
    directory: of the run; it must exist.
    config: resolved, to be shown beside the curves.
    resumed_step: rows of later steps will come (again); 0 at a run's start.

  Returns:
    What rows are written to.

  Raises:
    ConfigError: a sink's package is not installed, or refuses to start.
  """
  packages = [_package(name) for name in names]  # All, before any is opened.
  return Sinks(
    [
      SINKS[name][1](package, epath.Path(directory), config, resumed_step)
      for name, package in zip(names, packages, strict=True)
    ]
  )


def _package(name: str) -> Any:
  """The package of a sink, which only those who want it have installed."""
  module, _ = SINKS[name]
  try:
    return importlib.import_module(module)
  except ModuleNotFoundError as e:
    raise errors.ConfigError(
      f'config.log.sinks names {name!r}, but {e.name} is not installed; '
      f"pip install 'leviathan[{name}]', or leave the name out"
    ) from e
