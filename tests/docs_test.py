"""Commands and links of the documentation: each is checked, some are run."""

import ast
import importlib.util
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

from absl import flags
from ml_collections import config_flags
import pytest

from leviathan import evaluate
from leviathan import experiment
from leviathan.cli import completion
from leviathan.cli import main
from leviathan.data import files

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / 'docs'
JOINS = {'|', '&', '&&', '||', ';'}  # one command to the next
VARIABLE = re.compile(r'[A-Z_]+=')
PAGES = [
  ROOT / 'README.md',
  ROOT / 'CONTRIBUTING.md',
  *sorted(DOCS.glob('*.md')),
]


def blocks(text):
  """Fenced blocks of shell."""
  return re.findall(r'^```sh\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)


def commands(text):
  """Words of each command in blocks, and of those within a line."""
  for block in blocks(text):
    for line in re.sub(r'\\\n\s*', ' ', block).splitlines():
      words = shlex.split(line.replace('$arm', 'lev'), comments=True)
      for joins, several in itertools.groupby(words, JOINS.__contains__):
        # Variables before the command are bash's.
        found = list(itertools.dropwhile(VARIABLE.match, several))
        if found and not joins:
          yield found
  outside = re.sub(r'^```.*?^```$', '', text, flags=re.DOTALL | re.MULTILINE)
  for code in re.findall(r'`((?:leviathan|make|python) [^`]+)`', outside):
    if ' COMMAND' not in code:
      yield shlex.split(code)


ALL = [
  pytest.param(words, id=f'{page.name}: {" ".join(words)}'[:100])
  for page in PAGES
  for words in commands(page.read_text())
]


def defined_flags(path):
  """Flags of a script, and of the commands that it imports."""
  tree = ast.parse(path.read_text())
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom) and node.module == 'leviathan.cli':
      for imported in node.names:
        yield from completion.flags_of(imported.name)
    elif isinstance(node, ast.Call) and node.args:
      name = ast.unparse(node.func).rpartition('.')[2]
      if name.startswith('DEFINE_') or name == 'add_argument':
        yield f'--{ast.literal_eval(node.args[0]).lstrip("-")}'


def check_flags(words, known):
  """Each word is a flag that there is; a key of a config is checked apart."""
  known = {flag.rstrip('=') for flag in known} | {'--help'}
  for word in words:
    if word in ('<', '>'):
      return
    flag = word.partition('=')[0]
    key = flag.startswith(('--config.', '--study.'))
    assert word == '...' or key or flag in known, f'{word} is no flag'


def check_config(words):
  """The file builds, and has the keys that are set."""
  words = [w for w in words if w.startswith('--config')]
  keys = [w for w in words if w.startswith('--config.')]
  if '--config=...' in words or not words[: len(words) - len(keys)]:
    words = ['--config=configs/lev.py:smoke', *keys]
  words = [w.replace('=configs/', f'={ROOT}/configs/') for w in words]
  found = flags.FlagValues()
  config_flags.DEFINE_config_file('config', flag_values=found, sys_argv=words)
  found(['', *words])
  experiment.read_config(found.config)


def check_leviathan(words):
  name, *rest = words or ['help']
  if name == 'help':
    return
  assert name in main.COMMANDS, f'{name} is no command'
  check_flags(rest, completion.flags_of(name))
  if any(word.startswith('--config') for word in rest):
    check_config(rest)
  given = dict(word.partition('=')[::2] for word in rest)
  if name == 'evaluate' and '--harness' not in given and '--tasks' in given:
    evaluate.check_names(given['--tasks'].split(','))


def check_python(words):
  script, *rest = words
  if script.startswith('llama.cpp/'):
    return
  if script.startswith('-'):  # A module, or code.
    if rest[:1] == ['leviathan']:
      check_leviathan(rest[1:])
    return
  own = list(itertools.takewhile(lambda word: word != '--', rest))
  known = [*defined_flags(ROOT / script)]
  if known:
    check_flags([w for w in own if w.startswith('-')], known)
  if rest[len(own) :]:
    check(rest[len(own) + 1 :])


def check_make(words):
  targets = re.findall(r'^([\w-]+):', (ROOT / 'Makefile').read_text(), re.M)
  for word in words:
    known = '=' in word or word.startswith('-') or word in targets
    assert known, f'{word} is no target'


def check_pip(words):
  extras = re.findall(r"^  '(\w+)': \[", (ROOT / 'setup.py').read_text(), re.M)
  for names in re.findall(r'\[([\w,]+)\]', ' '.join(words)):
    assert set(names.split(',')) <= set(extras), f'{names}: no such extra'


CHECKS = {
  'leviathan': check_leviathan,
  'python': check_python,
  'make': check_make,
  'pip': check_pip,
}


def check(words):
  """Nothing in a command is unknown; programs that are not ours are let be."""
  for word in words:
    path = word.rpartition('=')[2].partition(':')[0]
    if re.match(r'(configs|launch|benchmarks|docs|tests)/', path):
      assert (ROOT / path).exists(), f'{path} is no file'
  CHECKS.get(pathlib.Path(words[0]).name, lambda rest: None)(words[1:])


@pytest.mark.parametrize('words', ALL)
def test_a_documented_command_is_one_that_there_is(words, monkeypatch):
  monkeypatch.chdir(ROOT)
  check(words)


@pytest.mark.parametrize(
  'command',
  [
    'leviathan trian --workdir=x',
    'leviathan train --wrokdir=x',
    'leviathan train --config=configs/lev.py:smoke --config.data.batch=8',
    'leviathan train --config=configs/lev.py:huge --workdir=x',
    'leviathan evaluate --workdir=x --tasks=hellaswog',
    'python launch/nowhere.py --dry_run',
    'python launch/babysit.py --weit=3 -- leviathan train',
    'python launch/babysit.py -- leviathan trian',
    'make quickstrat',
    'pip install -e .[evil]',
  ],
)
def test_a_mistake_in_a_command_is_found(command):
  with pytest.raises((Exception, SystemExit)):
    check(shlex.split(command))


def made_pages():
  """Names of those that are made when the site is built."""
  spec = importlib.util.spec_from_file_location(
    'generate', DOCS / 'generate.py'
  )
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module.PAGES


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_titles(page):
  for target in re.findall(r'\]\(([^)\s]+)\)', page.read_text()):
    if target.startswith(('https://', 'http://')):
      continue
    name, _, title = target.partition('#')
    path = page.parent / name if name else page
    assert path.exists(), f'{page.name}: {target} is missing'
    if title:
      headings = re.findall(r'^#+ (.*)$', path.read_text(), re.MULTILINE)
      slugs = {
        re.sub(r'[^\w-]', '', h.lower().replace(' ', '-')) for h in headings
      }
      assert title in slugs, f'{page.name}: {target} is no title'


def test_the_navigation_has_every_page():
  named = re.findall(r': (\S+\.md)$', (ROOT / 'mkdocs.yml').read_text(), re.M)
  there = [page.name for page in DOCS.glob('*.md')] + [*made_pages()]
  assert sorted(named) == sorted(there)


# What takes the place of the documented sizes, and what is added, so that the
# README's commands take seconds.
SIZES = {
  '--vocab_size': '512',
  '--seq_len': '32',
  '--config.data.seq_len': '32',
  '--validation_fraction': '0.1',
  '--token_order': 'bytes.npy',
}
ADDED = {
  'train': [
    '--config.model.vocab_size=512',
    '--config.model.width=32',
    '--config.model.layers=1',
    '--config.model.head_width=16',
    '--config.model.mlp_width=32',
    '--config.optimizer.warmup_steps=1',
    '--config.train.steps=2',
    '--config.checkpoint.interval=2',
    '--config.evaluate.interval=2',
  ]
}
DRIVER = f"""#!{sys.executable}
import sys
from leviathan.cli import main
words = []
for word in sys.argv[1:]:
  flag = word.partition('=')[0]
  words.append(flag + '=' + {SIZES}[flag] if flag in {SIZES} else word)
sys.argv[1:] = words + {ADDED}.get(words[0], [])
main.run()
"""


@pytest.fixture(scope='module')
def shell(tmp_path_factory):
  """(a directory with text, what bash prints of a block run there)."""
  directory = tmp_path_factory.mktemp('docs')
  driver = directory / 'bin' / 'leviathan'
  driver.parent.mkdir()
  driver.write_text(DRIVER)
  driver.chmod(0o755)
  (directory / 'configs').symlink_to(ROOT / 'configs')
  text = directory / 'text' / 'part'
  text.mkdir(parents=True)
  source = '\n'.join(p.read_text() for p in sorted(ROOT.glob('leviathan/*.py')))
  rows = [
    json.dumps({'text': source[i : i + 2000]}) for i in range(0, 99_999, 2000)
  ]
  (text / 'a.jsonl.zst').write_bytes(
    files.zstd.compress('\n'.join(rows).encode())
  )
  environment = os.environ | {
    'PATH': f'{driver.parent}{os.pathsep}{os.environ["PATH"]}',
    'PYTHONPATH': str(ROOT),
    'MPLBACKEND': 'agg',
    'XLA_FLAGS': '',  # One device compiles faster than eight.
  }

  def run(*words, cwd=directory):
    done = subprocess.run(
      words, cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr[-3000:]
    return done.stdout

  return directory, run


def block_with(page, command):
  """The block that has a command."""
  found = [b for b in blocks((ROOT / page).read_text()) if command in b]
  assert len(found) == 1, f'{page}: {len(found)} blocks with {command}'
  return found[0]


@pytest.fixture(scope='module')
def ran(shell):
  """The directory after the README's way from text to a report."""
  directory, run = shell
  block = block_with('README.md', 'leviathan tokenizer --input')
  (directory / 'stdout').write_text(run('bash', '-ec', block))
  return directory


def test_the_way_from_text_to_a_report_is_as_the_readme_says(ran):
  for path in (
    'tokenizer/tokenizer.model',
    'data/train/manifest.json',
    'runs/lev/eval/2/perplexity.json',
    'runs/tied/checkpoints/2',
    'runs/report/index.html',
  ):
    assert (ran / path).exists(), path
  printed = (ran / 'stdout').read_text()
  assert 'unigram_entropy_nats' in printed  # inspect
  assert 'import os' in printed  # generate
  assert '| lev ' in printed  # report


def test_what_an_input_has_learned_is_shown(ran, shell):
  printed = shell[1]('bash', '-ec', block_with('README.md', '--embeddings'))
  assert 'effective_rank' in printed
  assert (ran / 'runs/lev/embeddings/embeddings.png').exists()


def test_tokens_are_ordered_and_looked_at(ran, shell):
  block = block_with('docs/token_order.md', 'leviathan order')
  lines = re.sub(r'\\\n\s*', ' ', block).splitlines()
  lines = [x for x in lines if re.match('leviathan (order|inspect)', x)]
  assert len(lines) == 2
  assert 'use_told_by_first_digits' in shell[1]('bash', '-ec', '\n'.join(lines))


def test_the_notebook_runs_from_top_to_bottom(ran, shell):
  text = (DOCS / 'look_at_lev.ipynb').read_text()
  cells = [c for c in json.loads(text)['cells'] if c['cell_type'] == 'code']
  assert not any(cell['outputs'] for cell in cells)
  place = ran / 'notebook'
  (place / 'docs').mkdir(parents=True)
  (place / 'runs').mkdir()
  (place / 'runs' / 'quickstart').symlink_to(ran / 'runs')
  code = '\n'.join(''.join(cell['source']) for cell in cells)
  printed = shell[1](sys.executable, '-c', code, cwd=place / 'docs')
  for arm in ('lev', 'tied'):
    assert f'{arm} step 2' in printed and f'{arm} (512, 32)' in printed
