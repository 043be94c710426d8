"""Arm `tied`: a table that also serves as the output head (the baseline).

leviathan train --config=configs/tied.py:smoke --workdir=runs/tied

`smoke` runs on two CPU cores; 200m, 400m and 1p2b are the paper's (v2).
"""

from configs import base


def get_config(scale: str):
  """See configs/base.py."""
  config = base.get_config(scale)
  config.arm = 'tied'
  config.model.head.name = 'tied'
  return config
