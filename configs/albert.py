"""Arm `albert`: a narrow table and one matrix (arXiv 1909.11942).

leviathan train --config=configs/albert.py:smoke --workdir=runs/albert

The output head is its own, as LEV's is. The input parameters are LEV's to
within 5 %; a vocabulary at which no whole size comes so near is refused.

Measured: 200 steps of `smoke` (cosine over 200, seed 0, the quickstart's data)
take some two minutes on two CPU cores and end at 4.979 nats per token, held
out. The larger scales have not been run.
"""

from configs import lev


def get_config(scale: str):
  """See configs/base.py."""
  return lev.rival('albert', scale)
