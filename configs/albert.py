"""Arm `albert`: a narrow table and one matrix (arXiv 1909.11942).

leviathan train --config=configs/albert.py:smoke --workdir=runs/albert

The output head is its own, as LEV's is. The input parameters are LEV's to
within 5 %; a vocabulary at which no whole size comes so near is refused.
"""

from configs import lev


def get_config(scale: str):
  """See configs/base.py."""
  return lev.rival('albert', scale)
