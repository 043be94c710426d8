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
import numpy as np
import tqdm

from leviathan import errors
from leviathan import prng
from leviathan.eval import harness
from leviathan.eval import pairs
from leviathan.eval import requests as requests_lib

ROWS = 16  # Prompts that are continued at once.
BUFFER = 64  # Buffers are multiples of this long, so that few are compiled.
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
    for i, p in enumerate(prompts):
      alike[len(p.ids), p.new_tokens, p.temperature].append(i)
    batches = [
      members[start : start + ROWS]
      for members in alike.values()
      for start in range(0, len(members), ROWS)
    ]
    texts = [''] * len(prompts)
    with _ticks(len(prompts)) as tick:
      for number, members in enumerate(batches):
        found = self._continue([prompts[i] for i in members], number)
        for i, new in zip(members, found, strict=True):
          texts[i] = self._text(new, prompts[i].until)
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

  def _continue(self, prompts: Sequence[_Prompt], number: int) -> list[Any]:
    """The new ids after prompts of one length; `number` is of the batch."""
    filled, new_tokens = len(prompts[0].ids), prompts[0].new_tokens
    end = filled + new_tokens
    length = min(-(-end // BUFFER) * BUFFER, self._model.length)
    ids_BL = np.zeros((ROWS, length), np.int32)
    ids_BL[: len(prompts), :filled] = [p.ids for p in prompts]
    with jax.set_mesh(self._model.mesh):
      ids_BL = self._sampler(length)(
        self._model.params,
        jnp.asarray(ids_BL),
        filled,
        prng.stream(prng.root(0), 'harness', number),
        prompts[0].temperature,
      )
    return np.asarray(ids_BL)[: len(prompts), filled:end].tolist()

  def _text(self, ids: list[int], until: Sequence[str]) -> str:
    """What comes before EOS and before the first of the stops."""
    if self.eot_token_id in ids:
      ids = ids[: ids.index(self.eot_token_id)]
    text = self._model.tokenizer.decode(ids)
    for stop in until:
      if stop:
        text = text.partition(stop)[0]
    return text


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
