"""What an input embedding looks like: norms, neighbours, spectrum, isotropy."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from etils import epath
from matplotlib import figure as figures
import numpy as np

NEIGHBOURS = 8
CURVES = 40  # drawn of each head


def figures_of(x_VD: np.ndarray) -> dict[str, Any]:
  """Numbers of an embedding.

  Args:
    x_VD: float, a row a token.

  Returns:
    norm_mean, norm_std, norm_min, norm_max; mean_cosine, of two different
    tokens drawn at random (0 is isotropic, 1 is one direction); spectrum, the
    share of the variance of each principal axis, falling; effective_rank, the
    participation ratio of that spectrum (D is isotropic).
  """
  x_VD = np.asarray(x_VD, np.float64)
  norm_V = np.linalg.norm(x_VD, axis=1)
  unit_VD = x_VD / np.maximum(norm_V, 1e-30)[:, None]
  count = len(x_VD)
  # Over all pairs: |sum of unit vectors|^2, without the V pairs of equals.
  total = np.square(unit_VD.sum(axis=0)).sum()
  share_D = np.linalg.eigvalsh(np.cov(x_VD, rowvar=False))[::-1].clip(0)
  share_D /= max(share_D.sum(), 1e-300)
  return {
    'norm_mean': float(norm_V.mean()),
    'norm_std': float(norm_V.std()),
    'norm_min': float(norm_V.min()),
    'norm_max': float(norm_V.max()),
    'mean_cosine': float((total - count) / max(count * (count - 1), 1)),
    'effective_rank': float(1 / max(np.square(share_D).sum(), 1e-300)),
    'spectrum': share_D.tolist(),
  }


def neighbours(x_VD: np.ndarray, token_id: int) -> list[tuple[int, float]]:
  """The tokens nearest in angle: (id, cosine), the nearest first."""
  norm_V = np.maximum(np.linalg.norm(x_VD, axis=1), 1e-30)
  cosine_V = x_VD @ x_VD[token_id] / (norm_V * norm_V[token_id])
  order = np.argsort(-cosine_V, kind='stable')
  nearest = order[order != token_id][:NEIGHBOURS]
  return [(int(i), float(cosine_V[i])) for i in nearest]


def draw(
  named: Mapping[str, np.ndarray],
  spectra: Mapping[str, Sequence[float]],
  curves: tuple[np.ndarray, np.ndarray] | None,
  path: epath.Path,
) -> None:
  """Writes a PNG: norms and spectrum of each embedding, then learned curves.

  Args:
    named: {label: x_VD}.
    spectra: {label: share of the variance of each principal axis}.
    curves: points u_P and values y_SQP, a panel for each of S heads.
    path: of the PNG.
  """
  heads = 0 if curves is None else len(curves[1])
  columns = 4
  rows = 1 + -(-heads // columns)
  figure = figures.Figure(
    figsize=(4 * columns, 3.2 * rows), dpi=100, layout='constrained'
  )
  grid = figure.add_gridspec(rows, columns)
  norms = figure.add_subplot(grid[0, :2])
  spectrum = figure.add_subplot(grid[0, 2:])
  for label, x_VD in named.items():
    norm_V = np.linalg.norm(x_VD, axis=1)
    norms.hist(norm_V / norm_V.mean(), bins=80, histtype='step', label=label)
    share_D = np.asarray(spectra[label])
    axis = np.arange(1, len(share_D) + 1)
    spectrum.loglog(axis, share_D.clip(1e-12), label=label)
  norms.set(title='norms', xlabel='norm / mean norm', ylabel='tokens')
  spectrum.set(
    title='spectrum', xlabel='principal axis', ylabel='share of variance'
  )
  norms.legend()
  spectrum.legend()
  if curves is not None:
    _draw_curves(figure, grid, columns, *curves)
  with path.open('wb') as file:
    figure.savefig(file, format='png')


def _draw_curves(figure, grid, columns, u_P, y_SQP) -> None:
  """A panel a head, with evenly chosen curves."""
  for head, y_QP in enumerate(y_SQP):
    axes = figure.add_subplot(grid[1 + head // columns, head % columns])
    step = max(1, len(y_QP) // CURVES)
    axes.plot(u_P, y_QP[::step][:CURVES].T, linewidth=0.6, alpha=0.6)
    axes.set(title=f'splines of head {head}', xlabel='coordinate u')
