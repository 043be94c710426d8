"""Tensors in `model.safetensors`, or in several such files with an index."""

from collections.abc import Mapping
import json
import os

from etils import epath
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from leviathan import errors

FILE = 'model.safetensors'
INDEX = 'model.safetensors.index.json'
LARGEST = 5_000_000_000  # bytes in a file, unless one tensor has more


def write(
  directory: epath.Path,
  tensors: Mapping[str, np.ndarray],
  largest: int = LARGEST,
) -> None:
  """Writes them into one file, or into several of at most `largest` bytes."""
  shards: list[dict[str, np.ndarray]] = [{}]
  size = 0
  for name, x in tensors.items():
    if shards[-1] and size + x.nbytes > largest:
      shards.append({})
      size = 0
    shards[-1][name] = x
    size += x.nbytes
  files = [FILE]
  if len(shards) > 1:
    files = [
      f'model-{i + 1:05}-of-{len(shards):05}.safetensors'
      for i in range(len(shards))
    ]
    index = {
      'metadata': {'total_size': sum(x.nbytes for x in tensors.values())},
      'weight_map': {
        name: file
        for file, shard in zip(files, shards, strict=True)
        for name in shard
      },
    }
    text = json.dumps(index, indent=2) + '\n'
    (directory / INDEX).write_text(text)
  for file, shard in zip(files, shards, strict=True):
    # transformers refuses a file that does not say for whom it is.
    safetensors_numpy.save_file(shard, directory / file, {'format': 'pt'})
    os.chmod(directory / file, 0o644)  # It lets its owner alone read it.


def read(directory: epath.Path) -> dict[str, np.ndarray]:
  """All tensors of a directory, of the types that they are stored in.

  Raises:
    DataError: there are none, or a file is missing or damaged.
  """
  names = [FILE]
  if (directory / INDEX).exists():
    names = _listed(directory / INDEX)
  tensors = {}
  for name in names:
    path = directory / name
    if not path.exists():
      raise errors.DataError(
        f'{path} is missing; give a directory with {FILE}, the one format that '
        'is read'
      )
    try:
      tensors |= safetensors_numpy.load_file(path)
    except (safetensors.SafetensorError, KeyError, ValueError) as e:
      raise errors.DataError(
        f'{path} is damaged, or of a type of numbers that is not read '
        f'({errors.first_line(e)}); fetch it again'
      ) from e
  return tensors


def _listed(index: epath.Path) -> list[str]:
  """The files that an index names; DataError if it is none."""
  files = json_object(index).get('weight_map')
  if not isinstance(files, dict) or not all(
    isinstance(name, str) for name in files.values()
  ):
    raise errors.DataError(
      f'{index} has no weight_map of tensors to files; fetch it again'
    )
  return sorted(set(files.values()))


def json_object(path: epath.Path) -> dict:
  """The object in a JSON file.

  Raises:
    DataError: there is none.
  """
  try:
    found = json.loads(path.read_text())
  except (OSError, ValueError) as e:
    raise errors.DataError(
      f'{path} cannot be read as JSON ({errors.first_line(e)}); give the '
      'directory of a Hugging Face model'
    ) from e
  if not isinstance(found, dict):
    raise errors.DataError(f'{path} is no JSON object; fetch it again')
  return found
