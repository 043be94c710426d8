"""The directory of a run: where its files lie, and whose they are.

`--workdir` may be the run, its `checkpoints/`, or one step in there.
"""

from collections.abc import Sequence
import dataclasses
import json
import secrets
from typing import Any

from etils import epath
import numpy as np

from leviathan import checkpoint
from leviathan import config as config_lib
from leviathan import errors
from leviathan import storage
from leviathan.data import mixture
from leviathan.data import records
from leviathan.data import tokenizer as tokenizer_lib
from leviathan.token_order import files as token_orders

# May differ when a run goes on: they are no part of what is learned from which
# rows, though some of them change the last bits. Paths of data and token order
# are among them, since hashes of their contents are compared instead, and the
# batch size, since a checkpoint says how many sequences came before it.
FREE = (
  'config.mesh.',
  'config.checkpoint.',
  'config.evaluate.',
  'config.log.',
  'config.optimizer.skip_limit',
  'config.train.steps',
  'config.train.loss_chunks',
  'config.train.accumulation',
  'config.data.train',
  'config.model.token_order',
  'config.model.attention',
  'config.model.remat',
  'config.model.embedder.implementation',
  'config.data.batch_size',
  'config.train.platform',
  'config.train.stall_seconds',
  'manifest.versions.',
)

# Of the manifest: what has happened, and what the config says as well.
RECORDS = ('changes', 'sequences', 'horizon')
# Keys that configs did not have at first, with what those runs did.
ADDED: dict[str, Any] = {
  'model.token_order': '',
  'train.platform': 'auto',
  'train.stall_seconds': 1800.0,
  'train.z_loss': 0.0,
  'train.loss_chunks': 1,
  'train.accumulation': 1,
  'optimizer.schedule': 'cosine',
  'optimizer.decay_steps': None,
  'optimizer.moment_type': 'float32',
  'optimizer.spike_deviations': None,
  'optimizer.skip_limit': 0,
  'model.attention': 'xla',
  'checkpoint.keep_best': 0,
  'evaluate.tasks': ('perplexity',),
  'evaluate.task_data': '',
  'evaluate.task_items': 0,
  'log.sinks': (),
  'log.profile': (),
}


@dataclasses.dataclass(frozen=True)
class RunDir:
  """Paths of one run; `step` where the caller named one."""

  path: epath.Path
  step: int | None = None

  @property
  def config_file(self) -> epath.Path:
    """The resolved config."""
    return self.path / 'config.json'

  @property
  def manifest_file(self) -> epath.Path:
    """What identifies the run."""
    return self.path / 'run.json'

  @property
  def metrics_file(self) -> epath.Path:
    """One row a step or evaluation."""
    return self.path / 'metrics.jsonl'

  @property
  def not_finite_file(self) -> epath.Path:
    """Why the run ended, if a loss or a gradient was not finite."""
    return self.path / 'not_finite.json'

  @property
  def checkpoint_dir(self) -> epath.Path:
    """One directory a step."""
    return self.path / 'checkpoints'

  @property
  def tokenizer_dir(self) -> epath.Path:
    """The tokenizer and its counts, so that a run is read without its data."""
    return self.path / 'tokenizer'

  @property
  def token_order_file(self) -> epath.Path:
    """The run's own copy of its token order, if it has one."""
    return self.tokenizer_dir / 'token_order.npy'

  def eval_dir(self, step: int) -> epath.Path:
    """Results of `leviathan evaluate` at a step."""
    return self.path / 'eval' / str(step)

  def config(self) -> dict[str, Any]:
    """The resolved config that the run was started with.

    Raises:
      CheckpointError: there is no run here.
    """
    config = read_json(self.config_file)
    for field, value in ADDED.items():
      section, _, key = field.partition('.')
      config[section].setdefault(key, value)
    return config

  def manifest(self) -> dict[str, Any]:
    """What identifies the run.

    Raises:
      CheckpointError: there is no run here.
    """
    return read_json(self.manifest_file)

  def changed_fields(self) -> list[str]:
    """The fields that were allowed to change since the run was begun."""
    return [c['field'] for c in self.manifest().get('changes', [])]

  def tokenizer(self) -> tokenizer_lib.Tokenizer:
    """The run's own copy of its tokenizer."""
    found = self.manifest()['tokenizer']
    return tokenizer_lib.load(
      f'{found["kind"]}:{self.tokenizer_dir / found["file"]}'
    )

  def unigram_counts(self) -> np.ndarray:
    """int64 counts_V of the training data.

    Raises:
      CheckpointError: they cannot be read.
    """
    path = self.tokenizer_dir / records.COUNTS_FILE
    try:
      with path.open('rb') as file:
        return np.load(file, allow_pickle=False)
    except (OSError, ValueError) as e:
      raise errors.CheckpointError(
        f'{path} is not an array of counts ({e}); restore the file'
      ) from e

  def checkpoints(self) -> checkpoint.Checkpoints:
    """The run's checkpoints, to read.

    Raises:
      CheckpointError: there is none yet.
    """
    self.config()
    found = checkpoint.Checkpoints(self.checkpoint_dir)
    if found.latest() is None:
      found.close()
      raise errors.CheckpointError(
        f'{self.checkpoint_dir} holds no checkpoint yet; train longer, or '
        'name another --workdir'
      )
    return found


def open_(workdir: str) -> RunDir:
  """The run that `workdir` names, in any of its spellings."""
  path = epath.Path(workdir).expanduser()
  if not path.is_absolute():  # A bucket is; resolving one mangles its name.
    path = path.absolute()
  step = None
  if path.name.isdigit() and path.parent.name == 'checkpoints':
    step, path = int(path.name), path.parent
  if path.name == 'checkpoints':
    path = path.parent
  return RunDir(path, step)


def read_json(path: epath.Path) -> dict[str, Any]:
  """The object in a file of a run."""
  storage.check(path)
  try:
    text = storage.read(path)
  except (FileNotFoundError, NotADirectoryError) as e:
    beside = []
    if path.parent.is_dir():
      beside = sorted(p.name for p in path.parent.iterdir())[:8]
    raise errors.CheckpointError(
      f'{path.parent} is not a run: {path.name} is missing (found: '
      f'{", ".join(beside) or "nothing"}); give the directory that '
      '`leviathan train --workdir` wrote'
    ) from e
  try:
    return json.loads(text)
  except json.JSONDecodeError as e:
    raise errors.CheckpointError(
      f'{path} is not JSON ({e}); restore the file'
    ) from e


def write_json(path: epath.Path, value: Any) -> None:
  """Writes a file whole or not at all."""
  storage.write(path, json.dumps(value, indent=2) + '\n')


def check(
  run: RunDir,
  config: dict[str, Any],
  manifest: dict[str, Any],
  allow: Sequence[str] = (),
) -> list[str]:
  """Whether a run may start or go on in a directory; nothing is changed.

  Args:
    run: the directory, which need not exist.
    config: resolved, of the run that is about to start or go on.
    manifest: its identity.
    allow: fields that may differ although they change what is computed.

  Returns:
    The differences that pass, a line each.

  Raises:
    CheckpointError: the directory belongs to another run.
    ConfigError: a field of `allow` is not one.
  """
  storage.check(run.path)
  ours = identity(config, manifest)
  for field in allow:
    if field not in ours:
      raise errors.ConfigError(
        f'--allow={field} is not a field{config_lib.nearest(field, ours)}'
      )
  if not run.config_file.exists():
    if run.checkpoint_dir.exists():
      raise errors.CheckpointError(
        f'{run.path} holds checkpoints/ but no config.json; give another '
        '--workdir'
      )
    return []
  theirs = identity(run.config(), run.manifest())
  found = config_lib.differences(theirs, ours)
  if changed := _strictly(found, allow):
    raise errors.CheckpointError(_foreign(run, changed))
  return [f'{field}: {old!r} -> {new!r}' for field, (old, new) in found.items()]


def claim(
  run: RunDir,
  config: dict[str, Any],
  manifest: dict[str, Any],
  data: mixture.Mixture,
  order: token_orders.TokenOrder | None = None,
) -> None:
  """Makes the directory this run's, once `check` has found nothing against it.

  Fields that were allowed to change stand in the manifest's `changes`, so that
  checkpoints from before are still known for this run's.

  Args:
    run: the directory, made when missing.
    config: see `check`.
    manifest: see `check`.
    data: what it trains on; its tokenizer and counts are copied.
    order: of the tokens, which is copied too.
  """
  changes: list[dict[str, Any]] = []
  if run.config_file.exists():
    before = run.manifest()
    found = config_lib.differences(
      identity(run.config(), before), identity(config, manifest)
    )
    changes = before.get('changes', []) + [
      {'field': field, 'old': old, 'new': new}
      for field, (old, new) in found.items()
      if not field.startswith(FREE)
    ]
  else:
    with storage.local(run.tokenizer_dir) as directory:
      directory.mkdir(parents=True, exist_ok=True)
      data.datasets[0].tokenizer().save(directory)
      np.save(directory / records.COUNTS_FILE, data.unigram_counts())
      if order is not None:
        token_orders.save(order, directory / run.token_order_file.name)
  write_json(run.manifest_file, manifest | {'changes': changes})
  write_json(run.config_file, config)


def check_writable(directory: epath.Path) -> None:
  """Writes a file, and takes it away again, where a directory is or would be.

  Raises:
    CheckpointError: that fails.
  """
  path = directory
  try:
    # In a bucket there need be no directory, and leave may be for this one
    # alone.
    while not (storage.in_bucket(path) or path.exists() or path == path.parent):
      path = path.parent
    probe = path / f'.probe-{secrets.token_hex(8)}'
    probe.write_text('')
    probe.unlink(missing_ok=True)
  except Exception as e:
    if not storage.is_refusal(e):
      raise
    raise errors.CheckpointError(
      f'--workdir={directory}: nothing can be written to {path} '
      f'({storage.said(e)}); give another directory, or mend its permissions'
    ) from e


def check_step(
  run: RunDir,
  checkpoints: checkpoint.Checkpoints,
  step: int,
  allow: Sequence[str] = (),
) -> None:
  """Raises CheckpointError if a checkpoint is not of this run.

  Args:
    run: the run.
    checkpoints: its checkpoints.
    step: which of them.
    allow: fields of the manifest that may differ.
  """
  theirs = identity({}, checkpoints.manifest(step))
  found = _strictly(
    config_lib.differences(theirs, identity({}, run.manifest())),
    (*run.changed_fields(), *allow),
  )
  if found:
    raise errors.CheckpointError(
      f'{run.checkpoint_dir / str(step)} is of another run ('
      f'{_said(found, "in run.json")}); restore the folder or remove it, or '
      f'add --allow={",".join(found)} if it is known to be right'
    )


def identity(
  config: dict[str, Any], manifest: dict[str, Any]
) -> dict[str, Any]:
  """{field: value} of all that two runs are compared by, as JSON has it."""
  compared = {k: v for k, v in manifest.items() if k not in RECORDS}
  flat = config_lib.flatten(config) | config_lib.flatten(compared, 'manifest')
  return json.loads(json.dumps(flat))


def _strictly(
  found: dict[str, tuple[Any, Any]], allow: Sequence[str]
) -> dict[str, tuple[Any, Any]]:
  """Of the fields that differ, those that must not."""
  return {k: v for k, v in found.items() if not k.startswith((*FREE, *allow))}


def _said(changed: dict[str, tuple[Any, Any]], here: str) -> str:
  """'config.train.seed: 0 there, 1 here; ...'."""
  return '; '.join(
    f'{field}: {old!r} there, {new!r} {here}'
    for field, (old, new) in changed.items()
  )


def _foreign(run: RunDir, changed: dict[str, tuple[Any, Any]]) -> str:
  """One line that names every field in which two runs must not differ."""
  # A changed size changes many parameters' shapes; the config says it once.
  brief = {
    k: v for k, v in changed.items() if not k.startswith('manifest.parameters')
  }
  remedy = 'give another --workdir or the same config'
  if 'config.optimizer.horizon' in changed:
    horizon = changed['config.optimizer.horizon'][0]
    remedy += (
      f'; to train on after the decay, add --config.optimizer.{horizon=}'
    )
  if 'manifest.format_version' in changed:
    remedy += (
      '; checkpoints of another version are still evaluated, not trained on'
    )
  elif len(brief) == len(changed):
    remedy += f'; if the change is meant, add --allow={",".join(changed)}'
  return (
    f'{run.path} belongs to another run ({_said(brief or changed, "here")}); '
    f'{remedy}'
  )
