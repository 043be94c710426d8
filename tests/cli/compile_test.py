"""`leviathan compile`, as a process where it compiles."""

import json

import pytest

from leviathan import aot
from leviathan import chips
from leviathan import compiled
from leviathan import fitting
from leviathan.cli import main


def test_virtual_devices_have_no_verdict(leviathan, tiny):
  flags = [*tiny.flags('tied', model__layers=1), '--topology=cpu:2']
  code, stdout, stderr = leviathan('compile', *flags, '--json')
  assert code == 0, stderr
  facts = json.loads(stdout)
  assert facts['fits'] is None and facts['mesh']['fsdp'] == 2
  assert facts['devices'] == 2 and facts['memory']['peak'] > 0
  said = '\n'.join(compiled.lines(facts))
  assert 'of this device none' in said and 'all-gather over fsdp' in said
  row = compiled.row(chips.parse('cpu:2'), fitting.Fit({}, facts), '')
  assert '| cpu:2 |     2 | not known |' in compiled.table([row])


@pytest.mark.parametrize(
  'flags, said',
  [
    (['--topology=v5x:2x2'], "there is no chip 'v5x'; did you mean v5"),
    (['--topology=v5e:32x8'], 'the nearest is v5e:16x16'),
    ([], 'give one of --topology and --topologies'),
  ],
)
def test_what_cannot_be_compiled_for_is_one_line(leviathan, tiny, flags, said):
  code, stdout, stderr = leviathan('compile', *tiny.flags('tied'), *flags)
  assert code == 2 and not stdout
  assert said in stderr and stderr.count('\n') == 1


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
    'buffers': [],
    'collectives': [],
    'state': {},
    'flops': {'embedder': 1.0, 'total': 4.0},
    'estimate': None,
    'compile_seconds': 1.0,
  }


def test_exit_codes_and_flags_to_add(tiny, monkeypatch, capsys):
  def in_child(config, topology, capacity=None):
    peak = 20e9 / config.train.accumulation
    return facts_of(config, topology, peak)

  monkeypatch.setattr(aot, 'check_compiler', lambda topology: None)
  monkeypatch.setattr(aot, 'in_child', in_child)
  monkeypatch.setitem(fitting.first.__kwdefaults__, 'compile_', in_child)
  given = ['compile', *tiny.flags('tied', data__batch_size=64)]
  assert main.execute([*given, '--topology=v5e:2x2', '--nosuggest']) == 2
  out = capsys.readouterr()
  assert 'does not fit' in out.out
  assert (
    'a device needs 20.00 GB of 16.91 GB; try --config.train.accumulation=2, '
    'or --suggest finds what fits'
  ) in out.err
  assert main.execute([*given, '--topology=v5e:2x2', '--suggest']) == 0
  assert 'add: --config.train.accumulation=2' in capsys.readouterr().out


def test_where_nothing_can_fit_the_smallest_slice_is_named(monkeypatch, capsys):
  compiled_for = []

  def in_child(config, topology, capacity=None):
    compiled_for.append(str(topology))
    return facts_of(config, topology, 10e9)

  monkeypatch.setattr(aot, 'check_compiler', lambda topology: None)
  monkeypatch.setitem(fitting.first.__kwdefaults__, 'compile_', in_child)
  given = ['compile', '--config=configs/tied.py:1p2b', '--topology=v5e:1x1']
  assert main.execute([*given, '--nosuggest']) == 2
  said = capsys.readouterr().err
  assert 'alone are 19.' in said and 'room for them is v5e:2x2' in said
  assert not compiled_for
  assert main.execute([*given, '--suggest']) == 2
  said = capsys.readouterr().err
  assert compiled_for == ['v5e:2x2']
  assert 'the smallest slice on which it fits is v5e:2x2: 10.00 GB' in said
