"""Any task of lm-evaluation-harness, on a model of this project.

The six tasks and Wikitext can be run on the same official files as without it:
prompts and metrics stay the harness's own, but not where the rows lie.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import difflib
import functools
import importlib
import io
import json
import logging
import numbers
import os
import pathlib
import random
import tempfile
from typing import Any
from typing import NamedTuple
from unittest import mock

import jax
import numpy as np
import tqdm

from leviathan import errors
from leviathan import sampling
from leviathan.data import tokenizer as tokenizer_lib
from leviathan.eval import downstream
from leviathan.eval import requests
from leviathan.eval import task_files
from leviathan.eval import tasks
from leviathan.eval import wikitext

# The seeds of its command line, for tasks that shuffle or draw examples.
SEEDS = {'python': 0, 'numpy': 1234, 'examples': 1234}
# For standard errors that it bootstraps: a hundredth of its own number, since
# it is to start no processes beside an accelerator.
RESAMPLES = 1000
# Where it describes the tasks that are ours, too.
YAMLS = {
  'hellaswag': 'hellaswag/hellaswag.yaml',
  'arc_easy': 'arc/arc_easy.yaml',
  'arc_challenge': 'arc/arc_challenge.yaml',
  'piqa': 'piqa/piqa.yaml',
  'winogrande': 'winogrande/default.yaml',
  'lambada_openai': 'lambada/lambada_openai.yaml',
  'wikitext': 'wikitext/wikitext.yaml',
}
LOGGERS = ('lm_eval', 'datasets', 'evaluate', 'huggingface_hub')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
  """What is evaluated.

  Attributes:
    params: the parameters.
    scorer: see `requests.make`.
    sampler: of a choice; see `sampling.make`.
    mesh: that the parameters are on.
    tokenizer: the run's own.
    length: inputs of one forward pass at most.
  """

  params: Any
  scorer: requests.Scorer
  sampler: Callable[[sampling.Choice], sampling.Sampler]
  mesh: jax.sharding.Mesh
  tokenizer: tokenizer_lib.Tokenizer
  length: int


class Result(NamedTuple):
  """Of a task, or of a group of tasks.

  Attributes:
    figures: the harness's own, with the 'protocol' that they follow.
    samples: a row an item; a group has none.
  """

  figures: dict[str, Any]
  samples: list[dict[str, Any]]


def harness_name(name: str) -> str:
  """The harness's name of a task of ours; other names stay."""
  return tasks.TASKS[name].harness_name if name in tasks.TASKS else name


def run(
  model: Model,
  names: Sequence[str],
  task_data: str = '',
  limit: int | None = None,
) -> Iterator[tuple[str, Result]]:
  """Evaluates tasks one after another.

  Args:
    model: what is evaluated.
    names: of the harness's tasks, groups or tags, or of ours.
    task_data: folder with the official files of those that are ours; '' takes
      the harness's own data.
    limit: items of a task at most, for a trial.

  Yields:
    (name, result) of each; a group or tag gives all its tasks.

  Raises:
    ConfigError: the harness is not installed, or a name is unknown.
    DataError: a task's data cannot be had.
  """
  lm_eval = _import()
  with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    sources = {
      name: _describe(lm_eval, folder, name, task_data)
      for name in map(harness_name, names)
      if name in YAMLS
    }
    with _quiet():
      manager = lm_eval.tasks.TaskManager(
        include_path=scratch,
        # They are many thousands, which takes a while.
        include_defaults=len(sources) < len(set(map(harness_name, names))),
      )
    _check(names, manager.all_tasks)
    for name in names:
      with _quiet():
        found, scored = _evaluate(
          lm_eval, manager, harness_name(name), model, limit
        )
      for task in found['results']:
        protocol = _protocol(lm_eval, found, task, limit, model)
        protocol |= sources.get(task, {})
        result = _result(found, task, scored, protocol)
        yield (name if task == harness_name(name) else task), result


def _import() -> Any:
  """The harness, which only those who want it have installed."""
  try:
    for module in ('lm_eval.evaluator', 'lm_eval.tasks', 'datasets'):
      importlib.import_module(module)
    return importlib.import_module('lm_eval')
  except ModuleNotFoundError as e:
    raise errors.ConfigError(
      f'--harness wants lm-evaluation-harness, but {e.name} is not installed; '
      "pip install 'leviathan[eval]'"
    ) from e


def _check(names: Sequence[str], known: Sequence[str]) -> None:
  """Raises ConfigError for the first unknown name."""
  for name in names:
    if harness_name(name) not in known:
      # A list of all would be too long.
      near = difflib.get_close_matches(name, [*known, *tasks.TASKS], n=1)
      remedy = f'did you mean {near[0]}?' if near else 'see `lm-eval ls tasks`'
      raise errors.ConfigError(
        f'--tasks: {name!r} is not a task of lm-evaluation-harness; {remedy}'
      )


def _describe(
  lm_eval: Any, folder: pathlib.Path, name: str, task_data: str
) -> dict[str, Any]:
  """Writes the task's yaml, with the files' rows if there are files.

  Returns:
    What the protocol says of the data.
  """
  yamls = pathlib.Path(lm_eval.tasks.__file__).parent
  described: dict[str, Any] = {'include': str(yamls / YAMLS[name])}
  stamp = {}
  if task_data:
    split, jsonl, stamp = _local(name, task_data)
    rows = folder / f'{name}.jsonl'
    rows.write_text(jsonl)
    described |= {
      'dataset_path': 'json',
      'dataset_name': None,
      'dataset_kwargs': {
        'data_files': {split: str(rows)},
        'cache_dir': str(folder / 'cache'),
      },
      'training_split': None,
      'validation_split': None,
      'test_split': None,
      f'{split}_split': split,
    }
  # JSON is YAML, too.
  (folder / f'{name}.yaml').write_text(json.dumps(described))
  return stamp


def _local(name: str, task_data: str) -> tuple[str, str, dict[str, Any]]:
  """(split, rows in JSON lines as the hub has them, where they are from)."""
  if name == wikitext.NAME:
    source, data = wikitext.SOURCE, wikitext.read(task_data)
    jsonl = wikitext.hub_rows(data.pages)
  else:
    task = next(t for t in tasks.TASKS.values() if t.harness_name == name)
    source, data = task.source, task_files.read(task, task_data)
    jsonl = task_files.hub_rows(task, data.rows)
  origin = downstream.origin(source, data.source, data.sha256)
  return source.hub.split, jsonl, origin


def _evaluate(
  lm_eval: Any, manager: Any, name: str, model: Model, limit: int | None
) -> tuple[Mapping[str, Any], Mapping[tuple, requests.Scored]]:
  """The harness's results, and what the scorer gave for each request."""
  random.seed(SEEDS['python'])
  np.random.seed(SEEDS['numpy'])
  try:
    loaded = manager.load([name])
  except ImportError as e:
    raise errors.ConfigError(
      f'--tasks: {name!r} wants a package of its own ({errors.first_line(e)}); '
      'install it'
    ) from e
  except OSError as e:  # No network, or nothing of that name.
    raise errors.DataError(
      f'the data of {name!r} cannot be loaded ({errors.first_line(e)}); go '
      'online'
      + (', or give its official files with --task_data=DIR' * (name in YAMLS))
    ) from e
  for task in loaded['tasks'].values():
    for kind in ('UNSAFE_CODE', 'MULTIMODAL'):
      if getattr(task, kind, False):
        raise errors.ConfigError(
          f'--tasks: {task.task_name!r} is marked {kind}, which this project '
          'does not do; leave it out'
        )
    if task.get_config('num_fewshot') is None:
      task.set_config(key='num_fewshot', value=0)
    task.set_fewshot_seed(seed=SEEDS['examples'])
  # Not above: it wants lm_eval when it is imported.
  harness_model = importlib.import_module('leviathan.eval.harness_model')
  lm = harness_model.HarnessModel(model)
  found = lm_eval.evaluator.evaluate(
    lm=lm, task_dict=loaded, limit=limit, bootstrap_iters=RESAMPLES
  )
  return found, lm.scored


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Only errors are logged; bars are drawn on a terminal alone."""
  loggers = [logging.getLogger(name) for name in LOGGERS]
  levels = [logger.level for logger in loggers]
  bars = functools.partialmethod(tqdm.std.tqdm.__init__, disable=None)
  with (
    contextlib.redirect_stdout(io.StringIO()),
    # It has no argument for these two.
    mock.patch.object(tqdm.std.tqdm, '__init__', bars),
    mock.patch.dict(os.environ, DISABLE_MULTIPROC='1'),
  ):
    try:
      for logger in loggers:
        logger.setLevel(logging.ERROR)
      yield
    finally:
      for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def _protocol(
  lm_eval: Any,
  found: Mapping[str, Any],
  name: str,
  limit: int | None,
  model: Model,
) -> dict[str, Any]:
  """How the figures came about."""
  task = name in found['n-samples']  # Not a group.
  return {
    'harness': 'lm-evaluation-harness',
    'harness_version': lm_eval.__version__,
    'task': name,
    'version': found['versions'].get(name) if task else None,
    'shots': found['n-shot'].get(name) if task else None,
    'limit': limit,
    'window': model.length,
    'stride': model.length,
    'bos': downstream.BOS,
    'resamples': RESAMPLES,
    'seeds': SEEDS,
    'tokenizer_sha256': model.tokenizer.sha256,
  }


def _result(
  found: Mapping[str, Any],
  name: str,
  scored: Mapping[tuple, requests.Scored],
  protocol: Mapping[str, Any],
) -> Result:
  """Its figures under the names of its metrics, and its samples."""
  figures = {}
  for key, value in found['results'][name].items():
    metric, comma, filter_ = key.partition(',')
    if comma and isinstance(value, numbers.Real):
      name_ = metric.removesuffix('_stderr')
      error = metric[len(name_) :]
      if filter_ != 'none':
        name_ += f',{filter_}'
      figures[name_ + error] = float(value)
  members = _members(found, name)
  asked = [s for (task, *_), s in scored.items() if task in members]
  counts = [
    n['effective'] for t, n in found['n-samples'].items() if t in members
  ]
  figures['items'] = sum(counts)
  # Both 0 where text is written.
  figures['scored_tokens'] = sum(s.tokens for s in asked)
  figures['truncated'] = sum(s.truncated for s in asked)
  figures['protocol'] = protocol
  rows = found['samples'].get(name, [])
  return Result(figures, [_sample(name, row, scored) for row in rows])


def _members(found: Mapping[str, Any], name: str) -> set[str]:
  """A task itself, or the tasks of a group."""
  inside = found['group_subtasks'].get(name)
  if inside is None:
    return {name}
  return set().union(*(_members(found, member) for member in inside))


def _sample(
  name: str, row: Mapping[str, Any], scored: Mapping[tuple, requests.Scored]
) -> dict[str, Any]:
  """One item: what each request came to, or what was written."""
  sample: dict[str, Any] = {'id': str(row['doc_id'])}
  if len(row['arguments'][0]) > 1:  # Else the target is the whole document.
    sample['target'] = _plain(row['target'])
  if row['filter'] != 'none':
    sample['filter'] = row['filter']
  keys = [(name, row['doc_id'], i) for i in range(len(row['arguments']))]
  asked = [scored[key] for key in keys if key in scored]
  if asked:
    for field in ('nats', 'tokens', 'greedy', 'truncated'):
      sample[field] = [getattr(s, field) for s in asked]
  else:
    sample['written'] = _plain(row['resps'])
  # As they are before they are averaged.
  sample['metrics'] = {m: _plain(row[m]) for m in row['metrics']}
  return sample


def _plain(value: Any) -> Any:
  """The value as JSON has it."""
  if isinstance(value, list | tuple):
    return [_plain(v) for v in value]
  return value.item() if isinstance(value, np.generic) else value
