"""How each variant is drawn, alike in every picture of a report."""

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from matplotlib import figure as figures

# Okabe and Ito's colours, told apart also by who sees red and green alike;
# without their yellow, which is too light for a line on white.
COLOURS = (
  '#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#000000',
)  # fmt: skip
MARKERS = 'osD^vPX'
LINES = ('-', '--', ':', '-.')  # One for each round of the colours.


def styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
  """{label: colour, marker and line}, as matplotlib's `plot` takes them.

  Args:
    labels: all of the report's variants, in its order, also those that a
      picture leaves out.
  """
  found = {}
  for i, label in enumerate(labels):
    turn, place = divmod(i, len(COLOURS))
    found[label] = {
      'color': COLOURS[place],
      'marker': MARKERS[place],
      'linestyle': LINES[turn % len(LINES)],
    }
  return found


def plain(label: str) -> str:
  """A label as it is: what matplotlib takes for a formula, or leaves out."""
  escaped = label.replace('$', r'\$')
  return f' {escaped}' if escaped.startswith('_') else escaped


def add_legend(figure: figures.Figure, handles: Sequence) -> None:
  """Below the axes, where it hides no line, whose height stays the same."""
  widest = max(len(handle.get_label()) for handle in handles)
  columns = 2 if widest < 36 else 1
  rows = -(-len(handles) // columns)
  figure.set_size_inches(5, 3.5 + 0.17 * rows)
  figure.legend(
    handles=handles,
    loc='outside lower center',
    ncols=columns,
    fontsize='small',
    frameon=False,
  )
