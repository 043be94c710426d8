"""Every config builds, counts what the paper counts, and is held to a golden.

A golden has one line a parameter. When a change of the model is meant:

  LEVIATHAN_WRITE_GOLDEN=1 python -m pytest tests/configs_test.py
"""

import functools
import importlib
import os
import pathlib

from flax import linen as nn
import jax
import numpy as np
import pytest

from leviathan import config as config_lib
from leviathan import experiment
from leviathan import parameters
from leviathan import sharding
from leviathan import state as state_lib

ROOT = pathlib.Path(__file__).resolve().parents[1]
GOLDEN = ROOT / 'tests' / 'golden'
WRITE = 'LEVIATHAN_WRITE_GOLDEN'
ARMS = sorted(
  path.stem
  for path in (ROOT / 'configs').glob('*.py')
  if path.stem not in ('__init__', 'base')
)
SCALES = ('200m', '400m', '1p2b', 'smoke')
EACH = [(arm, scale) for arm in ARMS for scale in SCALES]

V = 200_019
PADDING = 45  # rows, up to 200,064
# The table of the paper's sizes: width, body, LEV's layer.
SIZES = {
  '200m': (640, 78_828_160, 1_532_032),
  '400m': (1024, 201_622_528, 1_728_640),
  '1p2b': (2048, 806_422_528, 2_252_928),
}
TOTALS = {
  ('tied', '200m'): 206_840_320,
  ('tied', '400m'): 406_441_984,
  ('tied', '1p2b'): 1_216_061_440,
  ('untied', '200m'): 334_852_480,
  ('untied', '400m'): 611_261_440,
  ('untied', '1p2b'): 1_625_700_352,
  ('lev', '200m'): 208_372_352,
  ('lev', '400m'): 408_170_624,
  ('lev', '1p2b'): 1_218_314_368,
}


def section(arm, scale):
  return importlib.import_module(f'configs.{arm}').get_config(scale)


@functools.cache
def boxed(arm, scale):
  """Abstract parameters with their logical axes; nothing is computed."""
  config = experiment.read_config(section(arm, scale))
  return jax.eval_shape(
    config.model.make().init, jax.random.key(0), np.zeros((1, 2), np.int32)
  )['params']


def initialisers(arm, scale):
  """{path: how the parameter starts}, as the modules ask for it."""
  config = experiment.read_config(section(arm, scale))
  found = {}
  param = nn.Module.param

  def listen(module, name, init, *args, **settings):
    found['/'.join((*module.path, name))] = init.description
    return param(module, name, init, *args, **settings)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(nn.Module, 'param', listen)
    ids_BL = np.zeros((1, 2), np.int32)
    jax.eval_shape(config.model.make().init, jax.random.key(0), ids_BL)
  return found


def lines(arm, scale):
  """A line a parameter: path, shape, type, logical axes, initialiser."""
  starts = initialisers(arm, scale)
  found, _ = jax.tree_util.tree_flatten_with_path(
    boxed(arm, scale), is_leaf=lambda x: isinstance(x, nn.LogicallyPartitioned)
  )
  rows = []
  for path, box in sorted(found, key=lambda item: str(item[0])):
    name = jax.tree_util.keystr(path, simple=True, separator='/')
    shape = 'x'.join(map(str, box.value.shape))
    axes = ','.join(map(str, box.names))
    rows.append(f'{name} {shape} {box.value.dtype} {axes} {starts[name]}')
  return rows


@pytest.mark.parametrize('arm, scale', EACH)
def test_parameters_are_those_of_the_golden(arm, scale):
  path = GOLDEN / f'{arm}_{scale}.txt'
  text = '\n'.join(lines(arm, scale)) + '\n'
  if os.environ.get(WRITE):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
  golden = path.read_text() if path.exists() else ''
  assert text == golden, (
    f'parameters differ from {path.relative_to(ROOT)}; if that is meant, '
    f'run {WRITE}=1 python -m pytest tests/configs_test.py and commit it'
  )


def test_every_golden_belongs_to_a_config():
  names = {f'{arm}_{scale}.txt' for arm, scale in EACH}
  assert {path.name for path in GOLDEN.iterdir()} == names


@pytest.mark.parametrize('scale', SIZES)
@pytest.mark.parametrize('arm', ['tied', 'untied', 'lev'])
def test_parameters_are_counted_as_in_the_paper(arm, scale):
  width, body, layer = SIZES[scale]
  table = V * width
  shapes = parameters.shapes(nn.unbox(boxed(arm, scale)))
  assert parameters.count(shapes, V) == {
    'input': layer if arm == 'lev' else table,
    'backbone': body,
    'norms': (2 * 16 + 1) * width,
    'head': 0 if arm == 'tied' else table,
    'total': TOTALS[arm, scale],
    'padding': PADDING * width * (2 if arm == 'untied' else 1),
  }


def test_the_parts_of_lev_are_counted_apart():
  shapes = parameters.shapes(nn.unbox(boxed('lev', '1p2b')))
  assert parameters.input_parts(shapes, V) == {
    'codebooks_JNC': 3 * 59 * 128,
    'seed_SCC': 8 * 128 * 128,
    'scale_SC': 8 * 128,
    'bias_SC': 8 * 128,
    'splines_SCGR': 8 * 128 * 16 * 64,
    'out_SRD': 8 * 64 * 2048,
  }


@pytest.mark.parametrize('arm, scale', EACH)
def test_counts_add_up_to_the_last_parameter(arm, scale):
  leaves = jax.tree.leaves(nn.unbox(boxed(arm, scale)))
  everything = sum(np.prod(leaf.shape, dtype=np.int64) for leaf in leaves)
  counts = parameters.count(
    parameters.shapes(nn.unbox(boxed(arm, scale))),
    section(arm, scale).model.vocab_size,
  )
  assert counts['total'] + counts['padding'] == everything
  assert counts['total'] == sum(
    counts[part] for part in ('input', 'backbone', 'head')
  )
  parts = parameters.input_parts(
    parameters.shapes(nn.unbox(boxed(arm, scale))),
    section(arm, scale).model.vocab_size,
  )
  assert sum(parts.values()) == counts['input']


@pytest.mark.parametrize('sizes', [(1, 8, 1), (2, 2, 2), (1, 4, 2)])
@pytest.mark.parametrize('arm, scale', EACH)
def test_meshes_of_eight_divide_every_parameter(arm, scale, sizes):
  data, fsdp, tensor = sizes
  mesh = sharding.make_mesh(
    sharding.MeshConfig(data=data, fsdp=fsdp, tensor=tensor)
  )
  shardings = sharding.tree_shardings(boxed(arm, scale), mesh)
  assert len(jax.tree.leaves(shardings)) == len(lines(arm, scale))


@pytest.mark.parametrize('arm', ARMS)
def test_the_abstract_state_takes_no_memory_and_has_two_moments(arm):
  config = experiment.read_config(section(arm, '1p2b'))
  mesh = sharding.make_mesh(config.mesh)
  state = state_lib.abstract(config.model.make(), config.optimizer.make(), mesh)
  leaves = jax.tree.leaves(state)
  assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
  params = len(jax.tree.leaves(state.params))
  # The last is the guard's window.
  assert sum(leaf.ndim > 0 for leaf in leaves) == 3 * params + 1


@pytest.mark.parametrize('arm, scale', EACH)
def test_arms_differ_in_input_and_head_alone(arm, scale):
  base = config_lib.flatten(section('base', scale))
  changed = config_lib.differences(
    base, config_lib.flatten(section(arm, scale))
  )
  for name in changed:
    assert name.startswith(
      (
        'config.arm',
        'config.model.embedder.',
        'config.model.head.',
        'config.model.token_order',
      )
    )
  assert section(arm, scale).arm == arm


@pytest.mark.parametrize(
  'scale, steps', [('200m', 15_640), ('400m', 30_899), ('1p2b', 91_934)]
)
def test_budgets_are_twenty_tokens_a_parameter_of_the_tied_model(scale, steps):
  config = section('base', scale)
  assert config.train.steps == steps
  tokens = steps * 512 * 512
  assert abs(tokens / (20 * TOTALS['tied', scale]) - 1) < 0.01


def test_layers_of_lev_are_those_of_the_paper():
  shapes = parameters.shapes(nn.unbox(boxed('lev', '1p2b')))
  assert {k: v for k, v in shapes.items() if k.startswith('embedder')} == {
    'embedder/codebooks_JNC': [3, 59, 128],
    'embedder/seed_SCC': [8, 128, 128],
    'embedder/scale_SC': [8, 128],
    'embedder/bias_SC': [8, 128],
    'embedder/splines_SCGR': [8, 128, 16, 64],
    'embedder/out_SRD': [8, 64, 2048],
  }


@pytest.mark.parametrize('arm', ARMS)
def test_a_config_states_its_command(arm):
  stated = importlib.import_module(f'configs.{arm}').__doc__
  assert f'leviathan train --config=configs/{arm}.py:' in stated


@pytest.mark.parametrize('arm', ARMS)
def test_an_unknown_scale_lists_the_scales(arm):
  with pytest.raises(ValueError, match='200m, 400m, 1p2b, smoke'):
    section(arm, '7b')
