"""A checkpoint as a directory that transformers, vLLM and llama.cpp read."""

from collections.abc import Callable
import dataclasses

from etils import epath
import jax
import jax.numpy as jnp
import numpy as np

from leviathan import restore
from leviathan import rundir
from leviathan.data import outputs
from leviathan.huggingface import card
from leviathan.huggingface import check
from leviathan.huggingface import files
from leviathan.huggingface import llama
from leviathan.huggingface import tokenizers

PRECISIONS = {'float32': jnp.float32, 'bfloat16': jnp.bfloat16}


def export(
  loaded: restore.Restored,
  output: epath.PathLike,
  precision: str,
  say: Callable[[str], None],
) -> epath.Path:
  """Writes a checkpoint as a Llama, and checks that it computes the same.

  The input, whatever it is, becomes a table of V rows. The directory appears
  under its name once all has been checked.

  Args:
    loaded: the checkpoint.
    output: the directory, which must not exist.
    precision: of the weights, one of PRECISIONS.
    say: prints a line for the person who watches.

  Returns:
    The directory.

  Raises:
    DataError: it exists or is in a bucket, the tokenizer cannot be written, or
      what was written computes something else.
    CheckpointError: an evaluation of the step cannot be read.
  """
  final = epath.Path(output).expanduser()
  outputs.check_free(final)
  final.parent.mkdir(parents=True, exist_ok=True)
  config = loaded.parts.config
  numbers = card.numbers(loaded)
  with jax.default_matmul_precision('highest'):
    tabled = restore.with_table(loaded)
  tensors = llama.tensors(
    jax.tree.map(np.asarray, tabled.params), config.model.vocab_size
  )
  reference = loaded
  if precision != 'float32':
    type_ = PRECISIONS[precision]
    tensors = {name: x.astype(type_) for name, x in tensors.items()}
    rounded = jax.tree.map(
      lambda x: x.astype(type_).astype(jnp.float32), tabled.params
    )
    reference = dataclasses.replace(tabled, params=rounded)
  with outputs.durable(final) as temporary:
    temporary.mkdir()
    end = _write(loaded, temporary, tensors, precision)
    compared = check.compare(
      reference.parts, reference.params, temporary, str(final)
    )
    say(str(compared))
    if not check.has_transformers():
      say(
        'note: transformers and torch are not installed, so they were not '
        "asked; pip install 'leviathan[hf]'"
      )
    text = card.text(loaded, precision, compared, end, numbers)
    (temporary / 'README.md').write_text(text)
  return final


def _write(
  loaded: restore.Restored,
  directory: epath.Path,
  tensors: dict[str, np.ndarray],
  precision: str,
) -> str:
  """Everything but the card; returns the token that ends a text."""
  config, tokenizer = loaded.parts.config, loaded.run.tokenizer()
  length = config.data.seq_len
  end = tokenizers.write(tokenizer, directory, length)
  rundir.write_json(
    directory / check.CONFIG_FILE,
    llama.config(
      config.model,
      tied=llama.HEAD not in tensors,
      length=length,
      eos_id=tokenizer.eos_id,
      precision=precision,
    ),
  )
  ends = {'bos_token_id': tokenizer.eos_id, 'eos_token_id': tokenizer.eos_id}
  rundir.write_json(directory / 'generation_config.json', ends)
  files.write(directory, tensors)
  return end
