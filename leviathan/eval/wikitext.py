"""Perplexity of Wikitext's raw test text, by page, word and byte.

Pages, detokenizer and counts are lm-evaluation-harness's `wikitext`: a page is
scored as plain text, and its words and bytes are counted as it was before.
"""

from collections.abc import Sequence
import math
import re
from typing import Any
from typing import NamedTuple

from etils import epath

from leviathan import errors
from leviathan.data import tokenizer as tokenizer_lib
from leviathan.eval import downstream
from leviathan.eval import pairs as pairs_lib
from leviathan.eval import requests
from leviathan.eval import task_files
from leviathan.eval import tasks

NAME = 'wikitext'
VERSION = 2.0  # Of the harness's task.
SOURCE = tasks.Source(
  # WikiText-2's; whether WikiText-103's is the same was not compared.
  files={
    'wiki.test.raw': (
      '173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08'
    )
  },
  hub=tasks.Hub(
    'EleutherAI/wikitext_document_level', 'wikitext-2-raw-v1', 'test'
  ),
)


class Data(NamedTuple):
  """The pages as they are in the file; the rest as in task_files.Data."""

  pages: list[str]
  source: str
  sha256: dict[str, str]


def read(directory: epath.PathLike | None) -> Data:
  """The pages of the test text.

  Args:
    directory: `wiki.test.raw` is below it, at any depth; None takes the pages
      from the Hugging Face hub.

  Raises:
    DataError: see task_files.read.
    ConfigError: see task_files.read.
  """
  if directory is None:
    source = task_files.address(SOURCE.hub)
    pages = [row['page'] for row in task_files.from_hub(SOURCE.hub)]
    return Data(
      pages, source, {source: task_files.digest(hub_rows(pages).encode())}
    )
  path = task_files.find(SOURCE, directory)
  data = task_files.read_file(path)
  try:
    pages = split(data.decode())
  except UnicodeDecodeError as e:
    raise errors.DataError(
      f'{path} is not UTF-8 ({e.reason} at byte {e.start}); fetch it again'
    ) from e
  return Data(pages, path.name, {path.name: task_files.digest(data)})


def split(text: str) -> list[str]:
  """The pages of a raw file; each begins with its title, ` = Title = `."""
  pages, page = [], []
  for line in text.split('\n'):
    if _is_title(line.strip()):
      pages.append('\n'.join(page))
      page = []
    page.append(line)
  return [p for p in (*pages, '\n'.join(page)) if p.strip()]


def _is_title(line: str) -> bool:
  """Whether a line is a page's title; a section's has more signs."""
  return (
    line.startswith('= ')
    and line.endswith(' =')
    and not line.startswith('= = ')
    and not line.endswith(' = =')
  )


def _enclosed(left: str, right: str) -> tuple[str, str]:
  """No space inside of a pair of signs."""
  a, b = re.escape(left), re.escape(right)
  return rf'{a}\s*([^{b}]*?)\s*{b}', rf'{left}\1{right}'


# (what, what it becomes), one after another. The order is the harness's, and
# so are the rules that hit more than they mean to (an "N" that is no number).
_RULES = [
  (re.compile(pattern), becomes)
  for pattern, becomes in (
    ("s '", "s'"),
    *((f' @{re.escape(sign)}@ ', sign) for sign in '-,.'),
    *((f' {re.escape(sign)} ', f'{sign} ') for sign in ':;.!?,'),
    *(_enclosed(*signs) for signs in ('()', '[]', '{}', '""', "''")),
    *((' '.join(n * '='), n * '=') for n in (4, 3, 2)),
    (' \u00b0 ', '\u00b0'),
    (' \n', '\n'),
    ('\n ', '\n'),
    (' N ', ' 1 '),
    (" 's", "'s"),
  )
]


def detokenize(page: str) -> str:
  """The page without the spaces that its tokenizer put around signs."""
  for pattern, becomes in _RULES:
    page = pattern.sub(becomes, page)
  return page


def encode(
  tokenizer: tokenizer_lib.Tokenizer, pages: Sequence[str]
) -> list[pairs_lib.Pair]:
  """EOS and the detokenized page, all of which is to be scored."""
  return [pairs_lib.encode_text(tokenizer, detokenize(page)) for page in pages]


def figures(
  pages: Sequence[str], scored: Sequence[requests.Scored]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
  """What the scores of the pages come to.

  Args:
    pages: as they are in the file, two or more.
    scored: what each came to.

  Returns:
    Perplexities by token, word and byte, bits per byte, with standard errors
    over pages; and a sample a page.
  """
  samples = [
    {
      'id': str(i),
      'title': page.strip().split('\n')[0].strip(' ='),
      'nats': s.nats,
      'tokens': s.tokens,
      'words': len(re.split(r'\s+', page)),
      'bytes': len(page.encode()),
      'windows': s.windows,
      'truncated': s.truncated,
    }
    for i, (page, s) in enumerate(zip(pages, scored, strict=True))
  ]
  found: dict[str, Any] = {}
  for name, unit in (('', 'tokens'), ('word_', 'words'), ('byte_', 'bytes')):
    mean, stderr = _ratio(samples, unit)
    perplexity = math.exp(min(mean, 700.0))
    found[f'{name}perplexity'] = perplexity
    found[f'{name}perplexity_stderr'] = perplexity * stderr
  mean, stderr = _ratio(samples, 'bytes')
  found |= {
    'bits_per_byte': mean / math.log(2),
    'bits_per_byte_stderr': stderr / math.log(2),
    'pages': len(samples),
    'scored_tokens': sum(s['tokens'] for s in samples),
    'words': sum(s['words'] for s in samples),
    'bytes': sum(s['bytes'] for s in samples),
    'truncated': sum(s['truncated'] for s in samples),
  }
  return found, samples


def _ratio(samples: Sequence[dict[str, Any]], unit: str) -> tuple[float, float]:
  """Nats per unit over all pages, and its standard error (delta method)."""
  units = sum(s[unit] for s in samples)
  mean = sum(s['nats'] for s in samples) / units
  residuals = [s['nats'] - mean * s[unit] for s in samples]
  pages = len(samples)
  return mean, downstream.mean_stderr(residuals) * pages / units


def protocol(data: Data) -> dict[str, Any]:
  """How the figures were made: what to cite with them."""
  return {
    'task': NAME,
    'version': VERSION,
    'follows': f'lm-evaluation-harness {tasks.HARNESS}, {NAME}',
    'text': 'detokenized, a page at a time after EOS, each token scored once',
    'words_and_bytes': 'of the page before it is detokenized',
    'split': SOURCE.hub.split,
    'pages': len(data.pages),
    **downstream.origin(SOURCE, data.source, data.sha256),
  }


def hub_rows(pages: Sequence[str]) -> str:
  """The pages as JSON lines with the key that they have on the hub."""
  return task_files.jsonl({'page': page} for page in pages)
