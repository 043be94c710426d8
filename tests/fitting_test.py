"""What is tried, in which order, and that what is found does fit."""

import functools
import importlib

import pytest

from leviathan import aot
from leviathan import chips
from leviathan import errors
from leviathan import experiment
from leviathan import fitting

CPU = chips.parse('cpu:8')


def paper(arm, scale):
  module = importlib.import_module(f'configs.{arm}')
  return experiment.read_config(module.get_config(scale))


def test_each_thing_is_tried_alone_and_then_more_of_them(tiny):
  config = tiny.config(
    'tied',
    mesh__data=4,
    mesh__fsdp=2,
    data__batch_size=32,
    model__remat='dots',
    train__loss_chunks=2,
  )
  accumulations = [{'train.accumulation': n} for n in (2, 4)]
  remat = {'model.remat': 'full'}
  fsdp = {'mesh.data': 1, 'mesh.fsdp': -1}
  chunks = [{'train.loss_chunks': n} for n in (8, 32)]
  most = accumulations[-1] | remat
  assert list(fitting.candidates(config, CPU)) == [
    *accumulations,
    remat,
    fsdp,
    *chunks,
    most,
    most | fsdp,
    most | fsdp | chunks[-1],
  ]
  for fields in fitting.candidates(config, CPU):
    assert fitting.changed(config, fields).data == config.data


def test_the_first_that_fits_is_found_and_no_more_is_compiled(tiny):
  config = tiny.config('tied', data__batch_size=32, model__remat='dots')
  asked = []

  def compile_(config, topology, capacity):
    asked.append((config.train.accumulation, config.model.remat))
    return {'fits': config.model.remat == 'full', 'peak': capacity}

  fit = fitting.first(config, CPU, 10**9, compile_=compile_)
  assert asked == [(1, 'dots'), (2, 'dots'), (4, 'dots'), (1, 'full')]
  assert fit.fields == {'model.remat': 'full'}
  assert fitting.flags(fit.fields) == '--config.model.remat=full'


def test_of_all_things_together_no_more_micro_batches_than_it_takes(tiny):
  config = tiny.config('tied', data__batch_size=64, model__remat='dots')
  asked = []

  def compile_(config, topology, capacity):
    asked.append((config.train.accumulation, config.model.remat))
    fits = config.train.accumulation >= 2 and config.model.remat == 'full'
    return {'fits': fits}

  fit = fitting.first(config, CPU, 10**9, compile_=compile_)
  assert fit.fields == {'train.accumulation': 2, 'model.remat': 'full'}
  # Without any, layers that are computed again were tried already.
  assert asked[-3:] == [(8, 'full'), (4, 'full'), (2, 'full')]


def test_that_a_compiler_was_ended_says_nothing_of_the_run(tiny, monkeypatch):
  def compile_(config, topology, capacity):
    raise aot.CompilerError('killed')

  first = functools.partial(fitting.first, compile_=compile_)
  monkeypatch.setattr(fitting, 'first', first)
  with pytest.raises(aot.CompilerError):
    fitting.anyhow(tiny.config('tied'), CPU)


def test_what_the_formula_excludes_is_not_compiled(tiny):
  config = tiny.config('tied', mesh__data=8, mesh__fsdp=1)
  assert fitting._more_fsdp(config, CPU)
  whole, asked = aot.floor(config, CPU), []

  def compile_(config, topology, capacity):
    asked.append(config.mesh.sizes(topology.devices)[1])
    return {'fits': False}

  assert not fitting.hopeless(config, CPU, whole)
  assert fitting.first(config, CPU, whole, compile_=compile_) is None
  assert set(asked) == {8}
  assert fitting.hopeless(config, CPU, whole // 8)
  assert fitting.first(config, CPU, whole // 8, compile_=compile_) is None


def test_what_is_suggested_compiles_and_fits(tiny):
  config = tiny.config('tied', data__batch_size=64, model__layers=1)
  before = aot.of(config, CPU)['memory']['peak']
  capacity = round(0.9 * before)
  fit = fitting.first(config, CPU, capacity, compile_=aot.of)
  assert fit.fields and fit.facts['memory']['peak'] <= capacity
  again = aot.of(fitting.changed(config, fit.fields), CPU, capacity)
  assert again['fits'] and again['memory'] == fit.facts['memory']


@pytest.mark.parametrize('arm', ['lev', 'tied'])
def test_no_chip_of_16_gb_holds_1p2b_and_four_do(arm):
  config = paper(arm, '1p2b')
  assert fitting.hopeless(config, chips.parse('v5e:1x1'))
  found = fitting.smallest(config, chips.CHIPS['v5e'])
  assert next(found) == (chips.parse('v5e:2x2'), {})
  assert not fitting.hopeless(config, chips.parse('v6e:1x1'))


def test_a_mesh_is_made_to_suit_devices_only_where_it_does_not(tiny):
  config = tiny.config('tied')
  assert fitting.suited(config, CPU) == {}
  two = chips.parse('2xv5e:2x2')
  assert fitting.suited(config, two) == {'mesh.data': 2}
  given = tiny.config('tied', mesh__fsdp=3, mesh__tensor=2)
  assert fitting.suited(given, two) == {
    'mesh.data': 2,
    'mesh.fsdp': -1,
  }  # Over two devices of a slice, `tensor` stays.
  assert fitting.suited(given, chips.parse('2xv5e:1x1')) == {
    'mesh.data': 2,
    'mesh.fsdp': -1,
    'mesh.tensor': 1,
  }


@pytest.mark.parametrize(
  'topology, fields',
  [
    ('v5e:8x8', {}),
    # A width of 640 divides by 128, and not by 256.
    ('v5e:16x16', {'mesh.data': 2}),
    ('2xv5e:16x16', {'mesh.data': 4}),
  ],
)
def test_where_the_model_does_not_divide_over_all_it_does_over_less(
  topology, fields
):
  config, on = paper('lev', '200m'), chips.parse(topology)
  assert fitting.suited(config, on) == fields
  assert not fitting.hopeless(fitting.changed(config, fields), on)


def test_a_field_that_cannot_be_is_refused(tiny):
  with pytest.raises(errors.ConfigError, match='accumulation=0'):
    fitting.changed(tiny.config('tied'), {'train.accumulation': 0})
