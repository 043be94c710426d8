"""The page stands alone, and its numbers are one in HTML, Markdown and CSV."""

import base64
import csv
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

from etils import epath
from matplotlib import figure as figures
import numpy as np
import PIL.Image
import pytest

from leviathan import errors
from leviathan.report import curves
from leviathan.report import document
from leviathan.report import palette

AWKWARD = r'<b>"a|b" & `c` *d* _e_ \f [g](h)'
CHROMIUM = shutil.which('chromium') or shutil.which('google-chrome')


def sample():
  """Sections as a report of a study has them: seven variants, three seeds."""
  arms = ['tied', 'untied', 'albert', 'flat_mlp', 'factorized_mlp', 'lev',
          'lev_ordered']  # fmt: skip
  rng = np.random.default_rng(0)
  steps = np.arange(1, 1001)
  training, validation = {}, {}
  for i, arm in enumerate(arms):
    loss = 3.3 + 0.02 * i + 6.5 * steps**-0.4
    noise = (
      rng.normal(scale=0.1, size=(3, 1000)),
      rng.normal(scale=0.01, size=3),
    )
    training[arm] = [(steps * 4096, loss + n) for n in noise[0]]
    validation[arm] = [
      (steps[124::125] * 4096, loss[124::125] + n) for n in noise[1]
    ]
  seconds = {
    arm: [(x / 3500 * (1 + i / 9), y) for i, (x, y) in enumerate(seeds)]
    for arm, seeds in validation.items()
  }
  flops = {
    arm: [(np.asarray(x) * 6e7, y) for x, y in seeds]
    for arm, seeds in validation.items()
  }
  losses = [
    [arm, '3', f'{3.7 + i / 50:.4f}', f'{np.exp(3.7 + i / 50):,.2f}',
     f'{i / 50:+.4f} [{i / 50 - 0.01:+.4f}, {i / 50 + 0.01:+.4f}]',
     f'{100 * np.expm1(i / 50):+.2f} %', '2,457,600', '1.03 x']
    for i, arm in enumerate(arms)
  ]  # fmt: skip
  losses[3][-2:] = 'not reached', '-'
  strata = [
    [
      f'1e-0{8 - i} to 1e-0{7 - i}',
      *(f'{9 - i + j / 100:.4f}' for j in range(7)),
    ]
    for i in range(6)
  ]
  return [
    document.Section(
      'Loss',
      [
        'Held-out text of 51,117 tokens. Differences to tied are paired by '
        'seed. Evaluate again with `leviathan evaluate --workdir=runs/study/'
        'factorized_mlp_of_a_name_that_is_too_long_for_a_phone_0.0021`.',
        document.Picture(
          'curves',
          'Loss by tokens; the band is the range of three seeds',
          curves.draw('tokens', validation, training, 6.6),
        ),
        document.Table(
          'losses',
          'Final loss on held-out text, and what it is over tied',
          ['variant', 'seeds', 'nats per token', 'perplexity',
           'difference in nats', 'gain in perplexity', 'tokens to match tied',
           'factor'],
          losses,
        ),
      ],
    ),
    document.Section(
      'Time and compute',
      [
        document.Picture(
          'curves_seconds',
          'Loss by seconds in training steps',
          curves.draw('seconds', seconds, {}, None),
        ),
        document.Picture(
          'curves_flops',
          'Loss by model FLOPs',
          curves.draw('flops', flops, {}, None),
        ),
      ],
    ),
    document.Section(
      'Frequency',
      [
        document.Table(
          'strata',
          'Nats per token by how frequent the token was in training',
          ['training frequency', *arms],
          strata,
        ),
        document.Table(
          'fields',
          'What differs but the arm',
          ['field', 'tied', 'lev'],
          [['config.optimizer.learning_rate', '0.003', '0.002'],
           ['config.data.train', 'data/a', 'data/b']],
        ),
      ],
    ),
  ]  # fmt: skip


def small(label='lev'):
  """One section whose every text holds `label`."""
  figure = figures.Figure(figsize=(2, 1))
  figure.subplots().set_title('nats')
  table = document.Table(
    'losses', f'Of {label}', ['variant', label], [[label, '1.5'], ['tied', '2']]
  )
  picture = document.Picture('curves', f'Of {label}', figure)
  return [document.Section(label, [f'Of {label}.', table, picture])]


class Page(html.parser.HTMLParser):
  """What a page has: tags, texts, and the cells of its tables."""

  def __init__(self, text):
    super().__init__()
    self.tags, self.tables, self.text = [], [], ''
    self._in_cell = False
    self.feed(text)
    self.close()

  def handle_starttag(self, tag, attrs):
    """Notes the tag; begins a table, a row or a cell."""
    self.tags.append((tag, dict(attrs)))
    if tag == 'table':
      self.tables.append([])
    elif tag == 'tr':
      self.tables[-1].append([])
    elif tag in ('td', 'th'):
      self.tables[-1][-1].append('')
      self._in_cell = True

  def handle_endtag(self, tag):
    """Ends a cell."""
    self._in_cell = self._in_cell and tag not in ('td', 'th')

  def handle_data(self, data):
    """Adds to the cell and to the text."""
    self.text += data
    if self._in_cell:
      self.tables[-1][-1][-1] += data


def of_markdown(text):
  """Cells of the tables in Markdown, unescaped."""
  tables, inside = [], False
  for line in text.splitlines():
    if not line.startswith('|'):
      inside = False
      continue
    cells = [c.strip() for c in re.split(r'(?<!\\)\|', line)[1:-1]]
    if not inside:
      tables.append([])
      inside = True
    if not all(set(c) <= set('-:') and c for c in cells):
      tables[-1].append([re.sub(r'\\(.)', r'\1', c) for c in cells])
  return tables


@pytest.fixture(scope='module')
def written(tmp_path_factory):
  """The directory of the sample's report."""
  directory = tmp_path_factory.mktemp('report')
  document.write('Report of a study', sample(), epath.Path(directory))
  return directory


@pytest.mark.parametrize('sections', [sample, lambda: small(AWKWARD)])
def test_numbers_are_the_same_in_html_markdown_and_csv(tmp_path, sections):
  path = document.write('Report', sections(), epath.Path(tmp_path))
  assert path == epath.Path(tmp_path / 'report.md')
  tables = [
    part
    for section in sections()
    for part in section.parts
    if isinstance(part, document.Table)
  ]
  wanted = [[list(row) for row in (t.header, *t.rows)] for t in tables]
  page = Page((tmp_path / 'index.html').read_text('utf-8'))
  assert page.tables == wanted
  assert of_markdown(path.read_text('utf-8')) == wanted
  for table, rows in zip(tables, wanted, strict=True):
    with open(tmp_path / f'{table.name}.csv', encoding='utf-8') as file:
      assert list(csv.reader(file)) == rows
    assert f'({table.name}.csv)' in path.read_text('utf-8')


def test_the_page_loads_nothing_and_runs_nothing(written):
  text = (written / 'index.html').read_text('utf-8')
  assert not re.search(r'https?://|@import|url\(|javascript:', text)
  page = Page(text)
  assert {'script', 'iframe', 'object', 'embed'}.isdisjoint(
    tag for tag, _ in page.tags
  )
  loaded = [a['src'] for _, a in page.tags if 'src' in a]
  loaded += [a['href'] for tag, a in page.tags if tag == 'link']
  assert len(loaded) == 4 and all(x.startswith('data:') for x in loaded)
  # What may be opened from it are its parts, and the files beside it.
  ids = {a['id'] for _, a in page.tags if 'id' in a}
  links = [a['href'] for tag, a in page.tags if tag == 'a']
  assert len(links) == 3 + 2 * 3 + 3
  for link in links:
    assert link[1:] in ids if link[0] == '#' else (written / link).is_file()


def test_pictures_in_the_page_are_those_beside_it(written):
  page = Page((written / 'index.html').read_text('utf-8'))
  pictures = [a for tag, a in page.tags if tag == 'img']
  names = ('curves', 'curves_seconds', 'curves_flops')
  for name, picture in zip(names, pictures, strict=True):
    inline = base64.b64decode(picture['src'].partition('base64,')[2])
    assert inline == (written / f'{name}.svg').read_bytes()
    assert picture['alt'].startswith('Loss by ')
    root = ET.fromstring(inline)
    # Glyphs are outlines: no font need be there.
    assert not list(root.iter('{http://www.w3.org/2000/svg}text'))
    png = (written / f'{name}.png').read_bytes()
    assert png.startswith(b'\x89PNG')
    size = [int.from_bytes(png[i : i + 4], 'big') for i in (16, 20)]
    shown = [int(picture[side]) for side in ('width', 'height')]
    assert size[0] / size[1] == pytest.approx(shown[0] / shown[1], rel=0.01)


def test_a_png_has_a_palette_of_the_colours_that_are_drawn(written):
  image = PIL.Image.open(written / 'curves.png')
  assert image.mode == 'P' and image.size[0] == 1000
  drawn = {colour for _, colour in image.convert('RGB').getcolors() or []}
  for wanted in palette.COLOURS:
    rgb = [int(wanted[i : i + 2], 16) for i in (1, 3, 5)]
    assert min(np.abs(np.subtract(rgb, c)).max() for c in drawn) <= 8, wanted
  assert (255, 255, 255) in drawn


def test_the_report_of_a_study_is_small_enough_for_a_mail(written):
  # Its seven arms, three seeds and a thousand steps.
  size = sum(path.stat().st_size for path in written.iterdir())
  assert size < 1_000_000


def test_texts_are_no_markup(tmp_path):
  path = document.write(AWKWARD, small(AWKWARD), epath.Path(tmp_path))
  page = Page((tmp_path / 'index.html').read_text('utf-8'))
  assert not [tag for tag, _ in page.tags if tag in ('b', 'em')]
  # The title, the contents, the heading, the cells and two captions; in the
  # paragraph what stands between backticks is code.
  assert page.text.count(AWKWARD) == 8
  assert page.text.count(AWKWARD.replace('`', '')) == 1
  assert [tag for tag, _ in page.tags].count('code') == 1
  assert next(a['alt'] for tag, a in page.tags if tag == 'img').endswith(
    AWKWARD
  )
  escaped = r'\<b>"a\|b" \& \`c\` \*d\* \_e\_ \\f [g]\(h)'
  assert path.read_text('utf-8').startswith(f'# {escaped}\n\n## {escaped}\n')
  assert escaped.replace(r'\`', '`') in path.read_text('utf-8')


def test_numbers_stand_to_the_right_and_words_to_the_left(written):
  text = (written / 'index.html').read_text('utf-8')
  assert '<td class="number"><div>not reached</div></td>' in text
  assert '<th scope="col" class="number"><div>perplexity</div></th>' in text
  assert '<th scope="row"><div>1e-07 to 1e-06</div></th>' in text
  assert '<td><div>data/a</div></td>' in text
  lines = (written / 'report.md').read_text('utf-8').splitlines()
  rule = next(x for x in lines if x.startswith('|--') or x.startswith('| --'))
  assert [c.strip().endswith(':') for c in rule.split('|')[1:-1]] == [
    False, *[True] * 7
  ]  # fmt: skip


def test_the_same_sections_give_the_same_bytes(written, tmp_path):
  document.write('Report of a study', sample(), epath.Path(tmp_path))
  names = sorted(os.listdir(written))
  assert names == sorted(os.listdir(tmp_path)) and len(names) == 12
  for name in names:
    assert (tmp_path / name).read_bytes() == (written / name).read_bytes(), name


def test_a_report_is_written_whole_or_not_at_all(tmp_path):
  directory = epath.Path(tmp_path / 'report')
  document.write('First', small(), directory)
  (tmp_path / 'report' / 'notes.txt').write_text('mine')
  before = {p.name: p.read_bytes() for p in directory.iterdir()}
  # A picture that cannot be drawn comes last.
  broken = small()[0].parts[2].figure
  broken.subplots().set_title('$\\no$')
  bad = document.Section('Bad', [document.Picture('bad', 'Bad', broken)])
  with pytest.raises(ValueError, match='no'):
    document.write('Second', [*small(), bad], directory)
  # A file that cannot be written: its name is that of a directory.
  (tmp_path / 'report' / 'index.html.tmp').mkdir()
  with pytest.raises(errors.ConfigError, match='cannot be written'):
    document.write('Third', small('tied'), directory)
  assert {p.name: p.read_bytes() for p in directory.iterdir()} == before


def test_parts_of_one_name_have_files_of_their_own(tmp_path):
  more = [
    document.Section(words, [part._replace(caption=words)])
    for words in ('Second', 'Third')
    for part in small()[0].parts[1:]
  ]
  document.write('Report', [*small(), *more], epath.Path(tmp_path))
  names = {'losses': 'csv', 'curves': 'svg'}
  for name, suffix in names.items():
    for turn in ('', '_2', '_3'):
      assert (tmp_path / f'{name}{turn}.{suffix}').exists()
  page = Page((tmp_path / 'index.html').read_text('utf-8'))
  ids = [a['id'] for _, a in page.tags if 'id' in a]
  assert len({*ids}) == len(ids)
  assert 'Third ([CSV](losses_3.csv))' in (tmp_path / 'report.md').read_text()


def test_a_file_has_the_plain_values_where_cells_are_prose(tmp_path):
  table = document.Table(
    'a', 'A', ['x', 'y'], [['1 of 3', '2 +- 3']], [['n', 'mean'], [1, 0.1]]
  )
  path = document.write(
    'Report', [document.Section('A', [table])], epath.Path(tmp_path)
  )
  assert (tmp_path / 'a.csv').read_text() == 'n,mean\n1,0.1\n'
  assert of_markdown(path.read_text()) == [[['x', 'y'], ['1 of 3', '2 +- 3']]]


def test_files_of_the_last_report_do_not_stay(tmp_path):
  document.write('First', [*sample(), *small()], epath.Path(tmp_path))
  (tmp_path / 'notes.csv').write_text('mine')
  document.write('Second', small(), epath.Path(tmp_path))
  assert sorted(os.listdir(tmp_path)) == [
    'curves.png', 'curves.svg', 'files.txt', 'index.html', 'losses.csv',
    'notes.csv', 'report.md',
  ]  # fmt: skip
  # A list that names others' files removes none of them.
  (tmp_path.parent / 'theirs.csv').write_text('x')
  (tmp_path / 'files.txt').write_text('../theirs.csv\nnotes.txt\n\n')
  (tmp_path / 'notes.txt').write_text('mine')
  document.write('Third', small(), epath.Path(tmp_path))
  assert (tmp_path.parent / 'theirs.csv').exists()
  assert (tmp_path / 'notes.txt').exists()


@pytest.mark.parametrize('name', ['a/b', '../a', ''])
def test_names_are_of_files(tmp_path, name):
  extra = document.Table(name, 'More', ['a'], [['1']])
  sections = [*small(), document.Section('More', [extra])]
  with pytest.raises(ValueError, match='name'):
    document.write('Report', sections, epath.Path(tmp_path / 'report'))
  assert not (tmp_path / 'report').exists()


def test_a_row_of_another_length_is_refused(tmp_path):
  table = document.Table('a', 'A', ['x', 'y'], [['1', '2'], ['3']])
  with pytest.raises(ValueError):
    document.write(
      'Report', [document.Section('A', [table])], epath.Path(tmp_path / 'r')
    )
  assert not (tmp_path / 'r').exists()


def test_a_table_without_rows(tmp_path):
  table = document.Table('a', 'A', ['x', 'y'], [])
  path = document.write(
    'Report', [document.Section('A', [table])], epath.Path(tmp_path)
  )
  assert of_markdown(path.read_text()) == [[['x', 'y']]]
  assert Page((tmp_path / 'index.html').read_text()).tables == [[['x', 'y']]]


def browse(tmp_path, page):
  """What Chromium says of a page: (its DOM when loaded, its messages)."""
  found = subprocess.run(
    [CHROMIUM, '--headless', '--no-sandbox', '--disable-gpu',
     '--disable-dev-shm-usage', f'--user-data-dir={tmp_path / "profile"}',
     '--enable-logging=stderr', '--allow-file-access-from-files',
     '--hide-scrollbars', '--dump-dom', pathlib.Path(page).as_uri()],
    capture_output=True, text=True, timeout=120, check=True,
  )  # fmt: skip
  return found.stdout, found.stderr


@pytest.mark.skipif(not CHROMIUM, reason='needs Chromium')
@pytest.mark.parametrize('width', [390, 1280])
def test_a_browser_shows_it_without_errors_or_sideways_scrolling(
  written, tmp_path, width
):
  # A window has its least width, a frame any.
  frame = tmp_path / 'frame.html'
  frame.write_text(f"""<!doctype html><title>?</title>
    <iframe width="{width}" height="800" style="border: 0"
      src="{(written / 'index.html').as_uri()}"></iframe>
    <script>
      onload = () => {{
        const page = document.querySelector('iframe').contentDocument;
        const root = page.documentElement;
        const boxes = [...page.querySelectorAll('.scroll')];
        const images = [...page.images].map(i => i.naturalWidth);
        document.title = JSON.stringify([
          page.title, root.clientWidth, root.scrollWidth,
          boxes.map(b => b.scrollWidth > b.clientWidth), images]);
      }};
    </script>""")
  dom, messages = browse(tmp_path, frame)
  assert 'CONSOLE' not in messages
  title = re.search('<title>(.*?)</title>', dom)
  assert title is not None
  assert title[1] == (
    f'["Report of a study",{width},{width},'
    f'[{"true,true,false" if width == 390 else "false,false,false"}],'
    '[480,480,480]]'
  )
