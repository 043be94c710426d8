"""Compiles a run's training step for devices that need not be here.

leviathan compile --config=configs/lev.py:1p2b --topology=v5e:8x8
leviathan compile --config=configs/lev.py:1p2b --topology=v5e:2x4 --suggest
leviathan compile --config=configs/lev.py:smoke --topology=cpu:8
leviathan compile --config=configs/lev.py:200m --topologies=v5e:4x4,2xv5e:16x16

Says what a device holds, what is sent, and what a step takes at least; ends
with 2 where it does not fit, or none of several does. A compile takes minutes
at the paper's sizes.
"""

import json
import logging
import sys

from absl import flags
import jax

from leviathan import aot
from leviathan import chips
from leviathan import compiled
from leviathan import errors
from leviathan import experiment
from leviathan import fitting
from leviathan.cli import config_flag

CONFIG = config_flag.define()
TOPOLOGY = flags.DEFINE_string(
  'topology',
  None,
  f'CHIP:SIDES, as v5e:16x16 or v5p:4x4x4 ({", ".join(chips.CHIPS)}); or '
  'cpu:8, eight virtual devices.',
)
NUM_SLICES = flags.DEFINE_integer(
  'num_slices', 1, 'Of --topology; config.mesh.data divides over them.'
)
TOPOLOGIES = flags.DEFINE_list(
  'topologies',
  None,
  'Instead of --topology: several, as v5e:4x4,2xv5e:16x16, for a table in '
  'Markdown, each with the flags with which it fits; ends with 2 if none does.',
)
SUGGEST = flags.DEFINE_bool(
  'suggest',
  False,
  'Where it does not fit, try smaller settings, and print the first that does '
  'as flags.',
)
JSON = flags.DEFINE_bool('json', False, 'Print JSON.')


def main(argv) -> None:
  """Runs the command."""
  del argv
  # Shapes are made here, for the CPU: a TPU or GPU that is here may be in use.
  jax.config.update('jax_platforms', 'cpu')
  logging.getLogger('leviathan').setLevel(logging.WARNING)
  _check_flags()
  config = experiment.read_config(config_flag.read(CONFIG))
  if TOPOLOGIES.value is not None:
    topologies = [chips.parse(text) for text in TOPOLOGIES.value]
    for topology in topologies:
      aot.check_compiler(topology)
    _table(config, topologies)
    return
  topology = chips.parse(TOPOLOGY.value or '', NUM_SLICES.value)
  if SUGGEST.value and topology.chip is None:
    raise errors.ConfigError(
      f'--suggest with --topology={topology}: nobody knows what fits virtual '
      'devices; give the slice of a chip, as v5e:2x2'
    )
  if fitting.hopeless(config, topology):
    raise errors.ConfigError(
      compiled.elsewhere(config, topology, suggest=SUGGEST.value, say=_say)
    )
  if not SUGGEST.value:
    _one(config, topology)
    return
  fit = fitting.first(config, topology, say=_say)
  if fit is None:
    raise errors.ConfigError(
      f'--topology={topology}: nothing that was tried fits; give a larger slice'
    )
  _show(fit.facts, suggestion=fitting.flags(fit.fields))


def _check_flags() -> None:
  """Raises ConfigError for flags that do not go together."""
  if (TOPOLOGY.value is None) == (TOPOLOGIES.value is None):
    raise errors.ConfigError('give one of --topology and --topologies')
  if TOPOLOGIES.value is None:
    return
  if NUM_SLICES.value != 1:
    raise errors.ConfigError(
      f'--num_slices={NUM_SLICES.value} is of --topology; in --topologies '
      'write it before the slice, as 2xv5e:16x16'
    )
  if SUGGEST.value:
    raise errors.ConfigError(
      '--suggest is of --topology; --topologies always says what makes each fit'
    )


def _one(config: experiment.Config, topology: chips.Topology) -> None:
  """The config as it is."""
  facts = aot.in_child(config, topology)
  _show(facts)
  if facts['fits'] is False:
    raise errors.ConfigError(compiled.too_large(config, topology, facts))


def _show(facts: aot.Facts, suggestion: str | None = None) -> None:
  """Prints facts, and flags to add."""
  if JSON.value:
    more = {} if suggestion is None else {'suggestion': suggestion}
    print(json.dumps(facts | more, indent=2))
    return
  print('\n'.join(compiled.lines(facts)))
  if facts['fits'] is not None:
    print('fits' if facts['fits'] else 'does not fit')
  if suggestion is not None:
    print(f'add: {suggestion}' if suggestion else 'add: nothing, it fits')


def _table(config: experiment.Config, topologies: list[chips.Topology]) -> None:
  """A row a topology, and the rows as JSON if that is asked for."""
  rows = []
  for topology in topologies:
    fit, why = fitting.anyhow(config, topology, say=_say)
    rows.append(compiled.row(topology, fit, why))
    _say(f'{topology}: {compiled.verdict(rows[-1])}')
  print(json.dumps(rows, indent=2) if JSON.value else compiled.table(rows))
  if not any(row['facts'] for row in rows):
    raise errors.ConfigError(
      f'--topologies={",".join(map(str, topologies))}: it fits none of them; '
      'give larger slices or other chips'
    )


def _say(line: str) -> None:
  print(line, file=sys.stderr, flush=True)
