"""Evaluating a checkpoint: all tasks of a dataset in one pass over it."""

from typing import Any

from leviathan import experiment
from leviathan import restore
from leviathan.data import counts
from leviathan.eval import frequency
from leviathan.eval import perplexity

TASKS = ('perplexity', 'frequency')


def evaluate(loaded: restore.Restored, directory: str) -> dict[str, Any]:
  """{task: its figures} of a checkpoint on one dataset.

  Raises:
    DataError: the dataset cannot be read or was made with another tokenizer.
  """
  dataset = experiment.open_dataset(directory, loaded.parts.config)
  found = dataset.manifest
  trained_on = loaded.run.manifest()
  experiment.check_tokenizer(dataset, trained_on['tokenizer']['sha256'])
  trained_V, scored_V = loaded.run.unigram_counts(), dataset.unigram_counts()
  scored = loaded.parts.scorer(
    loaded.params,
    loaded.parts.eval_batches(dataset),
    frequency.bin_of_token(trained_V),
    len(frequency.NAMES),
  ).first(len(dataset))
  common = {
    'dataset_fingerprint': found.fingerprint,
    'unigram_entropy_nats': counts.entropy(scored_V),
  }
  figures = {
    'perplexity': perplexity.with_interval(
      scored.predicted, found.tokens, found.bytes
    ),
    'frequency': {
      'trained_on_fingerprint': trained_on['dataset_fingerprint'],
      **frequency.summary(scored, trained_V, scored_V),
    },
  }
  return {task: common | figures[task] for task in TASKS}


def perplexity_text(title: str, row: dict[str, Any]) -> str:
  """One line for the person who watches."""
  return (
    f'{title}: {row["nats_per_token"]:.4f} nats per token, perplexity '
    f'{row["perplexity"]:.2f}, {row["bits_per_byte"]:.4f} bits per byte over '
    f'{row["scored_tokens"]:,} tokens (unigram entropy '
    f'{row["unigram_entropy_nats"]:.4f} nats)'
  )


def frequency_text(title: str, row: dict[str, Any]) -> str:
  """A line a bin."""
  lines = [
    f'{title}, by training frequency of the predicted token:',
    f'  {"frequency":<14}{"types":>8}{"tokens":>10}{"nats":>9}'
    f'{"perplexity":>13}',
  ]
  for r in row['bins']:
    figures = f'{"n = 0":>9}'
    if r['tokens']:
      figures = f'{r["nats_per_token"]:>9.4f}{r["perplexity"]:>13.2f}'
    lines.append(
      f'  {r["frequency"]:<14}{r["types"]:>8}{r["tokens"]:>10}{figures}'
    )
  return '\n'.join(lines)


TEXTS = {'perplexity': perplexity_text, 'frequency': frequency_text}
