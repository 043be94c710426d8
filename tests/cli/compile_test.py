"""`leviathan compile`, as a process where it compiles."""

import json
import pathlib
import subprocess
import sys

import pytest

from leviathan import chips
from leviathan import compiled
from leviathan import fitting


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
    (['--topologies=v5e:2x2', '--num_slices=2'], '--num_slices=2 is of --topo'),
    (['--topologies=v5e:2x2', '--suggest'], '--suggest is of --topology'),
    (['--topology=cpu:8', '--suggest'], '--suggest with --topology=cpu:8'),
  ],
)
def test_what_cannot_be_compiled_for_is_one_line(leviathan, tiny, flags, said):
  code, stdout, stderr = leviathan('compile', *tiny.flags('tied'), *flags)
  assert code == 2 and not stdout
  assert said in stderr and stderr.count('\n') == 1


# The command, of which no compiler is started: a device needs 40 GB, less where
# there are more of them or more micro-batches.
COMMAND = """
import os, sys
sys.path.append('tests')
os.environ.pop('JAX_PLATFORMS')
import compiled_test
import jax
from leviathan import aot

def in_child(config, topology, capacity=None):
  assert jax.config.jax_platforms == 'cpu'
  peak = 40e9 / topology.devices / config.train.accumulation
  return compiled_test.facts_of(config, topology, peak)

def check_compiler(topology):
  # That of one slice is asked for where it is started.
  assert not any(word.startswith('--topology=') for word in sys.argv)

aot.check_compiler = check_compiler
from leviathan import fitting
fitting.first.__kwdefaults__['compile_'] = aot.in_child = in_child
from leviathan.cli import main
sys.exit(main.execute(['compile', *sys.argv[1:]]))
"""
TESTS = pathlib.Path(__file__).parents[1]
LARGE = [f'--config={TESTS.parent}/configs/tied.py:1p2b']


def made_up(*flags):
  """(exit code, stdout, stderr)."""
  process = subprocess.run(
    [sys.executable, '-c', COMMAND, *flags],
    capture_output=True,
    text=True,
    cwd=TESTS.parent,
    check=False,
  )
  return process.returncode, process.stdout, process.stderr


def test_what_does_not_fit_ends_with_2(tiny):
  code, stdout, stderr = made_up(*tiny.flags('tied'), '--topology=v5e:1x1')
  assert code == 2
  assert stdout.endswith('\ndoes not fit\n')
  assert 'a device needs 40.00 GB of 16.91 GB; try ' in stderr
  assert stderr.count('\n') == 1


@pytest.mark.parametrize(
  'topology, words',
  [
    ('v5e:1x1', '--config.train.accumulation=4'),
    ('v5e:2x2', 'nothing, it fits'),
  ],
)
def test_what_makes_it_fit_is_printed_last(tiny, topology, words):
  code, stdout, stderr = made_up(
    *tiny.flags('tied'), f'--topology={topology}', '--suggest'
  )
  assert code == 0, stderr
  assert stdout.endswith(f'\nfits\nadd: {words}\n')
  assert f'{topology}: compiling as it is\n' in stderr


def test_where_nothing_can_fit_nothing_is_compiled():
  code, stdout, stderr = made_up(*LARGE, '--topology=v5e:1x1')
  assert code == 2 and not stdout
  assert 'the smallest slice that has room for them is v5e:2x2' in stderr


def test_a_table_of_which_one_fits(tiny):
  code, stdout, stderr = made_up(
    *tiny.flags('tied'), '--topologies=v5e:1x1,v5e:2x2'
  )
  assert code == 0, stderr
  assert [line.split()[1] for line in stdout.splitlines()[2:]] == [
    'v5e:1x1',
    'v5e:2x2',
  ]
  # As it comes, and not at the end alone.
  said = stderr.splitlines()
  first = said.index('v5e:1x1: yes, with --config.train.accumulation=4')
  assert said[first + 1 :] == ['v5e:2x2: compiling as it is', 'v5e:2x2: yes']


def test_a_table_of_which_none_fits_ends_with_2():
  code, stdout, stderr = made_up(*LARGE, '--topologies=v5e:1x1')
  assert code == 2
  assert '| no: state and gradients alone are too large |' in stdout
  assert stderr.splitlines()[-1].startswith('error: --topologies=v5e:1x1: it f')
