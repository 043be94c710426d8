"""Arm `tied`: a table that also serves as the output head (the baseline).

leviathan train --config=configs/tied.py:smoke --workdir=runs/tied

The scales 200m, 400m and 1p2b are the paper's (v2).

Measured: 200 steps of `smoke` (cosine over 200, seed 0, the quickstart's data)
take some two minutes on two CPU cores and end at 4.878 nats per token, held
out. The larger scales have not been run.
"""

from configs import base


def get_config(scale: str):
  """See configs/base.py."""
  config = base.get_config(scale)
  config.arm = 'tied'
  config.model.head.name = 'tied'
  return config
