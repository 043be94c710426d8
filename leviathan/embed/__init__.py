"""From token ids to vectors: one file an embedder, and the list of them."""

from leviathan.embed import albert
from leviathan.embed import factorized_mlp
from leviathan.embed import flat_mlp
from leviathan.embed import lev
from leviathan.embed import table

EMBEDDERS = {
  'table': table.TableConfig,
  'lev': lev.LevConfig,
  'albert': albert.AlbertConfig,
  'flat_mlp': flat_mlp.FlatMlpConfig,
  'factorized_mlp': factorized_mlp.FactorizedMlpConfig,
}
