"""Arm `factorized_mlp`: LEV's digits and codebooks, then an MLP.

leviathan train --config=configs/factorized_mlp.py:smoke --workdir=runs/rival

The output head is its own, as LEV's is; the input parameters are LEV's to
within 5 %, at any V and D.
"""

import ml_collections

from configs import base
from configs import lev


def get_config(scale: str):
  """See configs/base.py."""
  config = base.get_config(scale)
  config.arm = 'factorized_mlp'
  config.model.embedder = ml_collections.ConfigDict(
    {
      'name': 'factorized_mlp',
      'matched_to': lev.embedder(scale),
    }
  )
  return config
