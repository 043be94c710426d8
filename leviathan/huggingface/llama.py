"""Our model and Hugging Face's Llama: their names, their layouts, their config.

The two compute the same. Both turn the halves of a head's width against each
other, so rotary layouts need no permutation; a matrix there is (out, in), and
of an attention the heads lie one after another.
"""

from collections.abc import Mapping
import dataclasses
import re
from typing import Any

import jax
import numpy as np

from leviathan import errors
from leviathan import model as model_lib
from leviathan.nn import norms
from leviathan.nn import rope

EMBEDDING = 'model.embed_tokens.weight'
FINAL_NORM = 'model.norm.weight'
HEAD = 'lm_head.weight'
# Ours, below `blocks`, and theirs, below `model.layers.N`.
BLOCK = {
  ('attention_norm', 'scale_D'): 'input_layernorm.weight',
  ('attention', 'query_DHK'): 'self_attn.q_proj.weight',
  ('attention', 'key_DHK'): 'self_attn.k_proj.weight',
  ('attention', 'value_DHK'): 'self_attn.v_proj.weight',
  ('attention', 'out_HKD'): 'self_attn.o_proj.weight',
  ('mlp_norm', 'scale_D'): 'post_attention_layernorm.weight',
  ('mlp', 'gate_DF'): 'mlp.gate_proj.weight',
  ('mlp', 'up_DF'): 'mlp.up_proj.weight',
  ('mlp', 'down_FD'): 'mlp.down_proj.weight',
}
_PER_KEY_HEAD = ('key_DHK', 'value_DHK')
# Some old files hold it; it is computed from theta.
_COMPUTED = re.compile(r'.*\.rotary_emb\.inv_freq')
# What must be so, as our model has it; one that is missing is so.
_FIXED: dict[str, Any] = {
  'hidden_act': 'silu',
  'attention_bias': False,
  'mlp_bias': False,
  'rms_norm_eps': norms.EPSILON,
  'partial_rotary_factor': 1.0,
  'quantization_config': None,
}
# What transformers takes where a config is silent, of those that differ.
_THEIR_DEFAULTS = {'rms_norm_eps': 1e-6}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shape:
  """Sizes of a Llama, as its config.json has them."""

  vocab_size: int
  width: int
  layers: int
  heads: int
  key_heads: int  # of keys and values, each shared by some of the queries'
  head_width: int
  mlp_width: int
  length: int  # positions
  tied: bool


def config(
  model: model_lib.ModelConfig,
  *,
  tied: bool,
  length: int,
  eos_id: int,
  precision: str,
) -> dict[str, Any]:
  """The config.json of a model.

  Args:
    model: of the run.
    tied: whether the input's table is also the head.
    length: most tokens that it reads.
    eos_id: which also begins a text, as documents follow one in training.
    precision: of the weights.
  """
  return {
    'architectures': ['LlamaForCausalLM'],
    'model_type': 'llama',
    'vocab_size': model.vocab_size,
    'hidden_size': model.width,
    'intermediate_size': model.mlp_width,
    'num_hidden_layers': model.layers,
    'num_attention_heads': model.width // model.head_width,
    'num_key_value_heads': model.width // model.head_width,
    'head_dim': model.head_width,
    'hidden_act': 'silu',
    'max_position_embeddings': length,
    'rms_norm_eps': norms.EPSILON,
    'rope_theta': rope.THETA,
    'attention_bias': False,
    'mlp_bias': False,
    'tie_word_embeddings': tied,
    'bos_token_id': eos_id,
    'eos_token_id': eos_id,
    'torch_dtype': precision,
  }


def shape(config_: Mapping[str, Any], where: str) -> Shape:
  """The sizes that a config.json gives.

  Args:
    config_: the object in it.
    where: its name, for messages.

  Raises:
    DataError: it is not of a Llama that our model can be.
  """
  _check_type(config_, where)
  try:
    heads, width = config_['num_attention_heads'], config_['hidden_size']
    found = Shape(
      vocab_size=config_['vocab_size'],
      width=width,
      layers=config_['num_hidden_layers'],
      heads=heads,
      key_heads=config_.get('num_key_value_heads') or heads,
      head_width=config_.get('head_dim') or width // heads,
      mlp_width=config_['intermediate_size'],
      length=config_.get('max_position_embeddings', 2048),
      tied=config_.get('tie_word_embeddings', False),
    )
  except KeyError as e:
    raise errors.DataError(
      f'{where} has no {e.args[0]!r}; fetch the file again'
    ) from e
  if found.heads * found.head_width != width or heads % found.key_heads:
    raise errors.DataError(
      f'{where}: hidden_size={width}, num_attention_heads={heads}, head_dim='
      f'{found.head_width}, num_key_value_heads={found.key_heads}; the heads '
      'must fill the width, and those of the keys divide them'
    )
  return found


def _check_type(config_: Mapping[str, Any], where: str) -> None:
  """Raises DataError for what our model is not."""
  kind, wanted = config_.get('model_type'), 'llama'
  if kind != wanted:
    raise errors.DataError(
      f'{where}: model_type={kind!r} is not supported; give a {wanted!r}'
    )
  for name, value in _FIXED.items():
    found = config_.get(name, _THEIR_DEFAULTS.get(name, value))
    if found != value:
      raise errors.DataError(
        f'{where}: {name}={found!r} is not supported; only {value!r} is'
      )
  # Newer files have all of it in one place.
  rotary = config_.get('rope_parameters') or {}
  scaling = config_.get('rope_scaling') or rotary
  kind = scaling.get('rope_type', scaling.get('type', 'default'))
  if kind != 'default':
    raise errors.DataError(
      f'{where}: rope_scaling of rope_type={kind!r} is not supported; give a '
      'model without'
    )
  theta = rotary.get('rope_theta', config_.get('rope_theta', rope.THETA))
  if theta != rope.THETA:
    raise errors.DataError(
      f'{where}: rope_theta={theta!r} is not supported; only {rope.THETA} is'
    )


def tensors(params: Any, vocab_size: int) -> dict[str, np.ndarray]:
  """{their name: array} of a model whose input is a table.

  Args:
    params: float32, the table's and the head's rows padded.
    vocab_size: V; rows beyond are cut. A head that is the table is not
      written: there is one tensor.
  """
  found = {
    EMBEDDING: params['embedder']['table_VD'][:vocab_size],
    FINAL_NORM: params['final_norm']['scale_D'],
  }
  if 'head' in params:
    found[HEAD] = params['head']['out_VD'][:vocab_size]
  for (module, name), theirs in BLOCK.items():
    stacked = np.asarray(params['blocks'][module][name])
    for layer, w in enumerate(stacked):
      found[f'model.layers.{layer}.{theirs}'] = _to_theirs(name, w)
  return {k: np.ascontiguousarray(v) for k, v in found.items()}


def _to_theirs(name: str, w: np.ndarray) -> np.ndarray:
  """An array of one layer as (out, in); a norm's as it is."""
  if w.ndim == 1:
    return w
  inward = name.partition('_')[2].startswith('D')
  return w.reshape((len(w), -1) if inward else (-1, w.shape[-1])).T


def params(
  found: Mapping[str, np.ndarray], shape_: Shape, abstract: Any, where: str
) -> dict[str, Any]:
  """Their arrays as our tree, in float32; rows that pad V are 0.

  Keys and values that several heads share are repeated for each of them.

  Args:
    found: {their name: array}.
    shape_: of the Llama.
    abstract: our tree, for its shapes.
    where: the directory of the files, for messages.

  Raises:
    DataError: an array is missing, of another shape, or unknown.
  """
  left = {k: v for k, v in found.items() if not _COMPUTED.fullmatch(k)}
  if shape_.tied:
    left.pop(HEAD, None)  # Some write the table twice.

  def take(name: str, shape: tuple[int, ...]) -> np.ndarray:
    w = left.pop(name, None)
    if w is None or w.shape != shape:
      has = 'missing' if w is None else f'of shape {w.shape}'
      raise errors.DataError(
        f'{where}: tensor {name} is {has}, not {shape} as its config.json has '
        'it; fetch all of its files again'
      )
    return w.astype(np.float32)

  def rows(name: str, like: Any) -> np.ndarray:
    w_VD = take(name, (shape_.vocab_size, shape_.width))
    return np.pad(w_VD, ((0, like.shape[0] - len(w_VD)), (0, 0)))

  def layer(name: str, theirs: str, like: Any) -> np.ndarray:
    """One layer's array, of the shape of `like`."""
    if len(like.shape) == 1:
      return take(theirs, like.shape)
    wanted = _to_theirs(name, np.broadcast_to(np.float32(0), like.shape)).shape
    if name not in _PER_KEY_HEAD:
      return take(theirs, wanted).T.reshape(like.shape)
    per_head = shape_.heads // shape_.key_heads
    w = take(theirs, (wanted[0] // per_head, wanted[1]))
    w_HKD = w.reshape(shape_.key_heads, -1, wanted[1]).repeat(per_head, 0)
    return w_HKD.reshape(wanted).T.reshape(like.shape)

  tree: dict[str, Any] = {
    'embedder': {'table_VD': rows(EMBEDDING, abstract['embedder']['table_VD'])},
    'blocks': {},
    'final_norm': {'scale_D': take(FINAL_NORM, (shape_.width,))},
  }
  if 'head' in abstract:
    tree['head'] = {'out_VD': rows(HEAD, abstract['head']['out_VD'])}
  for (module, name), theirs in BLOCK.items():
    like = abstract['blocks'][module][name]
    one = jax.ShapeDtypeStruct(like.shape[1:], np.float32)
    stacked = np.stack(
      [
        layer(name, f'model.layers.{i}.{theirs}', one)
        for i in range(shape_.layers)
      ]
    )
    tree['blocks'].setdefault(module, {})[name] = stacked
  if left:
    raise errors.DataError(
      f'{where}: tensor {min(left)} is unknown ({len(left) - 1} others too); '
      'give a Llama that has embeddings, norms and matrices alone'
    )
  return tree
