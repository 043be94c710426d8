"""Arm `flat_mlp`: a narrow table and an MLP.

leviathan train --config=configs/flat_mlp.py:smoke --workdir=runs/rival

The output head is its own, as LEV's is; the input parameters are LEV's to
within 5 %, at any V and D.
"""

import ml_collections

from configs import base
from configs import lev


def get_config(scale: str):
  """See configs/base.py."""
  config = base.get_config(scale)
  config.arm = 'flat_mlp'
  config.model.embedder = ml_collections.ConfigDict(
    {
      'name': 'flat_mlp',
      'matched_to': lev.embedder(scale),
    }
  )
  return config
