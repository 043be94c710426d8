"""From token ids to vectors: one file an embedder, and the list of them."""

from leviathan.embed import lev
from leviathan.embed import table

EMBEDDERS = {
  'table': table.TableConfig,
  'lev': lev.LevConfig,
}
