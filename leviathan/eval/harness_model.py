"""This project's model as lm-evaluation-harness wants one.

`harness` alone imports this, once it knows that lm_eval is installed.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
from lm_eval.api import model as lm_eval_model
from lm_eval.models import utils as lm_eval_utils
import tqdm

from leviathan import continuation
from leviathan import errors
from leviathan import prng
from leviathan import sampling
from leviathan.eval import harness
from leviathan.eval import pairs
from leviathan.eval import requests as requests_lib

ROWS = 16  # Prompts that are continued at once.
CHOICES = ('until', 'do_sample', 'temperature', 'max_gen_toks')


class _Prompt(NamedTuple):
  """A prompt and how it is continued."""

  ids: Sequence[int]
  new_tokens: int
  temperature: float
  until: Sequence[str]


class HarnessModel(lm_eval_model.TemplateLM):
  """Log-likelihoods by the scorer, and text by the sampler.

  Attributes:
    scored: {(task, index of the document, index of the request in it): what
      the scorer gave}.
  """

  def __init__(self, model: harness.Model):
    """Takes what is evaluated."""
    super().__init__()
    self.scored: dict[tuple[Any, Any, int], requests_lib.Scored] = {}
    self._model = model
    self._sampler = functools.cache(model.sampler)
    self._instances: Sequence[Any] = ()

  @property
  def eot_token_id(self) -> int:
    """EOS, which also is the context where there is none."""
    return self._model.tokenizer.eos_id

  def tok_encode(
    self, string: str, add_special_tokens: bool | None = None, **kwargs
  ) -> list[int]:
    """The ids of a text; there are no special tokens to add."""
    del add_special_tokens, kwargs
    return list(self._model.tokenizer.encode(string))

  def _encode_pair(
    self, context: str, continuation: str
  ) -> tuple[list[int], list[int]]:
    """The harness's own, but where it leaves one of the two without tokens."""
    found = super()._encode_pair(context, continuation)
    if all(found):
      return found
    pair = pairs.encode_pair(self._model.tokenizer, context, continuation)
    return list(pair.ids[: pair.start]), list(pair.ids[pair.start :])

  def loglikelihood(
    self, requests: list[Any], disable_tqdm: bool = True
  ) -> list[tuple[float, bool]]:
    """Of each (context, continuation): nats, and whether all were likeliest."""
    _check_texts(requests)
    self._instances = requests  # Which its helper is not told.
    return super().loglikelihood(requests, disable_tqdm=disable_tqdm)

  def _loglikelihood_tokens(self, requests, **kwargs):
    del kwargs
    scored = self._score(
      self._instances,
      [
        requests_lib.Request([*context, *rest], len(context))
        for _, context, rest in requests
      ],
    )
    return [(-s.nats, s.greedy) for s in scored]

  def loglikelihood_rolling(
    self, requests: list[Any], disable_tqdm: bool = True
  ) -> list[float]:
    """Of each whole text, after EOS, each token scored once: nats."""
    del disable_tqdm
    _check_texts(requests)
    eos = self.eot_token_id
    scored = self._score(
      requests,
      [
        requests_lib.Request([eos, *self.tok_encode(request.args[0])], 1)
        for request in requests
      ],
    )
    return [-s.nats for s in scored]

  def _score(self, instances, asked) -> list[requests_lib.Scored]:
    """By the scorer, and kept in `scored`."""
    with _ticks(len(asked)) as tick:
      scored = self._model.scorer(self._model.params, asked, tick)
    for i, s in zip(instances, scored, strict=True):
      self.scored[i.task_name, i.doc_id, i.idx] = s
    return scored

  def generate_until(
    self, requests: list[Any], disable_tqdm: bool = True
  ) -> list[str]:
    """Each prompt's continuation, up to a stop, EOS or so many tokens."""
    del disable_tqdm
    prompts = [self._prompt(request) for request in requests]
    alike = collections.defaultdict(list)
    # Those of a batch are read, and written, at about the same length.
    for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i].ids)):
      alike[prompts[i].temperature].append(i)
    batches = [
      members[start : start + ROWS]
      for members in alike.values()
      for start in range(0, len(members), ROWS)
    ]
    texts = [''] * len(prompts)
    with _ticks(len(prompts)) as tick:
      for members in batches:
        found = self._continue([prompts[i] for i in members], members)
        for i, text in zip(members, found, strict=True):
          texts[i] = text
        tick(len(members))
    return texts

  def _prompt(self, request: Any) -> _Prompt:
    """The end of the prompt, so that what is asked for fits after it.

    More new tokens than half of the length leave the prompt the other half.
    """
    context, given = request.args
    how: dict[str, Any] = dict(lm_eval_utils.normalize_gen_kwargs(given))
    temperature = float(how.get('temperature', 0.0))
    if temperature and (other := sorted(set(how) - set(CHOICES))):
      raise errors.ConfigError(
        f'{request.task_name} samples by {", ".join(other)}, which this '
        "project's sampler does not know; leave the task out"
      )
    length, wanted = self._model.length, how['max_gen_toks']
    ids = self.tok_encode(context) or [self.eot_token_id]
    ids = ids[-max(length - wanted, length // 2) :]
    return _Prompt(
      ids, min(wanted, length - len(ids)), temperature, how['until']
    )

  def _continue(
    self, prompts: Sequence[_Prompt], numbers: Sequence[int]
  ) -> list[str]:
    """The texts after prompts of one temperature; `numbers` are theirs."""
    sample = self._sampler(sampling.Choice(temperature=prompts[0].temperature))
    # Batches are filled up, so that one size is compiled.
    filling = ROWS - len(prompts)
    ids = [p.ids for p in prompts] + [[self.eot_token_id]] * filling
    root = prng.root(0)
    key_B = jnp.stack(
      [prng.stream(root, 'harness', n) for n in [*numbers, *[0] * filling]]
    )
    texts = [
      continuation.Continuation(self._model.tokenizer, p.until, p.new_tokens)
      for p in prompts
    ]
    with jax.set_mesh(self._model.mesh):
      for new in sample(self._model.params, ids, key_B):
        for text, more in zip(texts, new, strict=False):
          text.feed(more)
        if all(text.done for text in texts):
          break
    return [text.text for text in texts]


def _check_texts(asked: Sequence[Any]) -> None:
  """Raises DataError where nothing is to be scored."""
  for request in asked:
    if not request.args[-1]:
      raise errors.DataError(
        f'{request.task_name}, document {request.doc_id}: the text to score is '
        'empty; leave the task out'
      )


@contextlib.contextmanager
def _ticks(total: int) -> Iterator[Callable[[int], None]]:
  """A bar of so many requests, where there is a terminal to see it."""
  with tqdm.tqdm(total=total, unit=' requests', disable=None) as bar:

    def tick(count: int) -> None:
      bar.update(count)

    yield tick
