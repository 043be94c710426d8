"""Continues prompts with a trained model.

leviathan generate --workdir=runs/lev --prompt='def main('
leviathan generate --workdir=runs/lev --interactive

A continuation depends on its prompt, --seed and its number among --samples.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import io
import sys
import time

from absl import flags
import jax
import jax.numpy as jnp

from leviathan import continuation
from leviathan import errors
from leviathan import prng
from leviathan import restore
from leviathan import sampling
from leviathan.cli import run_flags

PROMPTS = flags.DEFINE_multi_string(
  'prompt', [], 'Text to go on from; may be repeated.'
)
INTERACTIVE = flags.DEFINE_boolean(
  'interactive',
  False,
  'Reads a prompt a line from the standard input; Ctrl-C stops what is being '
  'written, and leaves where nothing is.',
)
MAX_TOKENS = flags.DEFINE_integer(
  'max_tokens',
  64,
  'New tokens at most; prompt and new tokens together do '
  'not exceed the length trained with.',
  lower_bound=1,
)
SAMPLES = flags.DEFINE_integer(
  'samples', 1, 'How many continuations of each prompt.', lower_bound=1
)
TEMPERATURE = flags.DEFINE_float(
  'temperature', 0.8, '0 takes the likeliest token.', lower_bound=0
)
TOP_K = flags.DEFINE_integer(
  'top_k', None, 'Draws from so many of the likeliest tokens; by default all.'
)
TOP_P = flags.DEFINE_float(
  'top_p', 1.0, 'Draws from the likeliest tokens of this probability in all.'
)
STOPS = flags.DEFINE_multi_string(
  'stop', [], 'Text before which a continuation ends; may be repeated.'
)
SEED = flags.DEFINE_integer('seed', 0, 'Of the sampling.')

ROWS = 16  # Continuations that are written at once.


def main(argv) -> None:
  """Runs the command."""
  del argv
  if INTERACTIVE.value and PROMPTS.value:
    raise errors.ConfigError(
      f'--prompt={PROMPTS.value[0]!r} with --interactive; give one of the two'
    )
  choice = sampling.Choice(
    temperature=TEMPERATURE.value, top_k=TOP_K.value, top_p=TOP_P.value
  )
  writer = _Writer(run_flags.restored(), choice)
  if INTERACTIVE.value:
    _converse(writer)
  else:
    writer.write(PROMPTS.value or [''])


def _converse(writer: '_Writer') -> None:
  """A prompt a line, up to the end of the input."""
  sign = '> ' if sys.stdin.isatty() else ''
  if isinstance(sys.stdin, io.TextIOWrapper):
    # A line that is no text is one error, as a flag is, and the next is read.
    sys.stdin.reconfigure(errors='surrogateescape')
  while True:
    try:
      prompt = input(sign)
    except EOFError:
      return
    except KeyboardInterrupt:
      print()
      sys.exit(130)  # As after any Ctrl-C, but there is nothing to go on with.
    try:
      writer.write([prompt])
    except errors.ConfigError as e:
      print(f'error: {e}', file=sys.stderr)
    except KeyboardInterrupt:
      print()


class _Writer:
  """Writes continuations to the standard output."""

  def __init__(self, loaded: restore.Restored, choice: sampling.Choice):
    """Takes the run, and how tokens are drawn."""
    self._loaded = restore.with_table(loaded)
    self._tokenizer = loaded.run.tokenizer()
    self._seq_len = loaded.parts.config.data.seq_len
    self._sampler = sampling.make(
      self._loaded.parts.model, self._seq_len, choice
    )

  def write(self, prompts: Sequence[str]) -> None:
    """All continuations, in order.

    A single one is shown on a terminal while it is written.

    Raises:
      ConfigError: a prompt leaves no room for a token, or is no text.
    """
    ids = {prompt: self._encode(prompt) for prompt in prompts}
    rows = [(p, n) for p in prompts for n in range(SAMPLES.value)]
    live = len(rows) == 1 and sys.stdout.isatty()
    if live:
      print(prompts[0], end='', flush=True)
    for start in range(0, len(rows), ROWS):
      batch = rows[start : start + ROWS]
      texts = [self._text(ids[prompt]) for prompt, _ in batch]
      with jax.set_mesh(self._loaded.parts.mesh):
        for new in self._feed(texts, ids, batch):
          if live:
            print(new[0], end='', flush=True)
      for (prompt, _), text in zip(batch, texts, strict=True):
        print('' if live else prompt + text.text, flush=True)
        if len(rows) > 1:
          print('-' * 40)

  def _encode(self, prompt: str) -> list[int]:
    try:
      prompt.encode()
    except UnicodeEncodeError as e:
      raise errors.ConfigError(
        f'the prompt {ascii(prompt[:20])} is not UTF-8 from character '
        f'{e.start + 1} on; give text in UTF-8'
      ) from e
    # Documents follow an end-of-sequence token in training, so a prompt does.
    ids = [self._tokenizer.eos_id, *self._tokenizer.encode(prompt)]
    if len(ids) >= self._seq_len:
      raise errors.ConfigError(
        f'the prompt {prompt[:20]!r}... is {len(ids) - 1} tokens long, and the '
        f'model was trained on {self._seq_len}; give {self._seq_len - 2} or '
        'fewer'
      )
    return ids

  def _text(self, prompt_ids: Sequence[int]) -> continuation.Continuation:
    room = self._seq_len - len(prompt_ids)
    return continuation.Continuation(
      self._tokenizer, STOPS.value, min(MAX_TOKENS.value, room)
    )

  def _feed(
    self,
    texts: Sequence[continuation.Continuation],
    ids: Mapping[str, Sequence[int]],
    rows: Sequence[tuple[str, int]],
  ) -> Iterator[list[str]]:
    """Writes the text of each (prompt, number); yields what is new in each."""
    root = prng.root(SEED.value)
    key_B = jnp.stack([prng.stream(root, f'sample {p}', n) for p, n in rows])
    prompts = [ids[prompt] for prompt, _ in rows]
    start = time.perf_counter()
    pace = []
    for new in self._sampler(self._loaded.params, prompts, key_B):
      yield [t.feed(row) for t, row in zip(texts, new, strict=True)]
      tokens = sum(text.tokens for text in texts)
      pace.append((tokens, time.perf_counter() - start))
      if all(text.done for text in texts):
        break
    print(_speed(*pace[0], *pace[-1]), file=sys.stderr)


def _speed(first: int, first_seconds: float, tokens: int, seconds: float):
  """How fast so many tokens came, the first of them apart: they compile."""
  told = f'{tokens} tokens in {seconds:.1f} s'
  if tokens == first:
    return told
  rate = (tokens - first) / (seconds - first_seconds)
  return f'{told}; after the first {first}: {rate:.1f} tokens/s'
