"""What a report is made of."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib import figure as figures


class Table(NamedTuple):
  """A table; `name` is that of its CSV."""

  name: str
  caption: str
  header: Sequence[str]
  rows: Sequence[Sequence[str]]


class Picture(NamedTuple):
  """A picture; `name` is that of its PNG and SVG."""

  name: str
  caption: str
  figure: figures.Figure


class Section(NamedTuple):
  """A part with a heading; a str is a paragraph."""

  title: str
  parts: Sequence[str | Table | Picture]
