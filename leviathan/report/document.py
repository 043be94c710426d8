"""The page of a report, its pictures and its tables, as files.

`index.html` holds all that it shows, so that it opens from a disk, an archive
or a mail. The same is in `report.md`, and each table and picture in a file.
"""

import base64
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import csv
import html
import io
import itertools
import re
from typing import NamedTuple

from etils import epath
import matplotlib as mpl
from matplotlib import figure as figures
from PIL import Image

from leviathan import errors
from leviathan import storage
from leviathan.report import markdown
from leviathan.report import style

MARKDOWN = 'report.md'
HTML = 'index.html'
LIST = 'files.txt'  # The names of all files of a report, a line each.
# Pixels an inch: letters of 10 points are as large as the page's.
SCREEN = 120
PAPER = 200
COLOURS = 256  # Of a PNG: lines and letters need no more, and it is a third.


class Table(NamedTuple):
  """A table; its first column names the rows.

  Attributes:
    name: of its file, `NAME.csv`.
    caption: what it shows, with units.
    header: of each column.
    rows: cells, as many in each as the header has.
    values: what its file holds where cells are prose: a header, then rows of
      plain numbers and words, nan where there is none. By default the cells.
  """

  name: str
  caption: str
  header: Sequence[str]
  rows: Sequence[Sequence[str]]
  values: Sequence[Sequence[str | float]] = ()


class Picture(NamedTuple):
  """A picture.

  Attributes:
    name: of its files, `NAME.png` and `NAME.svg`.
    caption: what it shows; also read out to who does not see it.
    figure: drawn to be read on white; at 5 inches wide, with the usual size of
      letters, it can be read on a phone.
  """

  name: str
  caption: str
  figure: figures.Figure


class Section(NamedTuple):
  """A title and what follows: a paragraph (a str), a table or a picture.

  In a paragraph, what stands between backticks is code.
  """

  title: str
  parts: Sequence[str | Table | Picture]


def write(
  title: str, sections: Sequence[Section], directory: epath.Path
) -> epath.Path:
  """Writes all files of a report, or none of them.

  The same sections give the same bytes. Of tables, or pictures, of one name the
  second has `NAME_2`. Files of the last report that are no longer made are
  removed; what else lies in the directory stays.

  Args:
    title: of the page.
    sections: in their order.
    directory: is made if it is missing.

  Returns:
    The path of `report.md`; `index.html` is beside it.

  Raises:
    ValueError: a name is no file's, or a row has more or fewer cells than the
      header.
    ConfigError: the directory cannot be written.
  """
  files: dict[str, bytes] = {}
  sections = _distinct(sections)
  for part in (part for section in sections for part in section.parts):
    if not isinstance(part, str):
      if not re.fullmatch(r'[\w-]+', part.name):
        raise ValueError(f'{part.name!r} is not the name of a file')
      files |= _files(part)
  files[MARKDOWN] = _markdown(title, sections).encode()
  files[HTML] = _html(title, sections, files).encode()
  files[LIST] = ''.join(f'{name}\n' for name in sorted({*files, LIST})).encode()
  _put(files, directory)
  return directory / MARKDOWN


def _distinct(sections: Sequence[Section]) -> list[Section]:
  """The sections, with no two tables nor two pictures of one name."""
  taken = set()

  def name(part):
    if isinstance(part, str):
      return part
    names = (
      f'{part.name}_{i}' if i > 1 else part.name for i in itertools.count(1)
    )
    key = next(key for n in names if (key := (type(part), n)) not in taken)
    taken.add(key)
    return part._replace(name=key[1])

  return [s._replace(parts=[name(part) for part in s.parts]) for s in sections]


def _put(files: Mapping[str, bytes], directory: epath.Path) -> None:
  """Writes all aside, and puts them in place once they are all there."""
  aside = {name: directory / f'{name}.tmp' for name in files}
  try:
    directory.mkdir(parents=True, exist_ok=True)
    last = _made(directory)
    for name, data in files.items():
      aside[name].write_bytes(data)
    for name, path in aside.items():
      path.replace(directory / name)
    for name in last - files.keys():
      (directory / name).unlink(missing_ok=True)
  except OSError as e:
    raise errors.ConfigError(
      f'{directory} cannot be written ({storage.said(e)}); free space or give '
      'another --output'
    ) from e
  finally:
    for path in aside.values():
      with contextlib.suppress(OSError):  # What refuses them keeps none.
        path.unlink(missing_ok=True)


def _made(directory: epath.Path) -> set[str]:
  """The pictures and tables that the last report in a directory lists."""
  if not (directory / LIST).exists():
    return set()
  names = (directory / LIST).read_text().splitlines()
  return {n for n in names if re.fullmatch(r'[\w-]+\.(csv|png|svg)', n)}


def _files(part: Table | Picture) -> dict[str, bytes]:
  """{name: content} of the files of a table or a picture."""
  if isinstance(part, Table):
    text = io.StringIO()
    csv.writer(text, lineterminator='\n').writerows(
      # What is not equal to itself is nan.
      ['' if cell != cell else cell for cell in row]
      for row in part.values or [part.header, *part.rows]
    )
    return {f'{part.name}.csv': text.getvalue().encode()}
  # A picture is one for light and for dark: it brings its own white. Glyphs as
  # outlines look the same whatever fonts there are. No date, nor random names.
  svg, drawn, png = io.BytesIO(), io.BytesIO(), io.BytesIO()
  with mpl.rc_context({'svg.hashsalt': 'leviathan', 'svg.fonttype': 'path'}):
    part.figure.savefig(
      svg, format='svg', facecolor='white', metadata={'Date': None}
    )
    part.figure.savefig(drawn, format='png', facecolor='white', dpi=PAPER)
  image = Image.open(drawn).convert('RGB')
  image.quantize(COLOURS, dither=Image.Dither.NONE).save(png, format='png')
  return {
    f'{part.name}.svg': svg.getvalue(),
    f'{part.name}.png': png.getvalue(),
  }


def _markdown(title: str, sections: Sequence[Section]) -> str:
  parts = [f'# {markdown.escape(title)}']
  for section in sections:
    parts.append(f'## {markdown.escape(section.title)}')
    for part in section.parts:
      if isinstance(part, str):
        parts.append(markdown.paragraph(part))
      elif isinstance(part, Table):
        parts.append(
          f'{markdown.escape(part.caption)} ([CSV]({part.name}.csv))'
        )
        parts.append(markdown.table(part.header, part.rows))
      else:
        caption = markdown.escape(part.caption)
        alt = caption.replace('[', r'\[').replace(']', r'\]')
        parts.append(f'![{alt}]({part.name}.png)')
        parts.append(f'{caption} ([SVG]({part.name}.svg))')
  return '\n\n'.join(parts) + '\n'


def _html(
  title: str, sections: Sequence[Section], files: Mapping[str, bytes]
) -> str:
  contents, bodies = [], []
  for i, section in enumerate(sections, start=1):
    heading = html.escape(section.title)
    contents.append(f'<li><a href="#part-{i}">{heading}</a></li>')
    bodies += [f'<section id="part-{i}">', f'<h2>{heading}</h2>']
    for part in section.parts:
      if isinstance(part, str):
        bodies.append(f'<p>{_code(part)}</p>')
      elif isinstance(part, Table):
        bodies += _html_table(part)
      else:
        bodies.append(_html_picture(part, files[f'{part.name}.svg']))
    bodies.append('</section>')
  lines = [
    '<!doctype html>',
    '<html lang="en">',
    '<head>',
    '<meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    '<meta name="color-scheme" content="light dark">',
    f'<title>{html.escape(title)}</title>',
    '<link rel="icon" href="data:,">',  # Else a browser asks for one.
    f'<style>\n{style.SHEET}</style>',
    '</head>',
    '<body>',
    f'<h1>{html.escape(title)}</h1>',
    f'<nav aria-label="Contents"><ul>{"".join(contents)}</ul></nav>',
    '<main>',
    *bodies,
    '</main>',
    '</body>',
    '</html>',
  ]
  return '\n'.join(lines) + '\n'


def _code(text: str) -> str:
  """A paragraph, with what stands between backticks as code."""
  return re.sub('`([^`]+)`', r'<code>\1</code>', html.escape(text))


def _html_table(table: Table) -> Iterator[str]:
  """In a box of its own, in which it scrolls where it is too wide."""
  right = markdown.numeric(table.header, table.rows)
  kinds = [' class="number"' if to_right else '' for to_right in right]
  name = f'table-{table.name}'
  yield '<figure>'
  yield (
    f'<figcaption id="{name}">{html.escape(table.caption)} '
    f'<a href="{table.name}.csv">CSV</a></figcaption>'
  )
  # With a tabindex, so that keys scroll it as well.
  yield (
    f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}">'
  )
  yield '<table>'
  for i, row in enumerate((table.header, *table.rows)):
    tags = ['th scope="row"', *['td'] * (len(kinds) - 1)]
    if not i:
      tags = ['th scope="col"'] * len(kinds)
    cells = (
      f'<{tag}{kind}><div>{html.escape(cell)}</div></{tag[:2]}>'
      for tag, kind, cell in zip(tags, kinds, row, strict=True)
    )
    yield f'<tr>{"".join(cells)}</tr>'
  yield '</table>'
  yield '</div>'
  yield '</figure>'


def _html_picture(picture: Picture, svg: bytes) -> str:
  """Within the page, yet a picture of its own, whose names meet no others."""
  caption = html.escape(picture.caption)
  width, height = picture.figure.get_size_inches() * SCREEN
  return (
    f'<figure class="picture">\n<img alt="{caption}" width="{width:.0f}" '
    f'height="{height:.0f}" '
    f'src="data:image/svg+xml;base64,{base64.b64encode(svg).decode()}">\n'
    f'<figcaption>{caption} <a href="{picture.name}.png">PNG</a> '
    f'<a href="{picture.name}.svg">SVG</a></figcaption>\n</figure>'
  )
