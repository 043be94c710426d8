"""Names and layouts go both ways; what is no Llama of ours is refused."""

import jax
import numpy as np
import pytest

from leviathan import errors
from leviathan import restore
from leviathan.huggingface import llama


def described(loaded, **changes):
  model = loaded.parts.config.model
  config = llama.config(
    model,
    tied='head' not in loaded.params,
    length=32,
    eos_id=1,
    precision='float32',
  )
  return config | changes


@pytest.mark.parametrize('arm', ['tied', 'untied'])
def test_there_and_back_changes_nothing(saved, arm):
  loaded = restore.with_table(saved(arm))
  params = jax.tree.map(np.asarray, loaded.params)
  tensors = llama.tensors(params, loaded.parts.config.model.vocab_size)
  shape = llama.shape(described(loaded), 'config.json')
  back = llama.params(tensors, shape, params, 'there')
  jax.tree.map(np.testing.assert_array_equal, back, params)
  assert tensors['model.layers.1.self_attn.q_proj.weight'].shape == (32, 32)
  assert tensors['model.layers.1.mlp.up_proj.weight'].shape == (64, 32)
  assert tensors['model.layers.1.mlp.down_proj.weight'].shape == (32, 64)


@pytest.mark.parametrize(
  'changes, words',
  [
    ({'model_type': 'mistral'}, "model_type='mistral'"),
    ({'rope_theta': 500_000.0}, 'rope_theta=500000.0 is not .* only 10000.0'),
    ({'rope_parameters': {'rope_type': 'default', 'rope_theta': 5e5}},
     'rope_theta=500000.0'),
    ({'rope_parameters': {'rope_type': 'yarn', 'rope_theta': 1e4}}, "'yarn'"),
    ({'rope_scaling': {'type': 'linear', 'factor': 2.0}}, "'linear'"),
    ({'rms_norm_eps': 1e-6}, 'rms_norm_eps=1e-06 .* only 1e-05'),
    ({'attention_bias': True}, 'attention_bias=True'),
    ({'mlp_bias': True}, 'mlp_bias=True'),
    ({'hidden_act': 'gelu'}, "hidden_act='gelu'"),
    ({'quantization_config': {'bits': 4}}, 'quantization_config'),
    ({'head_dim': 8}, 'head_dim=8'),
  ],
)  # fmt: skip
def test_a_llama_of_another_kind_is_refused_by_name_and_value(
  saved, changes, words
):
  config = described(saved('untied'))
  llama.shape(config, 'there')
  with pytest.raises(errors.DataError, match=f'there: .*{words}'):
    llama.shape(config | changes, 'there')


def test_a_config_that_is_silent_means_what_transformers_means_by_it(saved):
  config = described(saved('untied'))
  for name in ('rope_theta', 'attention_bias', 'mlp_bias', 'hidden_act',
               'num_key_value_heads', 'head_dim'):  # fmt: skip
    del config[name]
  shape = llama.shape(config, 'there')
  assert (shape.heads, shape.key_heads, shape.head_width) == (2, 2, 16)
  del config['rms_norm_eps']
  with pytest.raises(errors.DataError, match='rms_norm_eps=1e-06'):
    llama.shape(config, 'there')
  del config['hidden_size']
  with pytest.raises(errors.DataError, match="has no 'hidden_size'"):
    llama.shape(config | {'rms_norm_eps': 1e-5}, 'there')


def test_tensors_that_do_not_fit_are_named(saved):
  loaded = saved('untied')
  params = jax.tree.map(np.asarray, loaded.params)
  vocab_size = loaded.parts.config.model.vocab_size
  shape = llama.shape(described(loaded), 'there')
  whole = llama.tensors(params, vocab_size)
  name = 'model.layers.1.mlp.up_proj.weight'
  for changed, words in (
    ({k: v for k, v in whole.items() if k != name}, f'{name} is missing'),
    (whole | {name: whole[name].T}, rf'{name} is of shape \(32, 64\)'),
    (whole | {'model.norm.bias': whole[llama.FINAL_NORM]}, 'norm.bias is unk'),
  ):
    with pytest.raises(errors.DataError, match=f'^there: tensor .*{words}.*;'):
      llama.params(changed, shape, params, 'there')
  # What old files hold besides is no matter.
  rotary = {'model.layers.0.self_attn.rotary_emb.inv_freq': np.zeros(8)}
  llama.params(whole | rotary, shape, params, 'there')
