"""The made pages say what the sources say, and the page on arms is true."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import jax
import pytest

from configs import base
from leviathan import config as config_lib
from leviathan import embed
from leviathan import errors
from leviathan import experiment
from leviathan import metrics
from leviathan import parameters
from leviathan import rundir
from leviathan import sharding
from leviathan import train
from leviathan.cli import completion
from leviathan.cli import main

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / 'docs'


def load(name, path):
  spec = importlib.util.spec_from_file_location(name, path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[name] = module
  spec.loader.exec_module(module)
  return module


@pytest.fixture(scope='module')
def generate():
  yield load('generate', DOCS / 'generate.py')
  del sys.modules['generate']


@pytest.fixture(scope='module')
def made(tmp_path_factory):
  """The directory of the made pages; a process of their own, for its flags."""
  directory = tmp_path_factory.mktemp('pages')
  subprocess.run(
    [sys.executable, DOCS / 'generate.py', directory], cwd=ROOT, check=True
  )
  return directory


def test_every_flag_of_every_command_is_on_its_page(made):
  text = (made / 'commands.md').read_text()
  sections = dict(
    re.findall(r'^### leviathan (\w+)\n(.*?)(?=^##|\Z)', text, re.M | re.S)
  )
  assert list(sections) == list(main.COMMANDS)
  for name, section in sections.items():
    listed = re.findall(r'^\| `(--\w+)` ', section, re.MULTILINE)
    known = {flag.rstrip('=') for flag in completion.flags_of(name)}
    assert len(listed) == len(known) and set(listed) == known, name


def test_every_script_that_starts_commands_is_there(made):
  text = (made / 'commands.md').read_text()
  listed = re.findall(r'^### launch/(\S+)$', text, re.MULTILINE)
  assert listed == sorted(p.name for p in (ROOT / 'launch').glob('*.py'))


def test_every_key_of_a_config_is_there_with_words(generate):
  rows = dict(
    re.findall(r'^\| `([\w.]+)` \| .* \| (.*) \|$', generate.config(), re.M)
  )
  keys = config_lib.flatten(base.get_config('200m'), '')
  assert {key.lstrip('.') for key in keys} <= rows.keys()
  assert not [key for key, words in rows.items() if not words.strip()]


def test_values_that_scales_do_not_share_are_all_given(generate):
  line = next(
    line for line in generate.config().splitlines() if '`model.width`' in line
  )
  assert '`640`, `1024`, `2048` | `128`' in line


def test_comments_are_those_above_and_behind(generate):
  source = """
def f():
  config = C()
  # Not of a: a gap.

  config.a = 1  # behind
  config.part = part = C()  # a section
  # Above,
  # in two lines.
  part.b = (
    2
  )
  part.c = 3
  other = 4  # no key
"""
  assert generate.comments(source, 'f') == {
    'a': 'behind',
    'part': 'a section',
    'part.b': 'Above, in two lines.',
    'part.c': '',
  }


def test_an_excerpt_is_the_source_and_may_lie_within(generate):
  text = generate.excerpt('leviathan/embed/lev.py', '_reference.head')
  assert text.startswith('def head(') and text.endswith(
    'return mode_R @ out_RD'
  )
  with pytest.raises(ValueError, match='lev.py has no heads'):
    generate.excerpt('leviathan/embed/lev.py', 'heads')


@pytest.mark.parametrize(
  'page', sorted(DOCS.glob('*.md')), ids=lambda page: page.name
)
def test_a_page_has_its_excerpts_and_no_link_out_of_docs(generate, page):
  text = generate.expand(page.read_text())
  assert '<!-- code' not in text and '](../' not in text


def test_the_layer_s_page_quotes_the_sources(generate):
  text = generate.expand((DOCS / 'lev.md').read_text())
  for line in ('def split(', 'def basis(', 'phi_CR = jnp.einsum('):
    assert line in text
    assert line not in (DOCS / 'lev.md').read_text()


def test_the_readme_is_cut_in_two_with_links_that_lead_on(generate):
  index, guide = (
    generate.expand(p()) for p in (generate.index, generate.guide)
  )
  assert 'make quickstart' in index and '](quickstart.png)' in index
  assert '](preparing.md)' in guide and '](config.md)' in guide
  assert 'leviathan tokenizer' in guide


def test_every_exit_code_is_explained():
  text = (DOCS / 'troubleshooting.md').read_text()
  listed = [int(n) for n in re.findall(r'^\| (\d+) \|', text, re.MULTILINE)]
  ours = {error.exit_code for error in errors.UserError.__subclasses__()}
  # And of success, of a bug, of Ctrl-C and of SIGTERM.
  assert listed == sorted(ours | {0, 1, 130, 143})


def test_equations_become_mathml_on_one_line():
  pytest.importorskip('latex2mathml')
  pytest.importorskip('mkdocs.structure')
  sys.path.insert(0, str(DOCS))
  try:
    hooks = load('hooks', DOCS / 'hooks.py')
  finally:
    sys.path.remove(str(DOCS))
  text = hooks.on_page_markdown('a\n\n```math\nx^2 =\n\\sum_i y\n```\n\nb\n')
  (line,) = [line for line in text.splitlines() if '<math' in line]
  assert line.startswith('<div>') and line.endswith('</div>')
  assert '```' not in text


def test_the_notebook_s_cells_are_on_its_page(generate):
  cells = json.loads((DOCS / 'look_at_lev.ipynb').read_text())['cells']
  text = generate.notebook()
  for cell in cells:
    assert ''.join(cell['source']) in text


def test_the_arm_that_the_page_adds_learns(tiny, tmp_path, monkeypatch):
  text = (DOCS / 'adding_an_arm.md').read_text()
  files = dict(
    re.findall(r'```python title="(\S+)"\n(.*?)^```', text, re.M | re.S)
  )
  modules = {}
  for file, source in files.items():
    name = file.removesuffix('.py').replace('/', '.')
    path = tmp_path / f'{name}.py'
    path.write_text(source)
    monkeypatch.setitem(sys.modules, name, None)  # Is undone at the end.
    modules[name] = load(name, path)
  quotient = modules['leviathan.embed.quotient']
  assert "  'quotient': quotient.QuotientConfig,\n" in text
  monkeypatch.setitem(embed.EMBEDDERS, 'quotient', quotient.QuotientConfig)
  with pytest.raises(errors.ConfigError, match='give more than 0'):
    quotient.QuotientConfig(name='quotient', scale=0.0)

  config = tiny.config(
    'quotient',
    train__steps=60,
    evaluate__interval=60,
    checkpoint__interval=60,
    model__layers=1,
  )
  mesh = sharding.make_mesh(config.mesh, jax.devices()[:1])
  parts = experiment.Experiment(config, mesh)
  shapes = parameters.shapes(parts.abstract_state.params)
  # 23 is the smallest whose square is 512 or more.
  assert shapes['embedder/tables_JND'] == [2, 23, 32]
  run = rundir.open_(str(tmp_path / 'run'))
  train.train(parts, run, lambda line: None)
  losses = [
    row['nats_per_token']
    for row in metrics.read(run.metrics_file)
    if row['split'] == 'train'
  ]
  assert sum(losses[-5:]) / 5 < losses[0] - 0.5
