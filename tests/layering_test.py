"""Imports run from higher layers to lower ones, and arms are never asked for.

Read from the source with `ast`; nothing is imported.
"""

import ast
import graphlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]

# A package or a module of `leviathan`, and its layer; the longest name counts.
LAYERS = {
  'errors': 0,
  'arrays': 0,
  'config': 0,
  'digits': 0,
  'chips': 0,
  'hlo': 1,
  'replica_groups': 0,
  'prng': 0,
  'step_folder': 0,
  'storage': 0,
  'watchdog': 0,
  'pod': 0,
  'sharding': 0,
  'units': 0,
  'nn': 1,
  'data': 1,
  'losses': 1,
  'metrics': 1,
  'guard': 1,
  'optimizer': 1,
  'profile': 1,
  'sinks': 1,
  'embed': 2,
  'token_order': 2,
  'head': 2,
  'flops': 3,
  'model': 3,
  'parameters': 3,
  'state': 4,
  'step': 4,
  'checkpoint': 5,
  'continuation': 5,
  'eval': 5,
  'report': 5,
  'rundir': 5,
  'sampling': 5,
  'experiment': 6,
  'aot': 7,
  'compiled': 7,
  'evaluate': 7,
  'fitting': 7,
  'huggingface': 7,
  'reporter': 7,
  'restore': 7,
  'results': 7,
  'study': 7,
  'train': 7,
  'cli': 8,
  '__main__': 8,
}
MODEL_HALF = {
  'nn',
  'embed',
  'head',
  'model',
  'losses',
  'guard',
  'optimizer',
  'state',
  'step',
}


def modules():
  """{'embed.lev': its tree} of every module of the package but itself."""
  found = {}
  for path in sorted((ROOT / 'leviathan').rglob('*.py')):
    parts = path.relative_to(ROOT / 'leviathan').with_suffix('').parts
    name = '.'.join(part for part in parts if part != '__init__')
    if name:
      found[name] = ast.parse(path.read_text())
  return found


MODULES = modules()


def imports(tree):
  """Modules of `leviathan` that are imported anywhere in `tree`."""
  found = set()
  for node in ast.walk(tree):
    if isinstance(node, ast.ImportFrom):
      assert node.level == 0, 'a relative import'
      full = [f'{node.module}.{alias.name}' for alias in node.names]
    elif isinstance(node, ast.Import):
      full = [alias.name for alias in node.names]
    else:
      continue
    for name in full:
      package, _, module = name.partition('.')
      if package == 'leviathan' and module:
        found.add(module)
  return found


IMPORTS = {name: imports(tree) for name, tree in MODULES.items()}


def part(module):
  """'embed.lev' -> 'embed'."""
  return module.split('.')[0]


def test_every_module_has_a_layer_and_every_layer_a_module():
  assert {part(module) for module in MODULES} == set(LAYERS)


@pytest.mark.parametrize('module', MODULES)
def test_modules_are_imported_and_not_their_contents(module):
  assert IMPORTS[module] <= MODULES.keys()


@pytest.mark.parametrize('module', MODULES)
def test_imports_go_to_the_same_layer_or_a_lower_one(module):
  layer = LAYERS[part(module)]
  for imported in IMPORTS[module]:
    assert LAYERS[part(imported)] <= layer, f'{module} imports {imported}'


def test_imports_make_no_circle():
  graphlib.TopologicalSorter(IMPORTS).prepare()


def test_data_and_model_never_import_each_other():
  for module, imported in IMPORTS.items():
    parts = {part(name) for name in imported}
    if part(module) == 'data':
      assert not parts & MODEL_HALF, module
    if part(module) in MODEL_HALF:
      assert 'data' not in parts, module


def test_an_embedder_is_reached_through_the_list_of_them():
  for module, imported in IMPORTS.items():
    if part(module) != 'embed':
      reached = {name for name in imported if part(name) == 'embed'}
      assert reached <= {'embed', 'embed.api'}, module


def test_the_package_does_not_import_its_configs_or_tests():
  for module, tree in MODULES.items():
    for node in ast.walk(tree):
      names = []
      if isinstance(node, ast.ImportFrom):
        names = [node.module or '']
      elif isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
      for name in names:
        assert name.split('.')[0] not in ('configs', 'tests'), module


def arm_names():
  """Names of arms and of embedders, as files are named."""
  configs = {path.stem for path in (ROOT / 'configs').glob('*.py')}
  embedders = {
    node.value
    for node in ast.walk(MODULES['embed'])
    if isinstance(node, ast.Constant) and isinstance(node.value, str)
  }
  short = {name for name in embedders if name.isidentifier()}
  return (configs | short | {'tied', 'untied'}) - {'__init__', 'base'}


def decisions(tree):
  """What a program decides by: conditions, comparisons, patterns."""
  for node in ast.walk(tree):
    if isinstance(node, ast.If | ast.IfExp | ast.While):
      yield node.test
    elif isinstance(node, ast.Compare):
      yield node
    elif isinstance(node, ast.match_case):
      yield node.pattern
    elif isinstance(node, ast.Match):
      yield node.subject


def asks_for_an_arm(tree):
  """Places where a decision has an arm's name, or what is called `arm`."""
  names = arm_names()
  for decision in decisions(tree):
    body = (
      decision.pattern if isinstance(decision, ast.match_case) else decision
    )
    for node in ast.walk(body):
      if isinstance(node, ast.Constant) and node.value in names:
        yield node.value
      if isinstance(node, ast.Name) and node.id == 'arm':
        yield 'arm'
      if isinstance(node, ast.Attribute) and node.attr == 'arm':
        yield '.arm'


@pytest.mark.parametrize(
  'source',
  [
    'if arm: pass',
    'x = 1 if config.arm in seen else 2',
    "y = name == 'lev'",
    "y = name in ('tied', 'table')",
    "match name:\n  case 'lev': pass",
    'match config.arm:\n  case _: pass',
  ],
)
def test_the_search_for_arms_finds_them(source):
  assert list(asks_for_an_arm(ast.parse(source)))


@pytest.mark.parametrize('module', [m for m in MODULES if part(m) != 'embed'])
def test_nothing_is_decided_by_the_name_of_an_arm(module):
  assert not list(asks_for_an_arm(MODULES[module]))
