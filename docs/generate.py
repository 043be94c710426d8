"""Pages of the site that are made of the sources, and what pages quote of them.

  python docs/generate.py DIRECTORY   # writes the made pages, to be looked at

README.md is cut in two; commands and flags are those that are defined, keys of
a config those of configs/ with their comments. In the other pages, a line
`<!-- code: FILE NAME -->` stands for that function or class of the file, so
that no code is copied. `hooks.py` gives all of it to MkDocs.
"""

import ast
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import importlib
import importlib.util
import inspect
import io
import itertools
import json
import pathlib
import re
import sys
import textwrap
import tokenize
from typing import Any

from absl import flags

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # For `configs`, which a wheel has as well.

from leviathan import config as config_lib  # noqa: E402
from leviathan import embed  # noqa: E402
from leviathan.report import markdown  # noqa: E402

SCALES = ('200m', '400m', '1p2b', 'smoke')
HEADER = ['key', 'scales', 'smoke', 'what it says']
OURS = ('leviathan.cli', 'launch')  # Modules that define flags.
_EXCERPT = re.compile(r'^<!-- code: (\S+) (\S+) -->$', re.MULTILINE)


def index() -> str:
  """README.md up to what follows its section `Start`."""
  return _readme()[0]


def guide() -> str:
  """The rest of README.md."""
  return '# From text to a report\n\n' + _readme()[1]


def _readme() -> tuple[str, str]:
  """Both parts, with links as they are from docs/."""
  text = (ROOT / 'README.md').read_text()
  first, heading, rest = text.partition('\n## Commands\n')
  if not heading:
    raise ValueError('README.md has no section `Commands`')
  first, rest = (
    re.sub(r'\]\((?!https?:|#)', '](../', part).replace('](../docs/', '](')
    for part in (first, heading.lstrip() + rest)
  )
  return first, rest


def notebook() -> str:
  """The notebook as a page, without what its cells print."""
  cells = json.loads((ROOT / 'docs/look_at_lev.ipynb').read_text())['cells']
  parts = []
  for cell in cells:
    text = ''.join(cell['source'])
    is_code = cell['cell_type'] == 'code'
    parts.append(f'```python\n{text}\n```' if is_code else text)
  return '\n\n'.join(parts) + '\n'


def expand(text: str) -> str:
  """A page with the excerpts that it names, and no link out of docs/."""
  text = _EXCERPT.sub(
    lambda found: f'```python\n{excerpt(found[1], found[2])}\n```', text
  )
  for file, page in MADE_OF.items():
    text = text.replace(f'](../{file})', f']({page})')
  return re.sub(r'(?<!!)\[([^\]]+)\]\(\.\./[^)]*\)', r'\1', text)


def excerpt(file: str, name: str) -> str:
  """The source of a function or class.

  Args:
    file: from the root of the project.
    name: with dots for what is within, as `_reference.head`.

  Raises:
    ValueError: there is none of that name.
  """
  source = (ROOT / file).read_text()
  node: ast.AST = ast.parse(source)
  for part in name.split('.'):
    within = [n for n in ast.iter_child_nodes(node) if _name(n) == part]
    if not within:
      raise ValueError(f'{file} has no {name}')
    node = within[0]
  segment = ast.get_source_segment(source, node, padded=True)
  return textwrap.dedent(segment or '').rstrip()


def _name(node: ast.AST) -> str | None:
  """Of a definition; None of anything else."""
  kinds = ast.FunctionDef | ast.ClassDef
  return node.name if isinstance(node, kinds) else None


def commands() -> str:
  """Each command and each script of launch/, with its flags."""
  main = importlib.import_module('leviathan.cli.main')
  parts = [
    '# Commands',
    'What `leviathan COMMAND --help` prints. A flag is written `--name=value`; '
    'one that is true or false also `--name` and `--noname`.',
  ]
  by_task = itertools.groupby(main.COMMANDS.items(), lambda c: c[1].task)
  for task, several in by_task:
    parts.append(f'## {task}')
    for name, command in several:
      parts += [f'### leviathan {name}', f'To {command.purpose}.']
      parts += _command(f'leviathan.cli.{name}', importlib.import_module)
  parts.append('## Scripts that start commands')
  for path in sorted((ROOT / 'launch').glob('*.py')):
    parts.append(f'### launch/{path.name}')
    parts += _command(
      f'launch_{path.stem}', lambda name, p=path: _load(name, p)
    )
  return '\n\n'.join(parts) + '\n'


def _load(name: str, path: pathlib.Path) -> Any:
  """A file that is in no package, as a module."""
  spec = importlib.util.spec_from_file_location(name, path)
  assert spec and spec.loader
  sys.modules[name] = module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def _command(name: str, load: Callable[[str], Any]) -> Iterator[str]:
  """Paragraphs of a module's docstring, then a table of its flags."""
  _forget_flags()
  doc = load(name).__doc__ or ''
  for paragraph in doc.strip().split('\n\n'):
    if paragraph.startswith(('  ', 'leviathan ', 'source ')):
      yield f'```text\n{textwrap.dedent(paragraph)}\n```'
    else:
      yield markdown.paragraph(paragraph)
  rows = [
    [f'`--{flag.name}`', flag.flag_type(), _default(flag), flag.help or '']
    for module, several in flags.FLAGS.flags_by_module_dict().items()
    if module.startswith(OURS)
    for flag in several
  ]
  if rows:
    yield _table(['flag', 'type', 'default', 'what it says'], rows)


def _forget_flags() -> None:
  """Commands define flags of the same names: no two may be there at once."""
  for module, several in list(flags.FLAGS.flags_by_module_dict().items()):
    if module.startswith(OURS):
      for flag in list(several):
        delattr(flags.FLAGS, flag.name)
  for module in [m for m in sys.modules if m.startswith(OURS)]:
    del sys.modules[module]


def _default(flag: flags.Flag) -> str:
  """As it would be written; of a flag that must be given, that it must."""
  if any(not v.checker(flag.default) for v in flag.validators):
    return 'must be given'
  return '' if flag.default is None else (flag.default_as_str or '').strip("'")


def config() -> str:
  """Every key of a run's config, and of each embedder's."""
  base = importlib.import_module('configs.base')
  values = [config_lib.flatten(base.get_config(s), '') for s in SCALES]
  said = comments((ROOT / 'configs/base.py').read_text(), '_paper')

  def described(key):
    """Where: a section may be written as one value."""
    return key if key in said else described(key.rpartition('.')[0])

  places = [*said]
  keys = sorted(
    (key.lstrip('.') for key in values[0]),
    key=lambda key: places.index(described(key)),
  )
  parts = [
    '# Every key of a config',
    'Each is set in a file of `configs/` or on the command line, as '
    '`--config.data.batch_size=256`. Of the scales, `200m` stands first; where '
    '`400m` and `1p2b` have other values, these follow. `smoke` is empty where '
    'it is as `200m`.',
  ]
  for section, several in itertools.groupby(keys, lambda k: k.split('.')[0]):
    parts.append(f'## {section}')
    if section != keys[0] and said[section]:
      parts.append(_sentence(said[section]))
    rows = [
      [f'`{k}`', *_values([v[f'.{k}'] for v in values]), said[described(k)]]
      for k in several
    ]
    parts.append(_table(HEADER, rows))
  parts += ['## model.embedder', 'By `model.embedder.name`:']
  for name, cls in embed.EMBEDDERS.items():
    parts += [f'### {name}', *_embedder(name, cls)]
  return '\n\n'.join(parts) + '\n'


def _sentence(text: str) -> str:
  return text[:1].upper() + text[1:].rstrip('.') + '.'


def _embedder(name: str, cls: type) -> Iterator[str]:
  """What it is, and its keys with the values of its arm's file."""
  yield markdown.paragraph((cls.__doc__ or '').split('\n\n')[0])
  said: dict[str, str] = {}
  for base in cls.__mro__:
    if dataclasses.is_dataclass(base):
      said = comments(inspect.getsource(base), base.__name__) | said
  fields = [f for f in dataclasses.fields(cls) if f.name != 'name']
  if not fields:
    return
  arm = importlib.import_module(f'configs.{name}')
  values = [arm.get_config(scale).model.embedder for scale in SCALES]
  rows = []
  for field in fields:
    found = [value[field.name] for value in values]
    cells = ['the keys of `lev`', '']
    if not hasattr(found[0], 'items'):
      cells = _values(found)
    rows.append([f'`model.embedder.{field.name}`', *cells, said[field.name]])
  yield _table(HEADER, rows)


def _values(of_scales: list[Any]) -> list[str]:
  """[of the paper's scales, of `smoke`]."""
  first, *others, smoke = [f'`{value!r}`' for value in of_scales]
  paper = [first, *others] if any(o != first for o in others) else [first]
  return [', '.join(paper), '' if smoke == first else smoke]


def comments(source: str, name: str) -> dict[str, str]:
  """{key: what is said of it} of the assignments in a function or class.

  Said is the comment above the line, without a gap, and that at its end.

  Args:
    source: of the file.
    name: of the function or class; a key is what is assigned to, without the
      first name (`config.`) and with sections in full (`model.width`).
  """
  alone, behind = {}, {}
  for token in tokenize.generate_tokens(io.StringIO(source).readline):
    if token.type == tokenize.COMMENT:
      found = behind if token.line[: token.start[1]].strip() else alone
      found[token.start[0]] = token.string.lstrip('# ')
  tree = ast.parse(source)
  (node,) = [n for n in tree.body if _name(n) == name]
  sections = {'config': ''}
  said = {}
  for line in node.body:  # type: ignore[attr-defined]
    if isinstance(line, ast.Assign):
      keys = [k for t in line.targets if (k := _key(t, sections)) is not None]
      for target in line.targets:
        if isinstance(target, ast.Name) and keys:
          sections[target.id] = f'{keys[0]}.'
    elif isinstance(line, ast.AnnAssign):
      keys = [ast.unparse(line.target)]
    else:
      continue
    words = [behind.get(line.end_lineno or 0, '')]
    above = line.lineno - 1
    while above in alone:
      words.insert(0, alone[above])
      above -= 1
    said |= dict.fromkeys(keys, ' '.join(filter(None, words)))
  return said


def _key(target: ast.expr, sections: Mapping[str, str]) -> str | None:
  """'model.width' of `model.width`; None of what is no key."""
  first, dot, rest = ast.unparse(target).partition('.')
  return sections[first] + rest if dot and first in sections else None


def _table(header: list[str], rows: list[list[str]]) -> str:
  """A table whose cells may have code between backticks."""
  lines = [header, ['---'] * len(header)]
  lines += [[markdown.paragraph(cell) for cell in row] for row in rows]
  return '\n'.join(f'| {" | ".join(line)} |' for line in lines)


PAGES: dict[str, Callable[[], str]] = {
  'index.md': index,
  'guide.md': guide,
  'commands.md': commands,
  'config.md': config,
  'look_at_lev.md': notebook,
}
# What a link names on GitHub, and the page that says it here.
MADE_OF = {
  'README.md': 'index.md',
  'configs/base.py': 'config.md',
  'leviathan/cli/main.py': 'commands.md',
}


def main() -> None:
  """Writes the made pages into a directory."""
  directory = pathlib.Path(sys.argv[1])
  directory.mkdir(parents=True, exist_ok=True)
  for name, make in PAGES.items():
    (directory / name).write_text(expand(make()))


if __name__ == '__main__':
  main()
