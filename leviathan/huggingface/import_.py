"""A directory with a Hugging Face Llama as a run that training goes on from."""

from collections.abc import Callable
import dataclasses
import hashlib
from typing import Any

from etils import epath
import jax
import tokenizers as library

from leviathan import checkpoint
from leviathan import config as config_lib
from leviathan import errors
from leviathan import experiment
from leviathan import rundir
from leviathan import sharding
from leviathan import state as state_lib
from leviathan.data import huggingface_json
from leviathan.data import mixture
from leviathan.data import outputs
from leviathan.huggingface import check
from leviathan.huggingface import files
from leviathan.huggingface import llama
from leviathan.huggingface import tokenizers


def import_(
  config: experiment.Config,
  source: epath.Path,
  run: rundir.RunDir,
  say: Callable[[str], None],
) -> None:
  """Makes a run with a checkpoint at step 0 that has the Llama's parameters.

  It is the run that `leviathan train` would begin with this config, but for the
  parameters; Adam's moments are 0. It appears once all has been checked.

  Args:
    config: with a table for its input, of data made with the Llama's tokenizer.
    source: the directory, with config.json and safetensors.
    run: the directory of the run, which must not exist.
    say: prints a line for the person who watches.

  Raises:
    ConfigError: the config is of other sizes; the flags to give are named.
    DataError: the Llama is one that our model cannot be, its files are damaged,
      or its tokenizer is not that of the data.
    CheckpointError: the run cannot be written there.
  """
  outputs.check_free(run.path)
  where = str(source / check.CONFIG_FILE)
  shape = llama.shape(files.json_object(source / check.CONFIG_FILE), where)
  _check_sizes(config, shape, where)
  data = experiment.open_training(config)
  if shape.vocab_size != config.model.vocab_size:
    # Rows of no token take probability: to cut them would change the model.
    raise errors.DataError(
      f'{where} has vocab_size={shape.vocab_size}, but the tokenizer of '
      f'config.data.train has {config.model.vocab_size} tokens; prepare data '
      "with the Llama's own; more rows than tokens are not supported"
    )
  say(_check_tokenizer(source, data))
  parts = _here(config)
  manifest, resolved = parts.manifest(data), dataclasses.asdict(config)
  params = llama.params(
    files.read(source), shape, parts.abstract_state.params, str(source)
  )
  state = _state(parts, params)
  say(str(check.compare(parts, state.params, source, str(source))))
  if shape.key_heads < shape.heads:
    say(
      f'note: each of the {shape.key_heads} heads of keys and values is there '
      f'{shape.heads // shape.key_heads} times, once for each head of the '
      'queries: the logits are the same, and training may move them apart'
    )
  run.path.parent.mkdir(parents=True, exist_ok=True)
  with outputs.durable(run.path) as temporary:
    begun = rundir.RunDir(temporary)
    rundir.claim(begun, resolved, manifest, data)
    checkpoints = checkpoint.Checkpoints(
      begun.checkpoint_dir, config.checkpoint.keep
    )
    checkpoints.save(state, manifest | {'sequences': 0})
    checkpoints.close()


def _check_sizes(
  config: experiment.Config, shape: llama.Shape, where: str
) -> None:
  """Raises ConfigError with the flags that give the Llama's sizes."""
  found = config_lib.flatten(dataclasses.asdict(config))
  file = 'tied' if shape.tied else 'untied'
  kind = {
    'config.model.embedder.name': 'table',
    'config.model.head.name': file,
  }
  if any(found[field] != value for field, value in kind.items()):
    raise errors.ConfigError(
      f'{where} has tie_word_embeddings={shape.tied} and a table for its '
      f'input, not config.arm={config.arm!r}; give '
      f'--config=configs/{file}.py:SCALE'
    )
  sizes = {
    'config.model.width': shape.width,
    'config.model.layers': shape.layers,
    'config.model.head_width': shape.head_width,
    'config.model.mlp_width': shape.mlp_width,
  }
  wrong = [f'--{k}={v}' for k, v in sizes.items() if found[k] != v]
  if wrong:
    raise errors.ConfigError(
      f'{where} is of other sizes than the config; give '
      f'{" ".join(wrong)}, here and to `leviathan train`'
    )
  if config.data.seq_len > shape.length:
    raise errors.ConfigError(
      f'config.data.seq_len={config.data.seq_len}, but {where} has '
      f'max_position_embeddings={shape.length}; give --config.data.seq_len='
      f'{shape.length}, and data of that length'
    )


def _check_tokenizer(source: epath.Path, data: mixture.Mixture) -> str:
  """A line on what was found; DataError if the data's is another tokenizer."""
  ours = data.datasets[0].tokenizer()
  for path in sorted(source.iterdir()):
    if path.name.startswith('tokenizer') and path.is_file():
      if hashlib.sha256(path.read_bytes()).hexdigest() == ours.sha256:
        return f"the data's tokenizer is {path}"
  path = source / huggingface_json.JSON_FILE
  if not path.exists():
    return (
      f"note: {source} has no tokenizer to hold the data's against; ids of "
      'another would mean other words'
    )
  try:
    theirs = library.Tokenizer.from_buffer(path.read_bytes())
  except ValueError as e:
    raise errors.DataError(
      f'{path} is damaged ({errors.first_line(e)}); fetch it again'
    ) from e
  problem = tokenizers.difference(ours, theirs)
  if problem is not None:
    raise errors.DataError(
      f"{path} is another tokenizer than the data's ({problem}); prepare them "
      f'with --tokenizer=hf:{path}'
    )
  return f"the data's tokenizer gives the same ids as {path}"


def _here(config: experiment.Config) -> experiment.Experiment:
  """The experiment on the devices at hand, whatever it will be trained on."""
  return experiment.make(
    dataclasses.replace(
      config,
      model=dataclasses.replace(config.model, attention='xla'),
      mesh=sharding.MeshConfig(data=-1, fsdp=1, tensor=1),
    )
  )


def _state(parts: experiment.Experiment, params: Any) -> state_lib.State:
  """A state at step 0 with these parameters."""
  state = parts.fresh_state()
  shardings = jax.tree.map(lambda x: x.sharding, state.params)
  return state.replace(params=jax.device_put(params, shardings))
