r"""Arm `lev_ordered`: LEV, with the tokens ordered by their use before it.

  make quickstart
  leviathan train --config=configs/lev_ordered.py:smoke --workdir=runs/ordered

Ours, not the paper's: the digits are those of a token's rank in an order that
puts tokens of like use side by side, see docs/token_order.md. With other data
give both --config.data.train and --config.model.token_order.

Measured: 360 steps of `smoke` at learning rate 4e-3 (three seeds, the
quickstart's data) take some three and a half minutes on one CPU core and end at
4.388 nats per token, held out; `lev` at 4.448. The larger scales have not been
run.
"""

from configs import lev


def get_config(scale: str):
  """See configs/base.py."""
  return ordered(lev.get_config(scale))


def ordered(config):
  """The config with the order that `prepare` puts beside its training data."""
  config.arm += '_ordered'
  directory, _, _ = config.data.train.rpartition('/')
  config.model.token_order = f'{directory}/token_order.npy'
  return config
