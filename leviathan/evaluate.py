"""Evaluating parameters: datasets by perplexity and strata, texts by tasks.

One way for checkpoints and for a run that trains. What is evaluated is read and
tokenized once; each pass over it gives figures, and a sample of every item.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
from typing import Any
from typing import NamedTuple

from etils import epath
import numpy as np

from leviathan import config as config_lib
from leviathan import errors
from leviathan import experiment
from leviathan import restore
from leviathan import rundir
from leviathan import sampling
from leviathan.data import counts
from leviathan.data import records
from leviathan.data import tokenizer as tokenizer_lib
from leviathan.eval import bootstrap
from leviathan.eval import downstream
from leviathan.eval import frequency
from leviathan.eval import harness
from leviathan.eval import pairs as pairs_lib
from leviathan.eval import perplexity
from leviathan.eval import requests as requests_lib
from leviathan.eval import score
from leviathan.eval import task_files
from leviathan.eval import tasks
from leviathan.eval import wikitext

PERPLEXITY, FREQUENCY = 'perplexity', 'frequency'
DATASET_TASKS = (PERPLEXITY, FREQUENCY)  # Both from one pass.
TASKS = (*DATASET_TASKS, wikitext.NAME, *tasks.TASKS)
VERSION = 1.0  # Of the protocol of DATASET_TASKS.

# Of perplexity, in the rows of a run that trains.
VALIDATION = ('nats_per_token', 'perplexity', 'bits_per_byte', 'scored_tokens')

# Called with the number of sequences that are done, or about to be; in all
# processes equally often. What it raises ends the evaluation.
Tick = Callable[[int], object]


class Result(NamedTuple):
  """What a task came to on one set.

  Attributes:
    figures: and the protocol that they were made by.
    samples: makes a line for each item.
  """

  figures: dict[str, Any]
  samples: Callable[[], list[dict[str, Any]]]


# {task: {name of the set: Result}}
Results = dict[str, dict[str, Result]]


class Training(NamedTuple):
  """What must be known of the training data.

  Attributes:
    tokenizer_sha256: of the tokenizer.
    tokenizer: loads it.
    counts_V: int64, how often each token was predicted in an epoch.
    fingerprint: of the data.
  """

  tokenizer_sha256: str
  tokenizer: Callable[[], tokenizer_lib.Tokenizer]
  counts_V: np.ndarray
  fingerprint: str


def training_of(run: rundir.RunDir) -> Training:
  """Of a run's training data, from its own files."""
  manifest = run.manifest()
  return Training(
    tokenizer_sha256=manifest['tokenizer']['sha256'],
    tokenizer=run.tokenizer,
    counts_V=run.unigram_counts(),
    fingerprint=manifest['dataset_fingerprint'],
  )


def for_harness(loaded: restore.Restored) -> harness.Model:
  """The same model as lm-evaluation-harness is given it."""
  parts, length = loaded.parts, loaded.parts.config.data.seq_len
  return harness.Model(
    params=loaded.params,
    scorer=parts.request_scorer,
    sampler=functools.partial(sampling.make, parts.model, length),
    mesh=parts.mesh,
    tokenizer=loaded.run.tokenizer(),
    length=length,
  )


class Texts(NamedTuple):
  """A task that is made of texts.

  Attributes:
    task: its name.
    split: of its data.
    pairs: what a model is asked.
    figures: what the answers come to, and a sample an item.
    protocol: how.
  """

  task: str
  split: str
  pairs: Sequence[pairs_lib.Pair]
  figures: Callable[
    [Sequence[requests_lib.Scored]], tuple[dict[str, Any], list[dict[str, Any]]]
  ]
  protocol: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Evaluation:
  """What is evaluated, ready to be scored any number of times.

  Attributes:
    parts: the experiment.
    tasks: of TASKS.
    sets: {name: {name: dataset}}, the datasets that make up each set.
    texts: the tasks made of texts.
    training: see Training.
    stride: of the windows of a text that is too long, see requests.windows.
  """

  parts: experiment.Experiment
  tasks: tuple[str, ...]
  sets: dict[str, dict[str, records.Dataset]]
  texts: tuple[Texts, ...]
  training: Training
  stride: int

  @property
  def size(self) -> int:
    """How many sequences `run` ticks for."""
    datasets = [d for members in self.sets.values() for d in members.values()]
    return sum(map(len, datasets)) + sum(len(t.pairs) for t in self.texts)

  @property
  def splits(self) -> set[str]:
    """Those of `rows` that tell whether all was evaluated."""
    forms = {
      PERPLEXITY: 'validation/{}',
      FREQUENCY: f'bins/{{}}/{frequency.NEVER}',
    }
    return {
      *(
        forms[t].format(s) for t in forms if t in self.tasks for s in self.sets
      ),
      *(f'task/{texts.task}' for texts in self.texts),
    }

  @property
  def fingerprints(self) -> dict[str, Any]:
    """{name: hash} of all that is evaluated."""
    found: dict[str, Any] = {
      name: dataset.manifest.fingerprint
      for members in self.sets.values()
      for name, dataset in members.items()
    }
    return found | {t.task: t.protocol['sha256'] for t in self.texts}

  def run(self, params: Any, tick: Tick) -> Iterator[Results]:
    """Scores everything once; yields each set and task as it is done."""
    for name, members in self.sets.items():
      scored = {
        member: self._score(params, dataset, tick)
        for member, dataset in members.items()
      }
      found: Results = {
        task: {} for task in self.tasks if task in DATASET_TASKS
      }
      if name not in members:
        whole = self._results(list(members.values()), list(scored.values()))
        for task, result in whole.items():
          # Its items are those of its members.
          found[task][name] = result._replace(samples=list)
      for member, dataset in members.items():
        for task, result in self._results([dataset], [scored[member]]).items():
          found[task][member] = result
      yield found
    for texts in self.texts:
      requests = [requests_lib.Request(p.ids, p.start) for p in texts.pairs]
      answers = self.parts.request_scorer(params, requests, tick, self.stride)
      figures, samples = texts.figures(answers)
      figures = {
        'protocol': self._stamp(self.stride) | texts.protocol
      } | figures
      yield {texts.task: {texts.split: Result(figures, samples.copy)}}

  def _score(
    self, params: Any, dataset: records.Dataset, tick: Tick
  ) -> score.Scored:
    """The rows of a dataset, by how frequent a token was in training."""
    left = len(dataset)

    def batches():
      nonlocal left
      for batch in self.parts.eval_batches(dataset):
        rows = min(left, self.parts.config.evaluate.batch_size)
        left -= rows
        tick(rows)
        yield batch

    bin_V = frequency.bin_of_token(self.training.counts_V)
    found = self.parts.scorer(params, batches(), bin_V, len(frequency.NAMES))
    return found.first(len(dataset))

  def _results(
    self, datasets: Sequence[records.Dataset], scored: Sequence[score.Scored]
  ) -> dict[str, Result]:
    """What some datasets come to together, by task."""
    scored_ = score.Scored(*map(perplexity.joined, zip(*scored, strict=True)))
    manifests = [dataset.manifest for dataset in datasets]
    counts_V = np.sum([d.unigram_counts() for d in datasets], axis=0)
    length = self.parts.config.data.seq_len
    common = {
      'protocol': self._stamp(length) | self._dataset_protocol(),
      'dataset_fingerprint': _fingerprint([m.fingerprint for m in manifests]),
      'unigram_entropy_nats': counts.entropy(counts_V),
    }
    found = {}
    if PERPLEXITY in self.tasks:
      figures = perplexity.with_interval(
        scored_.predicted,
        sum(m.tokens for m in manifests),
        sum(m.bytes for m in manifests),
      )
      samples = functools.partial(perplexity.samples, scored_.predicted)
      found[PERPLEXITY] = Result(common | figures, samples)
    if FREQUENCY in self.tasks:
      figures = frequency.summary(scored_, self.training.counts_V, counts_V)
      figures['trained_on_fingerprint'] = self.training.fingerprint
      samples = functools.partial(frequency.samples, scored_)
      found[FREQUENCY] = Result(common | figures, samples)
    return found

  def _stamp(self, stride: int) -> dict[str, Any]:
    """What is alike for all tasks."""
    config = self.parts.config
    return {
      'window': config.data.seq_len,
      'stride': stride,
      'tokenizer_sha256': self.training.tokenizer_sha256,
    }

  def _dataset_protocol(self) -> dict[str, Any]:
    """What is alike for DATASET_TASKS."""
    return {
      'version': VERSION,
      'text': 'as prepared, cut into rows; each token scored once',
      'bos': 'EOS before each document, none before a row that begins in one',
      'document_mask': self.parts.config.data.document_mask,
      'interval': f'{bootstrap.CONFIDENCE:.0%}, bootstrap over rows',
    }


def read(
  parts: experiment.Experiment,
  names: Sequence[str],
  directories: Mapping[str, str],
  task_data: str,
  items: int,
  training: Training,
  stride: int | None = None,
) -> Evaluation:
  """Reads what is to be evaluated.

  Args:
    parts: the experiment.
    names: of TASKS.
    directories: {name: directory} of datasets. One that holds a dataset of each
      of some subsets is the set of them all, and NAME/SUBSET each of them.
    task_data: directory of the tasks' official files; '' is the Hugging Face
      hub.
    items: of each task at most, spread over all of it; 0 is all.
    training: see Training.
    stride: see Evaluation; None is as many tokens as a window has.

  Raises:
    ConfigError: a name is unknown, or the stride is out of range.
    DataError: something cannot be read, or a dataset does not fit the model or
      was made with another tokenizer.
  """
  check_names(names)
  length = parts.config.data.seq_len
  stride = length if stride is None else stride
  if not 1 <= stride <= length:
    raise errors.ConfigError(
      f'--stride={stride} of windows of {length} tokens; give 1 to {length}'
    )
  sets = {}
  if set(names) & set(DATASET_TASKS):
    for name, directory in directories.items():
      sets[name] = _open_set(name, directory, parts, training)
  texts = []
  if wanted := [name for name in names if name not in DATASET_TASKS]:
    tokenizer = training.tokenizer()
    texts = [
      _read_texts(n, tokenizer, task_data or None, items) for n in wanted
    ]
  return Evaluation(parts, tuple(names), sets, tuple(texts), training, stride)


def check_names(names: Sequence[str]) -> None:
  """Raises ConfigError for the name of a task that is not in TASKS."""
  for name in names:
    if name not in TASKS:
      raise errors.ConfigError(
        f'tasks: {name!r} is not one{config_lib.nearest(name, TASKS)}'
      )


def _open_set(
  name: str,
  directory: str,
  parts: experiment.Experiment,
  training: Training,
) -> dict[str, records.Dataset]:
  """{name: dataset} of what is in a directory, checked."""
  members = {name: epath.Path(directory).expanduser()}
  subsets = records.below(directory)
  # Such a directory is opened as it is, which refuses it.
  if subsets and not {'train', 'validation'} & set(subsets):
    members = {f'{name}/{s}': members[name] / s for s in subsets}
  found = {}
  for member, path in members.items():
    found[member] = experiment.open_dataset(str(path), parts.config)
    experiment.check_tokenizer(found[member], training.tokenizer_sha256)
    parts.eval_batches(found[member])  # Refuses a batch that does not divide.
  return found


def _read_texts(
  name: str,
  tokenizer: tokenizer_lib.Tokenizer,
  directory: str | None,
  items: int,
) -> Texts:
  """A task's texts, tokenized."""
  if name == wikitext.NAME:
    pages = wikitext.read(directory)
    pages = pages._replace(pages=_spread(pages.pages, items))
    return Texts(
      task=name,
      split=wikitext.SOURCE.hub.split,
      pairs=wikitext.encode(tokenizer, pages.pages),
      figures=functools.partial(wikitext.figures, pages.pages),
      protocol=wikitext.protocol(pages),
    )
  task = tasks.TASKS[name]
  data = task_files.read(task, directory)
  data = data._replace(items=_spread(data.items, items))
  encoded = downstream.encode(tokenizer, data.items)
  return Texts(
    task=name,
    split=task.source.hub.split,
    pairs=encoded,
    figures=functools.partial(downstream.figures, task, data.items, encoded),
    protocol=downstream.protocol(task, data),
  )


def _spread(all_: list[Any], items: int) -> list[Any]:
  """So many of them, at equal distances; all for 0."""
  if not items or items >= len(all_):
    return all_
  return [all_[i * len(all_) // items] for i in range(items)]


def _fingerprint(fingerprints: Sequence[str]) -> str:
  """Of one dataset its own, of several a hash of theirs."""
  if len(fingerprints) == 1:
    return fingerprints[0]
  return hashlib.sha256(','.join(fingerprints).encode()).hexdigest()


def rows(results: Iterable[Results]) -> dict[str, dict[str, Any]]:
  """{split: metrics} as they stand in `metrics.jsonl`."""
  found = {}
  for piece in results:
    for task, sets in piece.items():
      for name, (figures, _) in sets.items():
        if task == PERPLEXITY:
          found[f'validation/{name}'] = {m: figures[m] for m in VALIDATION}
        elif task == FREQUENCY:
          for side in frequency.SIDES:
            for row in figures[side]:
              found[f'{side}/{name}/{row["frequency"]}'] = _scalars(row)
        else:
          found[f'task/{task}'] = _scalars(figures)
  return found


def _scalars(figures: Mapping[str, Any]) -> dict[str, Any]:
  return {k: v for k, v in figures.items() if isinstance(v, int | float)}
