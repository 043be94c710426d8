"""The twin is Llama, as transformers computes it from the same files."""

import json

from etils import epath
import numpy as np
import pytest

from leviathan.huggingface import files
from leviathan.huggingface import twin


@pytest.mark.parametrize('key_heads, tied', [(4, False), (2, True), (1, False)])
def test_it_is_what_transformers_computes(tmp_path, key_heads, tied):
  torch = pytest.importorskip('torch', reason="it is in the extra 'hf'")
  transformers = pytest.importorskip('transformers')
  config = transformers.LlamaConfig(
    vocab_size=50,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=key_heads,
    rms_norm_eps=1e-5,
    tie_word_embeddings=tied,
    initializer_range=0.3,
  )
  torch.manual_seed(0)
  model = transformers.LlamaForCausalLM(config).eval()
  model.save_pretrained(tmp_path)
  directory = epath.Path(tmp_path)
  ids_L = np.random.default_rng(0).integers(0, 50, 40)
  found_LV = twin.logits(
    json.loads((directory / 'config.json').read_text()),
    files.read(directory),
    ids_L,
  )
  with torch.no_grad():
    wanted_LV = model(torch.from_numpy(ids_L)[None]).logits[0].numpy()
  assert np.abs(wanted_LV).max() > 1
  np.testing.assert_allclose(found_LV, wanted_LV, rtol=0, atol=2e-5)
