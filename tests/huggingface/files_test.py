"""Tensors come back as they were, from one file or several."""

import json

from etils import epath
import jax.numpy as jnp
import numpy as np
import pytest

from leviathan import errors
from leviathan.huggingface import files

TENSORS = {
  name: (np.arange(6.0).reshape(2, 3) + i).astype(np.float32)
  for i, name in enumerate('abcde')
}


@pytest.mark.parametrize('largest, count', [(1000, 1), (48, 3), (1, 5)])
def test_they_come_back_however_many_files_there_are(tmp_path, largest, count):
  directory = epath.Path(tmp_path)
  files.write(directory, TENSORS, largest)
  found = files.read(directory)
  assert found.keys() == TENSORS.keys()
  assert all((found[name] == TENSORS[name]).all() for name in TENSORS)
  written = list(tmp_path.glob('*.safetensors'))
  assert len(written) == count
  assert all(path.stat().st_mode & 0o044 for path in written)
  if count > 1:
    index = json.loads((tmp_path / files.INDEX).read_text())
    assert index['metadata']['total_size'] == 5 * 24
    assert index['weight_map']['a'] == f'model-00001-of-0000{count}.safetensors'


def test_bfloat16_stays_so(tmp_path):
  x = TENSORS['b'].astype(jnp.bfloat16)
  files.write(epath.Path(tmp_path), {'x': x})
  found = files.read(epath.Path(tmp_path))['x']
  assert found.dtype == jnp.bfloat16 and (found == x).all()


def test_what_cannot_be_read_is_named(tmp_path):
  directory = epath.Path(tmp_path)
  with pytest.raises(errors.DataError, match='model.safetensors is missing'):
    files.read(directory)
  files.write(directory, TENSORS, 48)
  (tmp_path / 'model-00002-of-00003.safetensors').unlink()
  with pytest.raises(errors.DataError, match='model-00002-of-00003.* missing'):
    files.read(directory)
  (tmp_path / files.INDEX).unlink()
  (tmp_path / files.FILE).write_bytes(b'\x10\0\0\0\0\0\0\0not a header')
  with pytest.raises(errors.DataError, match='model.safetensors is damaged'):
    files.read(directory)


@pytest.mark.parametrize('index', ['{}', '{"weight_map": {"a": 1}}'])
def test_an_index_that_names_no_files_is_named(tmp_path, index):
  (tmp_path / files.INDEX).write_text(index)
  with pytest.raises(
    errors.DataError, match=f'{files.INDEX} has no weight_map'
  ):
    files.read(epath.Path(tmp_path))


@pytest.mark.parametrize('content', [None, '{', '[]'])
def test_a_json_file_that_is_none_is_one_line(tmp_path, content):
  path = epath.Path(tmp_path) / 'config.json'
  if content is not None:
    path.write_text(content)
  with pytest.raises(errors.DataError, match='config.json') as caught:
    files.json_object(path)
  assert len(str(caught.value).splitlines()) == 1
