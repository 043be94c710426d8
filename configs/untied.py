"""Arm `untied`: a table, and an output head of its own.

leviathan train --config=configs/untied.py:smoke --workdir=runs/untied

`smoke` runs on two CPU cores; 200m, 400m and 1p2b are the paper's (v2).
"""

from configs import base


def get_config(scale: str):
  """See configs/base.py."""
  config = base.get_config(scale)
  config.arm = 'untied'
  return config
