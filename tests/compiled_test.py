"""What is said of a compile: whether it fits, and what to do if not."""

import importlib

import pytest

from leviathan import chips
from leviathan import compiled
from leviathan import experiment
from leviathan import fitting

FOUR = chips.parse('v5e:2x2')


def facts_of(config, topology, peak):
  """Made up, of a config that needs `peak` bytes."""
  return {
    'arm': config.arm,
    'topology': str(topology),
    'devices': topology.devices,
    'mesh': {'data': 1, 'fsdp': topology.devices, 'tensor': 1},
    'rows_per_device': 1.0,
    'fits': peak <= topology.chip.usable,
    'memory': dict.fromkeys(compiled.MEMORY, 1)
    | {'peak': peak, 'capacity': topology.chip.usable},
    'buffers': [{'bytes': 2e9, 'of': 'temporary', 'name': 'jit(step)/dot'}],
    'collectives': [
      {'kind': 'all-gather', 'axes': 'fsdp', 'count': 3, 'bytes': 4e9}
      | {'moved': 3e9}
    ],
    'state': {},
    'flops': {'embedder': 1.0, 'total': 4.0},
    'estimate': {
      'compute_seconds': 0.1,
      'memory_seconds': 0.05,
      'collective_seconds': 0.2,
      'across_slices_bytes': 0,
      'best_mfu': 0.5,
    },
    'compile_seconds': 1.0,
  }


def paper(arm):
  module = importlib.import_module(f'configs.{arm}')
  return experiment.read_config(module.get_config('1p2b'))


def test_what_does_not_fit_says_by_how_much_and_what_to_change():
  config = paper('tied')
  said = compiled.too_large(config, FOUR, facts_of(config, FOUR, 20e9))
  assert said == (
    '--topology=v5e:2x2: a device needs 20.00 GB of 16.91 GB; try '
    '--config.train.accumulation=2, or --suggest finds what fits'
  )


def test_where_nothing_can_fit_the_smallest_slice_is_named():
  config, one = paper('tied'), chips.parse('v5e:1x1')
  asked = []

  def compile_(config, topology, capacity):
    asked.append((str(topology), config.train.accumulation))
    return facts_of(config, topology, 40e9 / config.train.accumulation)

  def ask(suggest):
    return compiled.elsewhere(
      config,
      one,
      suggest=suggest,
      say=lambda line: None,
      compile_=compile_,
    )

  said = ask(False)
  assert 'gradients alone are 19.46 GB on a device of 16.91 GB' in said
  assert 'room for them is v5e:2x2 (--suggest compiles' in said
  assert not asked
  assert ask(True).endswith(
    'the smallest slice on which it fits is v5e:2x2, with '
    '--config.train.accumulation=4: 10.00 GB on a device'
  )
  assert asked == [('v5e:2x2', n) for n in (1, 2, 4)]


def test_where_no_slice_will_do_those_that_were_tried_are_listed(monkeypatch):
  monkeypatch.setattr(fitting, 'smallest', lambda config, chip: iter(()))
  config = paper('tied')
  said = compiled.elsewhere(
    config, chips.parse('v5e:1x1'), suggest=False, say=lambda line: None
  )
  assert 'it fits none of those listed (1x1, 2x2, ' in said


def test_lines_name_buffers_collectives_and_the_estimate():
  said = '\n'.join(compiled.lines(facts_of(paper('lev'), FOUR, 9e9)))
  for words in (
    'lev on v5e:2x2: 4 devices',
    'peak: 9.00 GB',
    '2.00 GB  temporary  jit(step)/dot',
    'all-gather over fsdp: 3 of 4.00 GB; a device passes on 3.00 GB',
    'embedder: 1 (25.0%)',
    'collective: 200 ms',
    'best MFU that may be hoped for: 50%',
  ):
    assert words in said


@pytest.mark.parametrize(
  'fields, why, cells',
  [
    ({}, '', ['v5e:2x2', '4', 'yes', '9.00', '16.91', '3.00', '100', '50']),
    (
      {'model.remat': 'full'},
      '',
      ['v5e:2x2', '4', 'yes, with --config.model.remat=full', '9.00'],
    ),
    (None, 'too large', ['v5e:2x2', '4', 'no: too large', '-', '-']),
  ],
)
def test_a_row_of_the_table(fields, why, cells):
  facts = facts_of(paper('lev'), FOUR, 9e9)
  fit = None if fields is None else fitting.Fit(fields, facts)
  text = compiled.table([compiled.row(FOUR, fit, why)])
  found = [cell.strip() for cell in text.splitlines()[-1].split('|')[1:-1]]
  assert len(found) == len(compiled.HEADER)
  assert found[: len(cells)] == cells
