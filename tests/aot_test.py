"""What is compiled is what is trained; TPUs need not be here."""

import importlib.metadata
import importlib.util
import pathlib
import subprocess

import jax
import pytest

from leviathan import aot
from leviathan import chips
from leviathan import errors
from leviathan import experiment
from leviathan import parameters
from leviathan import sharding
from leviathan.eval import score

CPU = chips.parse('cpu:8')
MESH = {'mesh__data': 2, 'mesh__fsdp': 2, 'mesh__tensor': 2}


@pytest.fixture(scope='module')
def config(tiny):
  """A run on all axes."""
  return tiny.config('tied', model__layers=1, data__document_mask=True, **MESH)


@pytest.fixture(scope='module')
def compiled(config):
  """(facts, the steps that were made for them)."""
  made = []
  make = experiment.Experiment.train_step

  def train_step(parts):
    made.append(make(parts))
    return made[-1]

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(experiment.Experiment, 'train_step', train_step)
    return aot.of(config, CPU), made


def test_the_memory_is_that_of_the_step_that_training_runs(config, compiled):
  facts, (step,) = compiled  # `Experiment.train_step` made it, as in `train`.
  parts = experiment.make(config)
  state = parts.fresh_state()
  rows = next(parts.train_batches(experiment.open_training(config), 0))
  with jax.set_mesh(parts.mesh):
    trained = step.lower(state, score.to_mesh(rows, parts.mesh)).compile()
  stats = trained.memory_analysis()
  memory = facts['memory']
  assert memory['arguments'] == stats.argument_size_in_bytes
  assert memory['temporaries'] == stats.temp_size_in_bytes > 0
  assert memory['peak'] == (
    stats.argument_size_in_bytes
    + stats.temp_size_in_bytes
    + stats.output_size_in_bytes
    - stats.alias_size_in_bytes
    + stats.generated_code_size_in_bytes
  )
  assert memory['capacity'] is facts['fits'] is facts['estimate'] is None


def test_the_facts_are_those_of_the_config(config, compiled):
  facts, _ = compiled
  parts = experiment.make(config)
  table = sharding.table(parts.abstract_state)
  counted = parameters.count(
    parameters.shapes(parts.abstract_state.params), config.model.vocab_size
  )
  state = facts['state']
  assert sum(s['parameters'] for s in state.values()) == counted['total']
  for name, column in (('bytes', 0), ('bytes_per_device', 1)):
    found = sum(s[name] + s[f'optimizer_{name}'] for s in state.values())
    # Counters, and the guard's window of 128 x 2 numbers.
    assert 0 < table.totals()['total'][column] - found < 2000
  assert facts['rows_per_device'] == 2
  largest = [b['bytes'] for b in facts['buffers']]
  assert len(largest) == 5 and largest == sorted(largest, reverse=True)
  gathers = [c for c in facts['collectives'] if c['axes'] == 'fsdp']
  # The table, in float32, goes to all of its axis.
  assert sum(c['bytes'] for c in gathers) > 256 * 32 * 4
  assert {'data', 'tensor'} <= {c['axes'] for c in facts['collectives']}


def test_a_smaller_capacity_is_no_fit(config, compiled):
  peak = compiled[0]['memory']['peak']
  assert aot.of(config, CPU, peak)['fits'] is True
  assert aot.of(config, CPU, peak - 1)['fits'] is False


def test_the_floor_is_all_that_is_of_the_parameters_shape(tiny):
  config = tiny.config('tied', model__layers=1)
  shapes = experiment.make(config).abstract_state.params
  count = sum(x.size for x in jax.tree.leaves(shapes))
  # Parameters, two moments and gradients.
  one = aot.floor(config, chips.parse('cpu:1'))
  assert 16 * count < one < 16 * count + 2000
  assert aot.floor(config, CPU) < one / 6


def test_a_batch_that_does_not_divide_is_refused(tiny):
  config = tiny.config('tied', data__batch_size=12)
  for ask in (aot.floor, aot.of):
    with pytest.raises(errors.ConfigError, match='batch_size=12 does not div'):
      ask(config, CPU)


def test_a_compiler_that_is_not_there_is_one_line(config, monkeypatch):
  find = importlib.util.find_spec
  monkeypatch.setattr(
    importlib.util,
    'find_spec',
    lambda name: None if name == 'libtpu' else find(name),
  )
  with pytest.raises(errors.ConfigError) as caught:
    aot.in_child(config, chips.parse('v5e:2x2'))
  said = str(caught.value)
  assert "pip install 'leviathan[tpu]'" in said and '\n' not in said
  aot.check_compiler(CPU)


@pytest.mark.parametrize(
  'code, error, said',
  [
    (-6, aot.CompilerError, r'--topology=cpu:8: .* code -6 \(no such slice\)'),
    (1, RuntimeError, 'Traceback'),  # Ours: it keeps its trace.
  ],
)
def test_the_child_s_death_is_told(config, monkeypatch, code, error, said):
  def run(words, **options):
    assert options['env'].items() >= aot.ENVIRONMENT.items()
    return subprocess.CompletedProcess(
      words, code, stderr='Traceback\n\nno such slice\n'
    )

  monkeypatch.setattr(aot.subprocess, 'run', run)
  with pytest.raises(error, match=said):
    aot.in_child(config, CPU)


def test_the_compiler_of_tpus_that_dies_is_named_with_its_version(
  config, monkeypatch
):
  monkeypatch.setattr(aot, 'check_compiler', lambda topology: None)
  monkeypatch.setattr(importlib.metadata, 'version', lambda name: '1.2.3')
  monkeypatch.setattr(
    aot.subprocess,
    'run',
    lambda words, **_: subprocess.CompletedProcess(words, -9, stderr=''),
  )
  with pytest.raises(aot.CompilerError) as caught:
    aot.in_child(config, chips.parse('v5e:2x2'))
  said = str(caught.value)
  assert 'libtpu 1.2.3 ended with code -9' in said and '\n' not in said


@pytest.mark.parametrize(
  'message, said',
  [
    (
      'RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 17.50M '
      'of 16.00M vmem.\nmore',
      r'the compiler refuses the program \(.*17\.50M of 16\.00M vmem\.\)',
    ),
    ('INTERNAL: a bug', None),
  ],
)
def test_no_room_on_the_chip_itself_is_no_lack_of_memory(
  config, monkeypatch, message, said
):
  def compile_step(parts):
    raise jax.errors.JaxRuntimeError(message)

  monkeypatch.setattr(aot, 'compile_step', compile_step)
  error = errors.ConfigError if said else jax.errors.JaxRuntimeError
  with pytest.raises(error, match=said):
    aot.of(config, CPU)


def test_a_program_that_is_refused_for_its_memory_does_not_fit(
  config, monkeypatch
):
  def compile_step(parts):
    raise jax.errors.JaxRuntimeError(
      'RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 2.5M of '
      '1M hbm.'
    )

  monkeypatch.setattr(aot, 'compile_step', compile_step)
  facts = aot.of(config, CPU, 2**20)
  assert facts['fits'] is False and facts['memory']['peak'] == 2621440


def test_what_may_cross_slices_is_not_timed(config):
  sent = [{'axes': axes, 'moved': 8} for axes in ('data+fsdp', '?', 'fsdp')]
  memory = {'arguments': 1, 'temporaries': 1}
  for text, across in (('2xv5e:2x2', 16), ('v5e:2x4', 0)):
    found = aot._estimate(config, chips.parse(text), memory, sent)
    assert found['across_slices_bytes'] == across
    assert found['collective_seconds'] == (24 - across) / 200e9


def test_what_the_child_refuses_is_raised_here(config, monkeypatch):
  def run(words, **options):
    pathlib.Path(words[-1]).write_text('{"refused": "no", "exit_code": 3}')

  monkeypatch.setattr(aot.subprocess, 'run', run)
  with pytest.raises(errors.DataError, match='^no$'):
    aot.in_child(config, CPU)


def test_a_step_is_compiled_for_tpus_that_are_not_here(tiny):
  pytest.importorskip('libtpu', reason='only Linux on x86-64 has libtpu')
  config = tiny.config('tied', model__layers=1, model__attention='xla')
  topology = chips.parse('v5e:2x2')
  facts = aot.in_child(config, topology)
  assert facts['fits'] is True
  assert facts['memory']['capacity'] == topology.chip.usable
  assert 0 < facts['memory']['peak'] < topology.chip.usable
  assert {c['axes'] for c in facts['collectives']} == {'fsdp'}
  estimate = facts['estimate']
  seconds = [v for name, v in estimate.items() if name.endswith('_seconds')]
  compute = facts['flops']['total'] / 4 / 197e12
  assert estimate['compute_seconds'] == pytest.approx(compute)
  assert estimate['best_mfu'] == pytest.approx(compute / max(seconds))
