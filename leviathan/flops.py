"""Model FLOPs of a token, from sizes alone, and what share of a peak they are.

A compiler's count is no substitute: it counts a loop's body once, a custom
kernel not at all, and what is computed again in the backward pass twice.

Counted as in PaLM (Chowdhery et al., arXiv 2204.02311, appendix B), so that
figures may be compared: a multiply-add is 2; the backward pass is twice the
forward pass; attention has its whole L x L scores, though half are masked;
nothing that `remat` computes again. Norms, rotary positions, softmax, SiLU and
the optimizer are left out. Rows that only pad the vocabulary do no work.
"""

from collections.abc import Sequence
from typing import Any

from leviathan import chips
from leviathan import model as model_lib


def per_token(config: model_lib.ModelConfig, seq_len: int) -> dict[str, int]:
  """FLOPs of a token, forward and backward, by part.

  Args:
    config: of the model.
    seq_len: L, tokens.

  Returns:
    {'embedder', 'backbone', 'attention', 'head', 'total'}: `backbone` is the
    layers' products with weights (6 for each of them), `attention` those of
    queries with keys and of scores with values.
  """
  D, F, layers = config.width, config.mlp_width, config.layers
  parts = {
    'embedder': config.embedder.flops(config.vocab_size, D),
    'backbone': 2 * layers * (4 * D * D + 3 * D * F),
    'attention': 2 * layers * 2 * D * seq_len,
    'head': 2 * config.vocab_size * D,
  }
  parts = {name: 3 * forward for name, forward in parts.items()}
  return parts | {'total': sum(parts.values())}


def mfu(
  tokens_per_second: float, flops_per_token: float, devices: Sequence[Any]
) -> float | None:
  """Model FLOPs utilization: the share of the devices' peak that was used.

  Args:
    tokens_per_second: of all devices together.
    flops_per_token: `per_token(...)['total']`.
    devices: JAX's, all of one kind.

  Returns:
    A number in [0, 1], of the bfloat16 peak whatever the compute type is; None
    for a device whose peak is not known, such as a CPU.
  """
  peak = chips.peak(devices[0].device_kind)
  if peak is None:
    return None
  return tokens_per_second * flops_per_token / (peak * len(devices))
