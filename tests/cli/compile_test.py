"""`leviathan compile`, as a process where it compiles."""

import json

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
  ],
)
def test_what_cannot_be_compiled_for_is_one_line(leviathan, tiny, flags, said):
  code, stdout, stderr = leviathan('compile', *tiny.flags('tied'), *flags)
  assert code == 2 and not stdout
  assert said in stderr and stderr.count('\n') == 1
