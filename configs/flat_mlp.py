"""Arm `flat_mlp`: a narrow table and an MLP.

leviathan train --config=configs/flat_mlp.py:smoke --workdir=runs/flat

The output head is its own, as LEV's is. The input parameters are LEV's to
within 5 %; a vocabulary at which no whole size comes so near is refused.
"""

from configs import lev


def get_config(scale: str):
  """See configs/base.py."""
  return lev.rival('flat_mlp', scale)
