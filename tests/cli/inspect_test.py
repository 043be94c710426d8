"""`leviathan inspect --config`, as a process."""

import json


def test_a_config_s_decayed_arrays_and_totals_are_shown(leviathan, tiny):
  code, stdout, stderr = leviathan('inspect', *tiny.flags(), '--json')
  assert code == 0, stderr
  facts = json.loads(stdout)
  found, total = facts['weight_decay'], facts['parameters']
  spared = found['not_decayed']['arrays'].split(', ')
  assert 'final_norm/scale_D' in spared and 'embedder/splines_SCGR' in spared
  decayed = found['decayed']['arrays'].split(', ')
  assert sorted(decayed + spared) == sorted(facts['arrays'])
  counts = [found[kind]['parameters'] for kind in ('decayed', 'not_decayed')]
  assert sum(counts) == total['total'] + total['padding']
