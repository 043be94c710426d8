"""Token orders on disk: FILE.npy, and beside it FILE.json on where it is from.

FILE.npy is int32 rank_V, the rank of each token id, each of 0 to V - 1 once. An
order without FILE.json, one of your own, is taken as it is.
"""

from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import json
from typing import Any

from etils import epath
import numpy as np

from leviathan import errors
from leviathan.data import outputs

METHODS = ('tokenizer', 'random', 'bytes', 'frequency', 'distributional')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
  """How an order was made.

  Attributes:
    method: one of METHODS, see methods.
    seed: of `random`; the others have no use for it.
    tokenizer_sha256: of the tokenizer whose ids are ordered.
    dataset_fingerprints: of the data that were looked at.
  """

  method: str
  seed: int
  tokenizer_sha256: str
  dataset_fingerprints: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class TokenOrder:
  """An order: int32 rank_V, and how it was made where that is known."""

  rank_V: np.ndarray
  origin: Origin | None = None

  def __post_init__(self):
    if (
      self.rank_V.ndim != 1
      or self.rank_V.dtype.kind not in 'iu'
      or (np.sort(self.rank_V) != np.arange(len(self.rank_V))).any()
    ):
      raise errors.DataError(
        f'a token order of type {self.rank_V.dtype} and shape '
        f'{self.rank_V.shape} does not hold each rank from 0 on once; make one '
        'with `leviathan order`'
      )
    object.__setattr__(self, 'rank_V', self.rank_V.astype(np.int32))

  @functools.cached_property
  def sha256(self) -> str:
    """Of the ranks, in hex: two files of one order have one hash."""
    return hashlib.sha256(self.rank_V.astype('<i4').tobytes()).hexdigest()

  def ids(self) -> np.ndarray:
    """The token ids by rank."""
    return np.argsort(self.rank_V)

  def is_of_others(self, fingerprints: Sequence[str]) -> bool:
    """Whether it is known to be made from other datasets than these."""
    origin = self.origin
    return bool(origin) and {*origin.dataset_fingerprints} != {*fingerprints}

  def check_tokenizer(self, sha256: str, where: str) -> None:
    """Raises DataError if it is known to be for another tokenizer.

    Args:
      sha256: of the tokenizer of the data.
      where: what names the order, as `config.model.token_order='FILE'`.
    """
    if self.origin and self.origin.tokenizer_sha256 != sha256:
      raise errors.DataError(
        f'{where} was made for another tokenizer (sha256 '
        f'{self.origin.tokenizer_sha256[:12]}) than the data have '
        f'({sha256[:12]}); make one from these data with `leviathan order`'
      )


def load(path: epath.PathLike) -> TokenOrder:
  """Reads an order.

  Raises:
    DataError: there is none, or it is damaged.
  """
  path = epath.Path(path).expanduser()
  if not path.exists():
    raise errors.DataError(
      f'token order {path} does not exist; make one with `leviathan order '
      '--dataset=... --output=FILE.npy`, and give it by '
      '--config.model.token_order=FILE.npy'
    )
  try:
    with path.open('rb') as file:
      rank_V = np.load(file, allow_pickle=False)
    found = origin_file(path)
    if not found.exists():
      return TokenOrder(rank_V)
    return _checked(rank_V, json.loads(found.read_text()))
  except (
    OSError, EOFError, AttributeError, ValueError, TypeError, KeyError,
    errors.DataError,
  ) as e:  # fmt: skip
    raise errors.DataError(
      f'token order {path} cannot be read ({e}); give another, or remove it '
      'and make it again'
    ) from e


def save(order: TokenOrder, path: epath.PathLike) -> None:
  """Writes an order to a path *.npy, in place of what is there."""
  path = epath.Path(path).expanduser()
  path.parent.mkdir(parents=True, exist_ok=True)
  if order.origin:
    facts = dataclasses.asdict(order.origin) | {'sha256': order.sha256}
    with outputs.durable(origin_file(path)) as temporary:
      temporary.write_text(json.dumps(facts, indent=2) + '\n')
  with outputs.durable(path) as temporary, temporary.open('wb') as file:
    np.save(file, order.rank_V)


def origin_file(path: epath.PathLike) -> epath.Path:
  """FILE.json of FILE.npy."""
  return epath.Path(path).expanduser().with_suffix('.json')


def _checked(rank_V: np.ndarray, facts: dict[str, Any]) -> TokenOrder:
  """The order, if FILE.json speaks of it.

  Raises:
    DataError: it is of another order.
  """
  sha256 = facts.pop('sha256')
  facts['dataset_fingerprints'] = tuple(facts['dataset_fingerprints'])
  order = TokenOrder(rank_V, Origin(**facts))
  if order.sha256 != sha256:
    raise errors.DataError('the .json beside it is of another order')
  return order
