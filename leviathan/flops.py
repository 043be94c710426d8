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

from leviathan import model as model_lib

# Dense bfloat16 FLOP/s of one device, by JAX's `device_kind`, from the makers'
# data sheets (without sparsity). A TPU7x chip is two devices.
PEAK = {
  'TPU v4': 275e12,
  'TPU v5 lite': 197e12,  # v5e
  'TPU v5': 459e12,  # v5p
  'TPU v6 lite': 918e12,  # v6e
  'TPU7x': 1153.5e12,
  'NVIDIA A100-SXM4-40GB': 312e12,
  'NVIDIA A100-SXM4-80GB': 312e12,
  'NVIDIA A100-PCIE-40GB': 312e12,
  'NVIDIA A100 80GB PCIe': 312e12,
  'NVIDIA H100 80GB HBM3': 989e12,
  'NVIDIA H100 PCIe': 756e12,
  'NVIDIA H200': 989e12,
  'NVIDIA B200': 2250e12,
}


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
    for a device that is not in `PEAK`, such as a CPU.
  """
  peak = PEAK.get(devices[0].device_kind)
  if peak is None:
    return None
  return tokens_per_second * flops_per_token / (peak * len(devices))
