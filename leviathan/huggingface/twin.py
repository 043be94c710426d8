"""Llama in plain numpy, from its files: what an export is held against.

It knows nothing of our model: names, layouts and sizes are those of the files.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np


def logits(
  config: Mapping[str, Any],
  tensors: Mapping[str, np.ndarray],
  ids_L: np.ndarray,
) -> np.ndarray:
  """float32 logits_LV of one row of token ids.

  Args:
    config: the object in config.json, of a model that `llama.shape` takes.
    tensors: as they are stored.
    ids_L: token ids.
  """

  def weight(name: str) -> np.ndarray:
    return tensors[f'model.{name}.weight'].astype(np.float32)

  epsilon = config['rms_norm_eps']
  x_LD = weight('embed_tokens')[ids_L]
  for i in range(config['num_hidden_layers']):
    layer = f'layers.{i}'
    h_LD = _norm(x_LD, weight(f'{layer}.input_layernorm'), epsilon)
    q, k, v = (
      h_LD @ weight(f'{layer}.self_attn.{name}_proj').T for name in 'qkv'
    )
    x_LD = (
      x_LD + _attend(q, k, v, config) @ weight(f'{layer}.self_attn.o_proj').T
    )
    h_LD = _norm(x_LD, weight(f'{layer}.post_attention_layernorm'), epsilon)
    gate_LF = h_LD @ weight(f'{layer}.mlp.gate_proj').T
    up_LF = h_LD @ weight(f'{layer}.mlp.up_proj').T
    silu_LF = gate_LF / (1 + np.exp(-np.maximum(gate_LF, -80)))
    x_LD = x_LD + (silu_LF * up_LF) @ weight(f'{layer}.mlp.down_proj').T
  x_LD = _norm(x_LD, weight('norm'), epsilon)
  tied = config.get('tie_word_embeddings', False)
  name = 'model.embed_tokens.weight' if tied else 'lm_head.weight'
  return x_LD @ tensors[name].astype(np.float32).T


def _norm(x_LD: np.ndarray, scale_D: np.ndarray, epsilon: float) -> np.ndarray:
  """x / rms(x) * scale."""
  variance_L1 = np.mean(np.square(x_LD), axis=-1, keepdims=True)
  return x_LD / np.sqrt(variance_L1 + epsilon) * scale_D


def _attend(
  q: np.ndarray, k: np.ndarray, v: np.ndarray, config: Mapping[str, Any]
) -> np.ndarray:
  """Causal attention of (L, heads * K), with rotary positions."""
  length, width = q.shape
  heads = config['num_attention_heads']
  head_width = width // heads
  key_heads = k.shape[-1] // head_width
  # Neighbouring heads of the queries share a head of the keys.
  q_LGRK = q.reshape(length, key_heads, -1, head_width)
  k_LGK = k.reshape(length, key_heads, head_width)
  v_LGK = v.reshape(length, key_heads, head_width)
  theta = (config.get('rope_parameters') or config).get('rope_theta', 10_000.0)
  # Rounded as ours and theirs are: far from 0 an angle in float32 is another.
  # numpy's own power of float32 can be off by a last bit, as ours is not.
  frequency_K = theta ** (-np.arange(0, head_width, 2) / head_width)
  angle = np.outer(
    np.arange(length, dtype=np.float32), frequency_K.astype(np.float32)
  )
  cos, sin = (np.tile(f(angle), 2) for f in (np.cos, np.sin))

  def turned(x, cos, sin):
    first, second = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-second, first], axis=-1) * sin

  q_LGRK = turned(q_LGRK, cos[:, None, None], sin[:, None, None])
  k_LGK = turned(k_LGK, cos[:, None], sin[:, None])
  y_LGRK = np.empty_like(q_LGRK)
  later_LL = np.triu(np.full((length, length), -np.inf, np.float32), 1)
  for g in range(key_heads):
    # One head of the keys at a time: all scores of a long text are large.
    scores_RLL = np.einsum('lrk,mk->rlm', q_LGRK[:, g], k_LGK[:, g])
    scores_RLL = scores_RLL * np.float32(head_width**-0.5) + later_LL
    scores_RLL = np.exp(scores_RLL - scores_RLL.max(-1, keepdims=True))
    scores_RLL /= scores_RLL.sum(-1, keepdims=True)
    y_LGRK[:, g] = np.einsum('rlm,mk->lrk', scores_RLL, v_LGK[:, g])
  return y_LGRK.reshape(length, width)
