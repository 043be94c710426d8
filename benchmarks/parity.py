"""Whether the tasks come out as in lm-evaluation-harness, item by item.

  python benchmarks/parity.py --workdir=runs/lev --task_data=official/files

Each of the six tasks and Wikitext is run on the same checkpoint and files by
this project's own code and through the harness: prompts, choices, tokens,
metrics and averages are each's own, the forward pass is shared. Prints one JSON
row a task. Items disagree where a request has other tokens or a log-probability
that differs by more than TOLERANCE, or where another choice is made; figures
where they differ by more than rounding. Any of that exits with 1.
"""

from collections.abc import Sequence
import itertools
import json
import math
import operator
import sys
from typing import Any

from absl import app
from absl import flags

from leviathan import evaluate
from leviathan import restore
from leviathan import rundir
from leviathan.eval import downstream
from leviathan.eval import harness
from leviathan.eval import requests
from leviathan.eval import task_files
from leviathan.eval import tasks
from leviathan.eval import wikitext

WORKDIR = flags.DEFINE_string('workdir', None, 'A run.', required=True)
STEP = flags.DEFINE_integer('step', None, 'Checkpoint; the latest by default.')
TASK_DATA = flags.DEFINE_string(
  'task_data', None, 'Folder with the official files.', required=True
)
TASKS = flags.DEFINE_list('tasks', [*tasks.TASKS, wikitext.NAME], 'Of them.')
LIMIT = flags.DEFINE_integer('limit', None, 'Items of each; all by default.')

TOLERANCE = 1e-4  # nats a request
ROUNDING = 1e-9  # of figures, relative
# The harness resamples for its standard error, and takes a seed for that.
RESAMPLED = ('perplexity_stderr',)


def load() -> harness.Model:
  """The checkpoint."""
  run = rundir.open_(WORKDIR.value)
  loaded = restore.with_table(restore.restore(run, STEP.value))
  return evaluate.for_harness(loaded)


def native(model: harness.Model, name: str) -> harness.Result:
  """By this project's own code."""
  if name == wikitext.NAME:
    pages = wikitext.read(TASK_DATA.value).pages[: LIMIT.value]
    scored = score(model, wikitext.encode(model.tokenizer, pages))
    return harness.Result(*wikitext.figures(pages, scored))
  task = tasks.TASKS[name]
  items = task_files.read(task, TASK_DATA.value).items[: LIMIT.value]
  pairs = downstream.encode(model.tokenizer, items)
  scored = score(model, pairs)
  return harness.Result(*downstream.figures(task, items, pairs, scored))


def score(model: harness.Model, pairs: Sequence[Any]) -> list[requests.Scored]:
  """What the pairs come to."""
  asked = [requests.Request(pair.ids, pair.start) for pair in pairs]
  return model.scorer(model.params, asked, lambda count: None)


def through_harness(model: harness.Model, name: str) -> harness.Result:
  """The same through the harness."""
  found = harness.run(model, [name], TASK_DATA.value, LIMIT.value)
  return dict(found)[name]


def difference(ours: dict, theirs: dict) -> float:
  """Of an item: the largest of its requests, in nats; infinite if unlike."""
  if as_list(ours['tokens']) != theirs['tokens']:
    return math.inf
  nats = as_list(ours['nats']), theirs['nats']
  return max(abs(a - b) for a, b in zip(*nats, strict=True))


def as_list(value: Any) -> list:
  """Of a page we have one number, where the harness has one request."""
  return value if isinstance(value, list) else [value]


def agree(ours: dict, theirs: dict) -> bool:
  """Whether an item has the same choices, and counts alike."""
  if difference(ours, theirs) > TOLERANCE:
    return False
  nats, found = theirs['nats'], []
  if 'prediction' in ours:
    found.append((ours['prediction'], nats.index(min(nats))))
  if 'prediction_norm' in ours:
    each = list(map(operator.truediv, nats, ours['lengths']))
    found.append((ours['prediction_norm'], each.index(min(each))))
  for metric in ('acc', 'acc_norm'):
    found.append((ours.get(metric), theirs['metrics'].get(metric)))
  return all(a == b for a, b in found)


def row(name: str, ours: harness.Result, theirs: harness.Result) -> dict:
  """What is printed of a task."""
  # None for an item that one of the two lacks.
  both = itertools.zip_longest(ours.samples, theirs.samples)
  pairs = [(a, b) for a, b in both if a and b]
  wrong = [a['id'] for a, b in pairs if not agree(a, b)]
  figures = {
    metric: [ours.figures.get(metric), value]
    for metric, value in theirs.figures.items()
    if metric.removesuffix('_stderr') in theirs.samples[0]['metrics']
  }
  unlike = [
    metric
    for metric, (a, b) in figures.items()
    if metric not in RESAMPLED
    and not (a is not None and math.isclose(a, b, rel_tol=ROUNDING))
  ]
  lacking = len(ours.samples) + len(theirs.samples) - 2 * len(pairs)
  return {
    'task': name,
    'items': len(pairs),
    'requests': sum(len(b['nats']) for _, b in pairs),
    'largest_difference_nats': max(difference(a, b) for a, b in pairs),
    'disagreements': len(wrong) + lacking,
    'first_disagreements': wrong[:5],
    'figures_that_differ': unlike,
    # [ours, the harness's] of each.
    'figures': figures,
  }


def main(argv: Sequence[str]) -> None:
  """Prints the rows."""
  del argv
  model = load()
  agreed = True
  for name in TASKS.value:
    found = row(name, native(model, name), through_harness(model, name))
    agreed &= not (found['disagreements'] or found['figures_that_differ'])
    print(json.dumps(found), flush=True)
  sys.exit(not agreed)


if __name__ == '__main__':
  app.run(main)
