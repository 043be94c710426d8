"""Tables of runs, in Markdown."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from leviathan.report import markdown
from leviathan.report import runs


def parameters(found: Sequence[runs.Run]) -> str:
  """What each arm consists of."""
  parts = ('input', 'backbone', 'head', 'total')
  rows = [
    [run.label, *(f'{run.parameters[p]:,}' for p in parts)] for run in found
  ]
  return markdown.table(['arm', *parts], rows)


def losses(found: Sequence[runs.Run], dataset: str) -> str:
  """How each arm did on one dataset."""
  rows = []
  for run in found:
    r = run.results['perplexity'][dataset]
    rows.append(
      [
        run.label,
        f'{r["nats_per_token"]:.4f}',
        f'{r["perplexity"]:.2f}',
        f'{r["bits_per_byte"]:.4f}',
        f'{run.tokens:,}',
        f'{run.tokens_per_second:,.0f}',
      ]
    )
  header = [
      'arm', 'nats per token', 'perplexity', 'bits per byte',
      'tokens trained on', 'tokens per second',
  ]  # yapf: disable
  return markdown.table(header, rows)


def frequency(found: Sequence[runs.Run], dataset: str, side: str) -> str:
  """Perplexity by training frequency, an arm a column.

  Args:
    found: the runs.
    dataset: that they were evaluated on.
    side: of `eval.frequency.SIDES`.
  """
  columns = [run.results['frequency'][dataset][side] for run in found]
  rows = []
  for bins in zip(*columns, strict=True):
    perplexities = [
      f'{b["perplexity"]:,.2f}' if b['tokens'] else 'n = 0' for b in bins
    ]
    rows.append(
      [
        bins[0]['frequency'],
        f'{bins[0]["types"]:,}',
        f'{bins[0]["tokens"]:,}',
        *perplexities,
      ]
    )
  header = ['training frequency', 'types', 'tokens scored']
  return markdown.table(header + [run.label for run in found], rows)


def differences(
  compared: Mapping[str, Sequence[dict[str, Any]]],
) -> str:
  """Nats per token less those of the first run, a further run a column.

  Args:
    compared: {run: rows of one side of `eval.frequency.compare`}.
  """
  rows = []
  for bins in zip(*compared.values(), strict=True):
    rows.append(
      [bins[0]['frequency'], f'{bins[0]["tokens"]:,}', *map(_difference, bins)]
    )
  return markdown.table(
    ['training frequency', 'tokens scored', *compared], rows
  )


def _difference(row: dict[str, Any]) -> str:
  """'-0.0312 [-0.0401, -0.0223], 96.9 %'."""
  if not row['tokens']:
    return 'n = 0'
  ends = row.get('nats_per_token_difference_interval')
  interval = f' [{ends[0]:+.4f}, {ends[1]:+.4f}]' if ends else ''
  return (
    f'{row["nats_per_token_difference"]:+.4f}{interval}, '
    f'{row["perplexity_ratio_percent"]:.1f} %'
  )
