"""The training step of `tied` beside that of the same model in torch.

  pip install 'leviathan[hf]'
  python benchmarks/peers.py

The peer is transformers' Llama, run as it comes (eager, attention by `sdpa`),
with torch's fused AdamW: the same sizes, the same ids, float32, the gradient
clipped, on all cores. Steps are taken by turns in one process. Prints one JSON
row each: seconds a step, the median of the rounds, and for torch `over_ours`,
the median ratio to the step of ours before it.
"""

import json
import os
import statistics
import time

from absl import app
from absl import flags
import jax
import step
import torch
import transformers

from leviathan import experiment
from leviathan import parameters

# Its flags are this script's too.
flags.FLAGS.set_default('batch_size', 1)
# The peer computes nothing twice, and holds all logits at once.
flags.FLAGS.set_default('remat', 'none')
OURS = 'tied:1'


class Peer:
  """The same model in torch, with its optimizer."""

  def __init__(self, config: experiment.Config):
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = config.model
    llama = transformers.LlamaConfig(
      vocab_size=model.vocab_size,
      hidden_size=model.width,
      intermediate_size=model.mlp_width,
      num_hidden_layers=model.layers,
      num_attention_heads=model.width // model.head_width,
      head_dim=model.head_width,
      max_position_embeddings=config.data.seq_len,
      rms_norm_eps=1e-5,
      tie_word_embeddings=True,
      use_cache=False,
      attn_implementation='sdpa',
      dtype='float32',
    )
    self._model = transformers.LlamaForCausalLM(llama).train()
    self._clip_norm = config.optimizer.clip_norm
    self._optimizer = torch.optim.AdamW(
      self._model.parameters(),
      lr=config.optimizer.learning_rate,
      betas=(config.optimizer.b1, config.optimizer.b2),
      eps=config.optimizer.epsilon,
      weight_decay=config.optimizer.weight_decay,
      fused=True,
    )

  def count(self) -> int:
    """Parameters; those of the shared table once."""
    return sum(p.numel() for p in self._model.parameters())

  def step(self, batch) -> float:
    """Seconds of one step."""
    inputs_BL = torch.from_numpy(batch.inputs_BL).long()
    targets_BL = torch.from_numpy(batch.targets_BL).long()
    start = time.perf_counter()
    logits_BLV = self._model(input_ids=inputs_BL).logits
    loss = torch.nn.functional.cross_entropy(
      logits_BLV.flatten(0, 1), targets_BL.flatten()
    )
    self._optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._clip_norm)
    self._optimizer.step()
    loss.item()
    return time.perf_counter() - start


def main(argv) -> None:
  """Runs the rounds."""
  del argv
  parts = step.make(OURS)
  ours, peer = step.Arm(OURS), Peer(parts.config)
  count = parameters.count(
    parameters.shapes(parts.abstract_state.params),
    parts.config.model.vocab_size,
  )['total']
  assert count == peer.count(), (count, peer.count())
  batches = step.batches(parts)
  ours.step()  # The first ones also pay for their memory.
  peer.step(next(batches))
  rounds = [
    (ours.step(), peer.step(next(batches))) for _ in range(step.ROUNDS.value)
  ]
  shape = {
    'scale': step.SCALE.value,
    'batch_size': parts.config.data.batch_size,
    'seq_len': parts.config.data.seq_len,
    'parameters': count,
    'threads': torch.get_num_threads(),
  }
  names = f'jax {jax.__version__}', f'torch {torch.__version__}'
  for name, seconds in zip(names, zip(*rounds, strict=True), strict=True):
    row = {'peer': name} | shape
    row['seconds'] = round(statistics.median(seconds), 3)
    ratios = [s / first for s, (first, _) in zip(seconds, rounds, strict=True)]
    row['over_ours'] = round(statistics.median(ratios), 3)
    row['all_seconds'] = [round(s, 3) for s in seconds]
    print(json.dumps(row))


if __name__ == '__main__':
  app.run(main)
