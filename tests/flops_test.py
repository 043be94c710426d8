"""FLOPs by formula agree with what XLA counts, and with figures by hand."""

import importlib
import os
import types

from flax import linen as nn
import jax
from jax.experimental import topologies
import jax.numpy as jnp
import pytest

from leviathan import chips
from leviathan import experiment
from leviathan import flops

# Several processes may ask libtpu at once, and none the network for a TPU.
os.environ['ALLOW_MULTIPLE_LIBTPU_LOAD'] = '1'
os.environ['TPU_SKIP_MDS_QUERY'] = '1'

ARMS = ('tied', 'untied', 'lev', 'albert', 'flat_mlp', 'factorized_mlp')
SEQ_LEN = 256
# Small, but what is not counted must not matter: heads are wide, so that
# softmax is little beside the scores, and V has no rows that only pad.
SIZES = {
  'vocab_size': 1024,
  'width': 512,
  'layers': 1,  # XLA counts a loop's body once.
  'head_width': 256,
  'mlp_width': 1024,
  'remat': 'none',
}
# XLA counts zeros too: with three knots there are none. A loop would be counted
# once, and the plain form has none. Ranks are many: finding the basis is little
# beside its sum.
LEV = {
  'implementation': 'reference',
  'seed_width': 128,
  'heads': 2,
  'knots': 3,
  'rank': 256,
}


def model_config(arm, scale='smoke'):
  return importlib.import_module(f'configs.{arm}').get_config(scale)


def small(arm):
  config = model_config(arm)
  config.model.update(SIZES)
  embedder = config.model.embedder
  lev = embedder.get('matched_to', embedder)
  if lev.name == 'lev':
    lev.update(LEV)
  return experiment.read_config(config).model


def counted(config, method=None):
  """XLA's FLOPs of a forward pass, a token."""
  module = config.make()
  ids_BL = jax.ShapeDtypeStruct((1, SEQ_LEN), jnp.int32)
  boxed = jax.eval_shape(module.init, jax.random.key(0), ids_BL)
  lowered = jax.jit(
    lambda variables, ids_BL: module.apply(variables, ids_BL, method=method)
  ).lower(nn.unbox(boxed), ids_BL)
  return lowered.cost_analysis()['flops'] / SEQ_LEN


@pytest.mark.parametrize('arm', ARMS)
def test_a_model_s_forward_pass_is_a_third_of_the_formula(arm):
  config = small(arm)
  found = flops.per_token(config, SEQ_LEN)
  assert counted(config) == pytest.approx(found['total'] / 3, rel=0.01)


@pytest.mark.parametrize('arm', ARMS[2:])
def test_an_embedder_s_forward_pass_is_its_own_formula(arm):
  config = small(arm)
  formula = config.embedder.flops(config.vocab_size, config.width)
  assert counted(config, method='embed') == pytest.approx(formula, rel=0.03)


def test_figures_by_hand_at_200m():
  config = experiment.read_config(model_config('lev', '200m'))
  # Heads of 640, MLPs of 1712, 16 layers, 512 tokens; LEV as in the paper.
  coordinates, phi, product = 2 * 8 * 128**2, 6 * 8 * 128 * 64, 8 * 128 * 64
  lev = coordinates + phi + product + 2 * 8 * 64 * 640
  backbone = 16 * (4 * 640**2 + 3 * 640 * 1712)
  assert backbone == 78_828_160 - 33 * 640  # The body without its norms.
  assert flops.per_token(config.model, 512) == {
    'embedder': 3 * lev,
    'backbone': 6 * backbone,
    'attention': 12 * 16 * 640 * 512,
    'head': 6 * 640 * 200_019,
    'total': 1_307_958_528,
  }


@pytest.mark.parametrize('scale', ['200m', '1p2b'])
def test_the_paper_s_layer_is_little_beside_the_model(scale):
  model = experiment.read_config(model_config('lev', scale)).model
  found = flops.per_token(model, 512)
  assert 0 < found['embedder'] < 0.01 * found['total']


def devices(kind, count):
  return [types.SimpleNamespace(device_kind=kind)] * count


def test_utilization_by_hand():
  # 4 x 197e12 FLOP/s are there; 2e5 tokens of 1e9 FLOPs take 2e14 of them.
  found = flops.mfu(2e5, 1e9, devices('TPU v5 lite', 4))
  assert found == pytest.approx(2e14 / 788e12)
  assert flops.mfu(2e5, 1e9, devices('TPU v5 lite', 8)) == found / 2


def test_a_device_without_a_known_peak_has_no_utilization():
  assert flops.mfu(2e5, 1e9, jax.devices()) is None


@pytest.mark.parametrize(
  'topology, teraflops',
  [('v5e:2x2', 197), ('v5p:2x2x1', 459), ('v6e:2x2', 918)],
)
def test_kinds_are_spelled_as_the_library_spells_them(topology, teraflops):
  pytest.importorskip('libtpu', reason='only Linux on x86-64 has libtpu')
  found = topologies.get_topology_desc(topology, platform='tpu').devices
  assert chips.peak(found[0].device_kind) == teraflops * 1e12
