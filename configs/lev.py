"""Arm `lev`: LEV in place of the table, and an output head of its own.

leviathan train --config=configs/lev.py:smoke --workdir=runs/lev

The layer is that of Batley & Saha, arXiv 2601.22040, version 2 (version 1 has
a smaller one). `smoke` shrinks it with the backbone and runs on two CPU cores.

Measured: 200 steps of `smoke` (cosine over 200, seed 0, the quickstart's data)
take some two minutes on two CPU cores and end at 4.893 nats per token, held
out. The larger scales have not been run.
"""

import ml_collections

from configs import base


def get_config(scale: str):
  """See configs/base.py."""
  config = base.get_config(scale)
  config.arm = 'lev'
  config.model.embedder = embedder(scale)
  return config


def embedder(scale: str):
  """The layer's sizes; the rivals are matched to them."""
  embedder = ml_collections.ConfigDict()
  embedder.name = 'lev'
  embedder.num_digits = 3  # J
  embedder.seed_width = 128  # C
  embedder.heads = 8  # S
  embedder.knots = 16  # G
  embedder.rank = 64  # R
  embedder.implementation = 'auto'  # or reference, chunked, pallas
  if scale.startswith('smoke'):
    embedder.update(seed_width=64, heads=4, rank=32)
  return embedder


def rival(arm: str, scale: str):
  """The config of an arm whose input is matched to this one's."""
  config = base.get_config(scale)
  config.arm = arm
  config.model.embedder = ml_collections.ConfigDict(
    {'name': arm, 'matched_to': embedder(scale)}
  )
  return config
