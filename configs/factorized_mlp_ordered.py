"""Arm `factorized_mlp_ordered`: `factorized_mlp` on ordered tokens.

  leviathan train --config=configs/factorized_mlp_ordered.py:smoke \
      --workdir=runs/factored-ordered

What composition brings once tokens that share digits are alike, without
splines; see configs/lev_ordered.py.

Measured: 360 steps of `smoke` at learning rate 4e-3 (three seeds, the
quickstart's data) take some three and a half minutes on one CPU core and end at
4.352 nats per token, held out; `factorized_mlp` at 4.450. The larger scales
have not been run.
"""

from configs import factorized_mlp
from configs import lev_ordered


def get_config(scale: str):
  """See configs/base.py."""
  return lev_ordered.ordered(factorized_mlp.get_config(scale))
