r"""Orders the tokens for LEV, whose digits are then those of a token's rank.

  leviathan order --dataset=data/train --method=distributional \
      --output=data/token_order.npy

Several datasets of one tokenizer are joined by commas. Methods:

  tokenizer       the ids as they are, the paper's
  random          a control
  bytes           by spelling
  frequency       the most frequent first
  distributional  by use: what stands in the same contexts lies together
"""

from collections.abc import Sequence
import time

from absl import flags
from etils import epath
import tqdm

from leviathan import errors
from leviathan.data import outputs
from leviathan.data import records
from leviathan.token_order import files
from leviathan.token_order import methods

_DATASET = flags.DEFINE_list(
  'dataset', None, 'Directories of datasets, with commas.', required=True
)
_METHOD = flags.DEFINE_enum(
  'method', 'distributional', files.METHODS, 'See above.'
)
_OUTPUT = flags.DEFINE_string(
  'output',
  None,
  'FILE.npy to write; FILE.json beside it says how it was made.',
  required=True,
)
_SEED = flags.DEFINE_integer(
  'seed', 0, 'Of the method `random`.', lower_bound=0
)


def main(argv: Sequence[str]) -> None:
  """Writes the order and says what it is."""
  del argv
  path = epath.Path(_OUTPUT.value).expanduser()
  if path.suffix != '.npy':
    raise errors.ConfigError(f'--output={path}: give a name that ends in .npy')
  for file in (path, files.origin_file(path)):
    outputs.check_free(file)
  if not any(_DATASET.value):
    raise errors.ConfigError(
      '--dataset is empty; give one, or more with commas'
    )
  datasets = [records.open_dataset(name) for name in _DATASET.value]
  start = time.perf_counter()
  with tqdm.tqdm(
    total=sum(dataset.manifest.tokens for dataset in datasets),
    unit=' tokens',
    unit_scale=True,
    disable=None,
  ) as bar:
    order = methods.make(datasets, _METHOD.value, _SEED.value, bar.update)
  files.save(order, path)
  print(
    f'{len(order.rank_V):,} tokens by {_METHOD.value} in '
    f'{time.perf_counter() - start:.1f} s, sha256 {order.sha256[:12]}: {path}'
  )
