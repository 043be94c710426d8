"""Figures of a task: accuracies, and a perplexity where a word is asked for."""

from collections.abc import Iterator
from collections.abc import Sequence
import math
import operator
import statistics
from typing import Any

from leviathan.data import tokenizer as tokenizer_lib
from leviathan.eval import pairs as pairs_lib
from leviathan.eval import requests
from leviathan.eval import task_files
from leviathan.eval import tasks

# What `protocol` says of what stands before a context, and of acc_norm.
BOS = 'none; an empty context is EOS'
NORMALISER = 'characters of the choice, without the space in front of it'


def encode(
  tokenizer: tokenizer_lib.Tokenizer, items: Sequence[tasks.Item]
) -> list[pairs_lib.Pair]:
  """The pairs of all items as token ids, one after another.

  Raises:
    DataError: see pairs.encode_pair.
  """
  return [
    pairs_lib.encode_pair(tokenizer, context, continuation)
    for item in items
    for context, continuation in item.pairs
  ]


def figures(
  task: tasks.Task,
  items: Sequence[tasks.Item],
  pairs: Sequence[pairs_lib.Pair],
  scored: Sequence[requests.Scored],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
  """What the scores of a task's pairs come to.

  `acc` takes the choice of the highest log-likelihood, `acc_norm` that of the
  highest per character; the first of equals. Where there is no choice, `acc`
  counts the items whose continuation is the likeliest token by token, and
  `perplexity` is exp of the mean nats of an item (not of a token). Standard
  errors are of the sampling of items: of a mean, and for a perplexity that
  of its logarithm times itself (delta method; the harness resamples).

  Args:
    task: which.
    items: of the task, N of them.
    pairs: what `encode` made of them.
    scored: what each pair came to.

  Returns:
    The figures, and N samples with what each item came to, in order.
  """
  samples = [
    _sample(item, p, s) for item, p, s in _by_item(items, pairs, scored)
  ]
  found: dict[str, Any] = {}
  for metric in task.metrics:
    if metric == 'perplexity':
      values = [sample['nats'][0] for sample in samples]
    else:
      values = [float(sample[metric]) for sample in samples]
    mean, stderr = statistics.fmean(values), mean_stderr(values)
    if metric == 'perplexity':
      mean = math.exp(min(mean, 700.0))
      stderr *= mean
    found |= {metric: mean, f'{metric}_stderr': stderr}
  counts = {
    'items': len(items),
    'requests': len(pairs),
    'scored_tokens': sum(s.tokens for s in scored),
    'merged': sum(p.merged for p in pairs),
    'truncated': sum(s.truncated for s in scored),
  }
  return found | counts, samples


def mean_stderr(values: Sequence[float]) -> float:
  """Standard error of a mean (n - 1); nan of a single value."""
  if len(values) < 2:
    return math.nan
  return statistics.stdev(values) / math.sqrt(len(values))


def _by_item(
  items: Sequence[tasks.Item],
  pairs: Sequence[pairs_lib.Pair],
  scored: Sequence[requests.Scored],
) -> Iterator[tuple[tasks.Item, Sequence[Any], Sequence[Any]]]:
  """Each item with what is its own."""
  end = 0
  for item in items:
    start, end = end, end + len(item.pairs)
    yield item, pairs[start:end], scored[start:end]
  assert end == len(pairs) == len(scored), (end, len(pairs), len(scored))


def _sample(
  item: tasks.Item,
  pairs: Sequence[pairs_lib.Pair],
  scored: Sequence[requests.Scored],
) -> dict[str, Any]:
  """What an item came to."""
  nats = [s.nats for s in scored]
  sample: dict[str, Any] = {
    'id': item.id,
    'gold': item.gold,
    'nats': nats,
    'tokens': [s.tokens for s in scored],
    'greedy': [s.greedy for s in scored],
    'merged': [p.merged for p in pairs],
    'truncated': [s.truncated for s in scored],
  }
  if item.gold is None:
    return sample | {'acc': int(scored[0].greedy)}
  sample['prediction'] = _first_least(nats)
  sample['acc'] = int(sample['prediction'] == item.gold)
  if item.lengths:
    sample['lengths'] = list(item.lengths)
    per_character = list(map(operator.truediv, nats, item.lengths))
    sample['prediction_norm'] = _first_least(per_character)
    sample['acc_norm'] = int(sample['prediction_norm'] == item.gold)
  return sample


def _first_least(values: Sequence[float]) -> int:
  """Index of the first of the least."""
  return min(range(len(values)), key=values.__getitem__)


def protocol(task: tasks.Task, data: task_files.Data) -> dict[str, Any]:
  """How the figures of a task were made: what to cite with them."""
  return {
    'task': task.name,
    'version': task.version,
    'follows': f'lm-evaluation-harness {tasks.HARNESS}, {task.harness_name}',
    'shots': 0,
    'acc_norm': NORMALISER if 'acc_norm' in task.metrics else None,
    'bos': BOS,
    'split': task.source.hub.split,
    'items': len(data.items),
    **origin(task.source, data.source, data.sha256),
  }


def origin(
  source: tasks.Source, name: str, sha256: dict[str, str]
) -> dict[str, Any]:
  """Where rows came from; `official` is None for the hub's."""
  known = set(sha256) <= set(source.files)
  official = sha256.items() <= source.files.items() if known else None
  return {'source': name, 'sha256': sha256, 'official': official}
