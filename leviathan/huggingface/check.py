"""Whether the files of a Llama compute what a model of ours does.

They are read back and held against the model: by a twin in plain numpy, and
where torch and transformers are installed by `LlamaForCausalLM` itself. Layouts
that are mixed up give fluent nonsense and no error, so this is never left out.
"""

from collections.abc import Iterator
import dataclasses
import importlib
import importlib.util
from typing import Any

from etils import epath
import jax
import jax.numpy as jnp
import numpy as np

from leviathan import errors
from leviathan import experiment
from leviathan.huggingface import files
from leviathan.huggingface import twin

LIMIT = 1e-4  # of the difference of any logit, in float32; see `_limit`
LENGTHS = (1, 32)  # tokens, and all that the model reads
CONFIG_FILE = 'config.json'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
  """What was compared.

  Attributes:
    lengths: of the rows, in tokens.
    largest: {what it was compared with: the largest difference}.
  """

  lengths: tuple[int, ...]
  largest: dict[str, float]

  def __str__(self) -> str:
    """For people."""
    lengths = ', '.join(map(str, self.lengths))
    differences = ' and '.join(
      f'{value:.1e} ({name})' for name, value in self.largest.items()
    )
    return f'logits of rows of {lengths} tokens differ by at most {differences}'


def compare(
  parts: experiment.Experiment, params: Any, directory: epath.Path, where: str
) -> Found:
  """Compares the files of a directory with a model, in float32.

  Args:
    parts: whose model it is, of whatever input and precision.
    params: its parameters.
    directory: with config.json and safetensors, of the same V.
    where: its name, for messages.

  Raises:
    DataError: a logit differs by `_limit` or more.
  """
  vocab_size = parts.config.model.vocab_size
  longest = parts.config.data.seq_len
  ids_L = np.random.default_rng(0).integers(0, vocab_size, longest)
  ids_L[:2] = [vocab_size - 1, 0][:longest]
  lengths = tuple(sorted({*(n for n in LENGTHS if n < longest), longest}))
  rows = [ids_L[:n] for n in lengths]
  # An input sees none after it, so a row has the logits of its beginnings too.
  ours_LV = _ours(parts, params, ids_L)
  largest = {}
  for name, theirs in _theirs(directory, rows):
    largest[name] = 0.0
    for theirs_LV in theirs:
      length = len(theirs_LV)
      difference = float(np.abs(theirs_LV - ours_LV[:length]).max())
      limit = _limit(ours_LV[:length])
      if not difference < limit:  # Nor is nan.
        raise errors.DataError(
          f'{where}: by {name} the logits of {length} tokens differ by '
          f'{difference:.1e} from those of our model; less than {limit:.2g} is '
          'wanted. Try JAX_PLATFORMS=cpu, and report it if it stays so'
        )
      largest[name] = max(largest[name], difference)
  return Found(lengths=lengths, largest=largest)


def _limit(ours_LV: np.ndarray) -> float:
  """By less than this logits may differ.

  Of rows longer than LENGTHS it grows with the logits, as rounding does: far
  from 0 the last bit of a rotary frequency turns an angle. Layouts that are
  mixed up differ by as much as the logits themselves.
  """
  if len(ours_LV) <= max(LENGTHS):
    return LIMIT
  return LIMIT * max(1.0, float(np.abs(ours_LV).max()))


def _ours(
  parts: experiment.Experiment, params: Any, ids_L: np.ndarray
) -> np.ndarray:
  """logits_LV of our model, without the rows that pad V."""
  model = dataclasses.replace(
    parts.config.model, precision='float32', attention='xla'
  )
  parts = experiment.Experiment(
    dataclasses.replace(parts.config, model=model), parts.mesh
  )
  # A row for each device, since the mesh splits rows.
  ids_BL = jnp.asarray(np.tile(ids_L, (parts.mesh.size, 1)), jnp.int32)
  with jax.set_mesh(parts.mesh), jax.default_matmul_precision('highest'):
    logits_BLV = jax.jit(parts.model.apply)({'params': params}, ids_BL)
  return np.asarray(logits_BLV[0])[:, : model.vocab_size]


def _theirs(
  directory: epath.Path, rows: list[np.ndarray]
) -> Iterator[tuple[str, list[np.ndarray]]]:
  """(who computed, logits_LV of each row) from the files."""
  config = files.json_object(directory / CONFIG_FILE)
  tensors = files.read(directory)
  yield 'numpy', [twin.logits(config, tensors, row) for row in rows]
  if not has_transformers():
    return
  torch = importlib.import_module('torch')
  transformers = importlib.import_module('transformers')
  transformers.utils.logging.disable_progress_bar()
  model = transformers.LlamaForCausalLM.from_pretrained(
    str(directory), dtype=torch.float32, local_files_only=True
  ).eval()
  with torch.no_grad():
    logits = [
      model(torch.from_numpy(row)[None], use_cache=False).logits[0].numpy()
      for row in rows
    ]
  yield f'transformers {transformers.__version__}', logits


def has_transformers() -> bool:
  """Whether transformers and torch are installed."""
  return all(map(importlib.util.find_spec, ('torch', 'transformers')))
