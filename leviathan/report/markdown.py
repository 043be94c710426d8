"""Text and tables in Markdown, as GitHub reads it."""

from collections.abc import Sequence
import re

# What would be read as markup. An underscore within a word, as in a name, and
# a bracket alone, as in an interval, are not.
_MARKUP = re.compile(r'[\\`*<&|]|(?<!\w)_|_(?!\w)|(?<=\])\(')
_NUMBER = re.compile(r'[-+]?\.?\d')


def escape(text: str) -> str:
  """The text on one line, with nothing in it read as markup."""
  return _MARKUP.sub(r'\\\g<0>', ' '.join(text.splitlines()))


def paragraph(text: str) -> str:
  """The text with what stands between backticks as code."""
  # Every other part lies between backticks; one that is never closed is text.
  parts = re.split('(`[^`]+`)', text)
  parts[::2] = map(escape, parts[::2])
  return ''.join(parts)


def numeric(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
  """Of each column, whether it has numbers: most of its cells begin as they do.

  The first names the rows, whatever it holds.
  """
  _, *others = zip(header, *rows, strict=True)
  return [False] + [
    2 * sum(bool(_NUMBER.match(cell)) for cell in cells) > len(cells)
    for _, *cells in others
  ]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """A table, padded to be read as it is; columns of numbers to the right."""
  escaped = [[escape(cell) for cell in row] for row in (header, *rows)]
  # Two at least: a rule to the right is a dash and a colon.
  widths = [max(2, *map(len, cells)) for cells in zip(*escaped, strict=True)]
  right = numeric(header, rows)

  def line(cells):
    padded = [
      cell.rjust(width) if to_right else cell.ljust(width)
      for cell, width, to_right in zip(cells, widths, right, strict=True)
    ]
    return f'| {" | ".join(padded)} |'

  rule = [
    '-' * (width - 1) + (':' if to_right else '-')
    for width, to_right in zip(widths, right, strict=True)
  ]
  return '\n'.join(map(line, (escaped[0], rule, *escaped[1:])))
