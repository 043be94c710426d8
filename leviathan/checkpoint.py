"""Checkpoints: Orbax behind one small door.

`checkpoints/<step>/` holds the items `params` and `opt_state` apart, so that
evaluation never reads the optimizer, and the run's manifest; `step_folder`
knows what else it says of itself.

Which folders are restored, kept and deleted is decided here: Orbax's own
`training.Checkpointer` takes every folder with a number for a step of its own,
declines a save below the highest, and counts all in what it keeps.
"""

from collections.abc import Callable
from concurrent import futures
import dataclasses
import itertools
import math
import shutil
from typing import Any
import uuid

from etils import epath
import jax
import jax.numpy as jnp
import numpy as np
from orbax.checkpoint import v1 as ocp

from leviathan import errors
from leviathan import pod
from leviathan import state as state_lib
from leviathan import step_folder
from leviathan import storage
from leviathan import units

READ_REMEDY = 'restore its folder or take another step'
WRITE_REMEDY = 'free space or give another --workdir, and start again'
FIT_REMEDY = 'give the config that it was saved with'
# What TensorStore says when it is this machine or the way to a bucket.
NOT_DAMAGED = (
  'RESOURCE_EXHAUSTED',
  'PERMISSION_DENIED',
  'UNAUTHENTICATED',
  'UNAVAILABLE',
  'DEADLINE_EXCEEDED',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
  """When to save, and how many to keep."""

  interval: int  # steps
  keep: int  # latest checkpoints
  keep_best: int  # checkpoints with the lowest loss, beside the latest

  def __post_init__(self):
    for name, least in {'interval': 1, 'keep': 1, 'keep_best': 0}.items():
      value = getattr(self, name)
      if value < least:
        raise errors.ConfigError(
          f'config.checkpoint.{name}={value}; give {least} or more'
        )


class _UnreadableError(errors.CheckpointError):
  """A checkpoint seems whole, but its files are damaged."""


class Checkpoints:
  """The checkpoints of one run.

  With several processes, all call `save`, `wait`, `close` and what restores;
  only process 0 writes listings, renames and deletes.
  """

  def __init__(
    self, directory: epath.Path, keep: int | None = None, keep_best: int = 0
  ):
    """Opens `<run>/checkpoints`.

    Args:
      directory: absolute path.
      keep: how many of the latest to keep when saving; None only reads, and
        leaves alone what a run that is going on is just writing.
      keep_best: how many of those with the lowest loss to keep besides. One
        that is among the latest too counts as both.
    """
    self._directory = directory
    self._keep, self._keep_best = keep, keep_best
    # Evaluation does without the optimizer, so a reader asks for less.
    self._items = ('params',) if keep is None else ('params', 'opt_state')
    # A run that goes on takes on the name in the checkpoint that it restores.
    self._run = uuid.uuid4().hex
    self._current: int | None = None  # Step saved or restored last.
    self._refused: dict[int, str] = {}  # {step: why} of seemingly whole ones.
    self._saving: tuple[int, futures.Future] | None = None
    self._thread = futures.ThreadPoolExecutor(1)
    if keep is not None and pod.is_first():
      for path in step_folder.leftovers(directory):
        with storage.explained(path, 'deleted'):
          path.rmtree(missing_ok=True)

  def latest(self) -> int | None:
    """The newest step that was saved whole, or None."""
    return max(self.steps(), default=None)

  def steps(self) -> list[int]:
    """All steps that can be restored, in order.

    A folder that is empty, of something else, or was copied in part is passed
    over and left alone.
    """
    return [
      s for s in step_folder.steps(self._directory) if self._fault(s) is None
    ]

  def passed_over(self, after: int = -1) -> list[str]:
    """A line for each folder of a step above `after` that is not restored."""
    return [
      f'{self._directory / str(step)} is passed over: {fault}'
      for step in step_folder.steps(self._directory)
      if step > after and (fault := self._fault(step)) is not None
    ]

  def _fault(self, step: int) -> str | None:
    """Why a step cannot be restored, or None if it is whole."""
    if step in self._refused:
      return self._refused[step]
    return step_folder.fault(self._directory / str(step), self._items)

  def save(
    self,
    state: state_lib.State,
    manifest: dict[str, Any],
    nats_per_token: float | None = None,
  ) -> None:
    """Starts a save of `state`, first waiting for the one before it.

    The state may be donated as soon as this returns. When the save has ended,
    older checkpoints of this run that need not be kept are deleted. A folder
    that stands at this step already is renamed, not deleted.

    Args:
      state: at the step that names the checkpoint. Nothing happens if this is
        the step that was saved or restored last.
      manifest: what `manifest` gives back.
      nats_per_token: loss by which the best are kept; None or not a number is
        never among them.

    Raises:
      CheckpointError: the disk has too little space, this save could not start
        or the one before it failed.
    """
    step = int(state.step)
    self.wait()
    if step == self._current:
      return
    self.check_space(state)
    loss = math.inf if nats_per_token is None else nats_per_token
    origin = step_folder.Origin(
      step=step,
      run=self._run,
      nats_per_token=loss if math.isfinite(loss) else None,
    )
    with self._explained_write(step), _directories_at_once():
      self._make_way(step)
      response = ocp.save_checkpointables_async(
        self._directory / str(step),
        _items(state),
        custom_metadata=manifest
        | {step_folder.ORIGIN: dataclasses.asdict(origin)},
      )
      self._saving = step, self._thread.submit(self._finish, step, response)

  def _make_way(self, step: int) -> None:
    """Begins a save without deleting what may be the user's.

    In a bucket a kill may leave a part of it under either name.
    """
    folder = self._directory / str(step)
    if not pod.is_first():
      return
    if folder.exists():
      names = {path.name for path in step_folder.children(self._directory)}
      asides = (f'{step}.aside-{i}' for i in itertools.count())
      folder.rename(self._directory / next(a for a in asides if a not in names))
    step_folder.begin(folder)

  def _finish(self, step: int, response: Any) -> None:
    """Runs in a thread, beside training."""
    response.result()
    if pod.is_first():
      step_folder.end(self._directory / str(step))
      self._prune()

  def _prune(self) -> None:
    """Deletes this run's checkpoints that are neither late nor good."""
    assert self._keep is not None  # Only a writer saves.
    ours = {}
    for step in self.steps():
      origin = step_folder.origin(self._directory / str(step))
      if origin is not None and origin.run == self._run:
        ours[step] = origin.nats_per_token
    kept = sorted(ours)[-self._keep :]
    known = (step for step in ours if ours[step] is not None)
    # Of equal ones the later.
    kept += sorted(known, key=lambda s: (ours[s], -s))[: self._keep_best]
    for step in ours.keys() - set(kept):
      doomed = self._directory / str(step)
      try:
        step_folder.delete(doomed)
      except Exception as e:
        if not storage.is_refusal(e):
          raise
        raise errors.CheckpointError(
          f'{doomed} is not needed any more and cannot be deleted '
          f'({storage.said(e)}); delete it, and start again'
        ) from e

  def check(self) -> None:
    """Asks after the save in flight, without waiting for it; for each step.

    Raises:
      CheckpointError: it failed. This is said once.
    """
    if self._saving is not None and self._saving[1].done():
      self.wait()

  def wait(self) -> None:
    """Waits for the save in flight.

    Raises:
      CheckpointError: it failed. This is said once.
    """
    if self._saving is None:
      return
    step, saved = self._saving
    futures.wait([saved])
    self._saving = None
    with self._explained_write(step):
      saved.result()
    self._current = step

  def check_space(self, state: state_lib.State) -> None:
    """Refuses a state that the disk has no space for.

    What a save deletes when it ends does not count: it is there until then.

    Args:
      state: abstract or not.

    Raises:
      CheckpointError: fewer bytes are free than the state's arrays have.
    """
    if storage.in_bucket(self._directory):
      return  # A bucket has no end.
    needed = sum(
      math.prod(x.shape) * np.dtype(x.dtype).itemsize
      for x in jax.tree.leaves(_items(state))
    )
    path = self._directory
    while not path.exists():
      path = path.parent
    free = shutil.disk_usage(path).free
    if free < needed:
      raise errors.CheckpointError(
        f'{self._directory}: a checkpoint needs {units.size(needed)} and '
        f'{units.size(free)} are free, {WRITE_REMEDY} ({self._last_good()})'
      )

  def _last_good(self) -> str:
    try:
      latest = self.latest()
    except (OSError, errors.CheckpointError):
      return 'which checkpoints are there cannot be read'
    if latest is None:
      return 'no checkpoint is there yet'
    return f'the last good checkpoint is of step {latest}'

  def _explained_write(self, step: int) -> '_explained':
    return _explained(
      f'saving step {step} to',
      self._directory,
      lambda: f'{WRITE_REMEDY} ({self._last_good()})',
    )

  def manifest(self, step: int) -> dict[str, Any]:
    """The manifest saved with a step."""
    self._check_there(step)
    return step_folder.manifest(self._directory / str(step))

  def restore(
    self, step: int, abstract: state_lib.State, cast: bool = False
  ) -> state_lib.State:
    """The whole state, laid out as `abstract` says, on whatever mesh that is.

    Args:
      step: one of `steps()`.
      abstract: shapes, types and shardings.
      cast: whether arrays of another type are converted; else refused.

    Raises:
      CheckpointError: there is no such step, it does not fit `abstract`, or it
        cannot be read.
    """
    items = self._load(step, _items(abstract), cast)
    count = jax.device_put(jax.numpy.int32(step), abstract.step.sharding)
    self._current = step
    origin = step_folder.origin(self._directory / str(step))
    if origin is not None:
      self._run = origin.run
    return state_lib.State(step=count, **items)

  def restore_latest(
    self,
    abstract: state_lib.State,
    check: Callable[[int], None] = lambda step: None,
    cast: bool = False,
  ) -> tuple[int | None, state_lib.State | None, list[str]]:
    """Restores the newest step that can be, going back past those that cannot.

    Folders that are not whole, are damaged, or that `check` refuses are left
    alone. One that is whole and does not fit `abstract` is an error: the
    config is wrong, and an older step would not fit either.

    Args:
      abstract: as of `restore`.
      check: step -> None; raises CheckpointError for one of another run.
      cast: as of `restore`.

    Returns:
      (step, state, a line for each newer folder that was passed over); None
      and None if no checkpoint is there.

    Raises:
      CheckpointError: a step does not fit, or all that seem whole are refused
        or damaged: to start anew would not be what was meant.
    """
    while True:
      # Processes may see the directory a moment apart.
      step = pod.of_first(max(self.steps(), default=-1))
      notes = self.passed_over(after=step)
      if step < 0:
        if self._refused:
          raise errors.CheckpointError(
            f'no checkpoint can be restored; {"; ".join(notes)}'
          )
        return None, None, notes
      state, refusal = None, None
      try:
        check(step)
      except errors.CheckpointError as e:
        refusal = str(e)
      # Before arrays are read, which all processes do together.
      if pod.all_agree(refusal is None):
        try:
          state = self.restore(step, abstract, cast)
        except _UnreadableError as e:
          refusal = str(e)
      if pod.all_agree(refusal is None and state is not None):
        return step, state, notes
      self._current = None
      self._refused[step] = refusal or 'another process cannot read it'

  def restore_params(
    self, step: int, abstract_params: Any, cast: bool = False
  ) -> Any:
    """The parameters alone; no byte of the optimizer's state is read."""
    return self._load(step, {'params': abstract_params}, cast)['params']

  def _load(
    self, step: int, abstract: dict[str, Any], cast: bool
  ) -> dict[str, Any]:
    self._check_fits(step, abstract, cast)
    folder = self._directory / str(step)
    with _explained(f'restoring step {step} of', self._directory):
      items = ocp.load_checkpointables(folder, abstract)
    if not _is_finite(items):
      # No step takes such a number into the state, so the files were changed.
      raise _UnreadableError(
        f'{folder} holds what is not finite, so it is damaged, {READ_REMEDY}'
      )
    return items

  def _check_fits(
    self, step: int, abstract: dict[str, Any], cast: bool
  ) -> None:
    """Orbax would convert types without a word and list all of a tree."""
    self._check_there(step)
    with _explained(f'reading step {step} of', self._directory):
      stored = ocp.checkpointables_metadata(
        self._directory / str(step)
      ).metadata
    there, here = {}, {}
    for item in abstract:
      # Of damaged arrays there are none; loading them tells the cause.
      if stored[item] is not None:
        there |= _forms(item, stored[item], cast)
        here |= _forms(item, abstract[item], cast)
    changed = [p for p in here | there if here.get(p) != there.get(p)]
    if changed:
      first, others = changed[0], len(changed) - 1
      more = f' ({others} others differ too)' if others else ''
      raise errors.CheckpointError(
        f'{self._directory / str(step)}: {first} is '
        f'{there.get(first, "missing")} there and '
        f'{here.get(first, "missing")} here{more}, {FIT_REMEDY}'
      )

  def _check_there(self, step: int) -> None:
    fault = self._fault(step)
    if fault is None:
      return
    if step in step_folder.steps(self._directory):
      fault = f'it is not whole: {fault}'
    else:
      fault = 'it is not there'
    raise errors.CheckpointError(
      f'{self._directory}: no checkpoint of step {step}; there are '
      f'{self.steps() or "none"} ({fault})'
    )

  def close(self) -> None:
    """Waits for the save in flight.

    Raises:
      CheckpointError: it failed.
    """
    self._thread.shutdown()
    self.wait()


def _directories_at_once() -> ocp.Context:
  """If one cannot be made, Orbax's threads would wait for it for minutes."""
  context = ocp.Context()
  context.asynchronous.create_directories_asynchronously = False
  return context


@jax.jit
def _is_finite(tree: Any) -> jax.Array:
  """Whether all numbers are."""
  leaves = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]
  return jnp.all(jnp.stack(leaves))


def _items(state: state_lib.State) -> dict[str, Any]:
  return {'params': state.params, 'opt_state': state.opt_state}


def _forms(item: str, tree: Any, cast: bool) -> dict[str, str]:
  """{'params/a/b': 'float32 (3, 4)', ...}; no types where they may change."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
  forms = {}
  for path, leaf in leaves:
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    type_ = '' if cast else f'{np.dtype(leaf.dtype).name} '
    forms[f'{item}/{name}'] = f'{type_}{tuple(leaf.shape)}'
  return forms


class _explained:
  """Turns what Orbax raises into one line, with the cause that it hides.

  Without a remedy it was reading that failed, and of what it read, not of this
  machine, if the error is an _UnreadableError.
  """

  def __init__(
    self,
    doing: str,
    directory: epath.Path,
    remedy: Callable[[], str] | None = None,
  ):
    self._doing, self._directory, self._remedy = doing, directory, remedy

  def __enter__(self):
    return self

  def __exit__(self, kind, error, traceback):
    if not isinstance(error, Exception) or isinstance(error, errors.UserError):
      return
    while error.__cause__ is not None:
      error = error.__cause__
    text = ' '.join(str(error).split())[:300]
    ours = any(status in text for status in NOT_DAMAGED) or isinstance(
      error, (MemoryError, PermissionError)
    )
    if storage.in_bucket(self._directory) and storage.is_refusal(error):
      ours = ours or not isinstance(error, FileNotFoundError)
    damaged = self._remedy is None and not ours
    remedy = READ_REMEDY if self._remedy is None else self._remedy()
    raise (_UnreadableError if damaged else errors.CheckpointError)(
      f'{self._doing} {self._directory} failed, {remedy}: '
      f'{type(error).__name__}: {text}'
    ) from error
