"""Continues a prompt with a trained model.

leviathan generate --workdir=runs/lev --prompt='def main('
"""

from absl import flags
import jax
import jax.numpy as jnp
import numpy as np

from leviathan import errors
from leviathan import prng
from leviathan import restore
from leviathan import sampling
from leviathan.cli import run_flags

PROMPT = flags.DEFINE_string('prompt', '', 'Text to go on from.')
MAX_TOKENS = flags.DEFINE_integer(
  'max_tokens',
  64,
  'New tokens at most; prompt and new tokens together do '
  'not exceed the length trained with.',
  lower_bound=1,
)
SAMPLES = flags.DEFINE_integer(
  'samples', 1, 'How many continuations.', lower_bound=1
)
TEMPERATURE = flags.DEFINE_float(
  'temperature', 0.8, '0 takes the likeliest token.', lower_bound=0
)
SEED = flags.DEFINE_integer('seed', 0, 'Of the sampling.')


def main(argv) -> None:
  """Runs the command."""
  del argv
  loaded = restore.with_table(run_flags.restored())
  tokenizer = loaded.run.tokenizer()
  # Documents follow an end-of-sequence token in training, so a prompt does.
  prompt = [tokenizer.eos_id, *tokenizer.encode(PROMPT.value)]
  seq_len = loaded.parts.config.data.seq_len
  if len(prompt) >= seq_len:
    raise errors.ConfigError(
      f'--prompt is {len(prompt) - 1} tokens long; the model was trained on '
      f'{seq_len}, give {seq_len - 2} or fewer'
    )
  length = min(seq_len, len(prompt) + MAX_TOKENS.value)
  ids_BL = np.zeros((SAMPLES.value, length), np.int32)
  ids_BL[:, : len(prompt)] = prompt
  sample = sampling.make(loaded.parts.model, length)
  with jax.set_mesh(loaded.parts.mesh):
    ids_BL = sample(
      loaded.params,
      jnp.asarray(ids_BL),
      len(prompt),
      prng.root(SEED.value),
      TEMPERATURE.value,
    )
  for ids_L in np.asarray(ids_BL).tolist():
    new = ids_L[len(prompt) :]
    if tokenizer.eos_id in new:
      new = new[: new.index(tokenizer.eos_id)]
    print(tokenizer.decode(prompt[1:] + new))
    if SAMPLES.value > 1:
      print('-' * 40)
