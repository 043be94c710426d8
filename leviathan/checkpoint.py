"""Checkpoints: Orbax behind one small door.

`checkpoints/<step>/` holds the items `params` and `opt_state` apart, so that
evaluation never reads the optimizer, and the run's manifest as metadata.
"""

import dataclasses
from typing import Any

from etils import epath
import jax
from orbax.checkpoint import v1 as ocp

from leviathan import errors
from leviathan import state as state_lib

READ_REMEDY = 'restore its folder or take another step'
WRITE_REMEDY = 'free space or give another --workdir, and start again'


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
  """When to save, and how many to keep."""

  interval: int  # steps
  keep: int  # latest checkpoints

  def __post_init__(self):
    for name, value in dataclasses.asdict(self).items():
      if value < 1:
        raise errors.ConfigError(
          f'config.checkpoint.{name}={value}; give 1 or more'
        )


class Checkpoints:
  """The checkpoints of one run."""

  def __init__(self, directory: epath.Path, keep: int | None = None):
    """Opens `<run>/checkpoints`.

    Args:
      directory: absolute path.
      keep: how many of the latest to keep when saving; None only reads, and
        leaves alone what a run that is going on is just writing.
    """
    self._directory = directory
    # Evaluation does without the optimizer, so a reader asks for less.
    self._items = ('params',) if keep is None else ('params', 'opt_state')
    latest = ocp.training.preservation_policies.LatestN(keep)
    self._orbax = ocp.training.Checkpointer(
      directory,
      preservation_policy=latest,  # pyright: ignore[reportArgumentType]
      # What a killed save left behind would make the next one fail.
      cleanup_tmp_directories=keep is not None,
    )

  def latest(self) -> int | None:
    """The newest step that was saved whole, or None."""
    return max(self.steps(), default=None)

  def steps(self) -> list[int]:
    """All steps that can be restored, in order.

    Orbax lists every folder whose name is a step. One that is empty, or was
    copied in part, is passed over and left alone.
    """
    found = (c.step for c in self._orbax.checkpoints)
    return sorted(step for step in found if self._is_whole(step))

  def _is_whole(self, step: int) -> bool:
    items = (self._directory / str(step) / item for item in self._items)
    return all((item / '_METADATA').exists() for item in items)

  def save(self, state: state_lib.State, manifest: dict[str, Any]) -> None:
    """Starts a save of `state`, first waiting for the one before it.

    The state may be donated as soon as this returns.

    Raises:
      CheckpointError: this save was declined, or the one before it failed.
    """
    step = int(state.step)
    self.wait()
    if step in self.steps():
      return
    with _explained(f'saving step {step} to {self._directory}', WRITE_REMEDY):
      started = self._orbax.save_checkpointables_async(
        step,
        {'params': state.params, 'opt_state': state.opt_state},
        force=True,
        custom_metadata=manifest,
      )
    if started is None:
      raise errors.CheckpointError(
        f'{self._directory}: saving step {step} was declined; the folders '
        f'there are {sorted(c.step for c in self._orbax.checkpoints)}, remove '
        'those after it'
      )

  def wait(self) -> None:
    """Waits for the save in flight.

    Raises:
      CheckpointError: it failed.
    """
    with _explained(f'saving to {self._directory}', WRITE_REMEDY):
      self._orbax.wait()

  def manifest(self, step: int) -> dict[str, Any]:
    """The manifest saved with a step."""
    self._check_there(step)
    with _explained(f'reading step {step} of {self._directory}', READ_REMEDY):
      metadata = self._orbax.checkpointables_metadata(step).custom_metadata
    return dict(metadata)  # type: ignore[arg-type]

  def restore(self, step: int, abstract: state_lib.State) -> state_lib.State:
    """The whole state, laid out as `abstract` says, on whatever mesh that is.

    Raises:
      CheckpointError: there is no such step, or it does not fit `abstract`.
    """
    items = self._load(
      step, {'params': abstract.params, 'opt_state': abstract.opt_state}
    )
    count = jax.device_put(jax.numpy.int32(step), abstract.step.sharding)
    return state_lib.State(step=count, **items)

  def restore_params(self, step: int, abstract_params: Any) -> Any:
    """The parameters alone; no byte of the optimizer's state is read."""
    return self._load(step, {'params': abstract_params})['params']

  def _load(self, step: int, abstract: dict[str, Any]) -> dict[str, Any]:
    self._check_there(step)
    with _explained(f'restoring step {step} of {self._directory}', READ_REMEDY):
      return self._orbax.load_checkpointables(step, abstract)

  def _check_there(self, step: int) -> None:
    if step not in self.steps():
      raise errors.CheckpointError(
        f'{self._directory}: no checkpoint of step {step}; there are '
        f'{self.steps() or "none"}'
      )

  def close(self) -> None:
    """Waits for the save in flight and lets go of the directory."""
    self.wait()
    self._orbax.close()


class _explained:
  """Turns what Orbax raises into one line, with the cause that it hides."""

  def __init__(self, doing: str, remedy: str):
    self._doing, self._remedy = doing, remedy

  def __enter__(self):
    return self

  def __exit__(self, kind, error, traceback):
    if not isinstance(error, Exception):
      return
    while error.__cause__ is not None:
      error = error.__cause__
    text = ' '.join(str(error).split())[:300]
    raise errors.CheckpointError(
      f'{self._doing} failed, {self._remedy}: {type(error).__name__}: {text}'
    ) from error
