"""Arm `albert`: a narrow table and one matrix (arXiv 1909.11942).

leviathan train --config=configs/albert.py:smoke --workdir=runs/rival

The output head is its own, as LEV's is; the input parameters are LEV's to
within 5 %, at any V and D.
"""

import ml_collections

from configs import base
from configs import lev


def get_config(scale: str):
  """See configs/base.py."""
  config = base.get_config(scale)
  config.arm = 'albert'
  config.model.embedder = ml_collections.ConfigDict(
    {
      'name': 'albert',
      'matched_to': lev.embedder(scale),
    }
  )
  return config
