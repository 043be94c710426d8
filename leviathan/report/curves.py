"""Learning curves as a picture: loss by tokens, by time or by FLOPs."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from matplotlib import figure as figures
from matplotlib import lines
from matplotlib import ticker
import numpy as np

from leviathan.report import palette

# (x, nats per token) of one run; x rises.
Curve = tuple[Sequence[float], Sequence[float]]

# What curves are drawn by, and how the axis is called.
AXES = {
  'tokens': 'tokens seen',
  'seconds': 'seconds spent in training',
  'flops': 'model FLOPs spent in training',
}
SMOOTHING = 20  # Training steps at least, and a hundredth of all.
POINTS = 200  # Of a training curve: one in two pixels of a screen.
START = 0.1  # Of a linear axis: how losses fall there sets no height.
SPAN = 100  # Evaluations that lie further apart are drawn by log x.


def draw(
  axis: str,
  validation: Mapping[str, Sequence[Curve]],
  training: Mapping[str, Sequence[Curve]],
  entropy: float | None,
) -> figures.Figure:
  """The picture of one evaluation set.

  A line with markers is the mean of the seeds' validation losses, in a band
  from the lowest to the highest of them; the thin line is the mean of their
  training losses, smoothed. The height of the picture is that of the losses
  after its first tenth: at the end they differ by hundredths.

  Args:
    axis: of AXES.
    validation: {variant: a curve of each seed}, by that axis; all variants of
      the report, so that each has its colour in every picture.
    training: the same of the training loss; a variant may be missing.
    entropy: of the set's unigrams, in nats, drawn as a line.
  """
  figure = figures.Figure(layout='constrained')
  axes = figure.subplots()
  styles = palette.styles(validation)
  handles = []
  drawn, evaluated = [], []
  for label, seeds in validation.items():
    style = styles[label]
    x, y_SX = _together([_smooth(curve) for curve in training.get(label, [])])
    kept = np.linspace(0, len(x) - 1, min(len(x), POINTS)).astype(int)
    drawn.append((x[kept], y_SX.mean(axis=0)[kept]))
    axes.plot(*drawn[-1], color=style['color'], alpha=0.5, linewidth=0.8)
    x, y_SX = _together(seeds)
    low, mean, high = y_SX.min(axis=0), y_SX.mean(axis=0), y_SX.max(axis=0)
    evaluated.append(x)
    drawn += [(x, low), (x, high)]
    axes.fill_between(
      x, low, high, color=style['color'], alpha=0.2, linewidth=0
    )
    handles += axes.plot(
      x,
      mean,
      **style,
      label=_label(label, seeds, mean),
      markersize=4.5,
      markevery=max(1, len(x) // 20),
      zorder=3,
    )
  _set_scales(axes, drawn, np.concatenate(evaluated))
  # As the lines lie at their ends.
  handles.sort(key=lambda line: -(list(line.get_ydata()) or [0.0])[-1])
  if entropy is not None:
    handles += [_entropy_line(axes, entropy)]
  axes.set(xlabel=AXES[axis], ylabel='nats per token')
  axes.xaxis.set_major_formatter(ticker.EngFormatter())
  axes.spines[['top', 'right']].set_visible(False)
  axes.grid(alpha=0.3)
  palette.add_legend(figure, handles)
  return figure


def _entropy_line(axes, entropy: float) -> lines.Line2D:
  """Draws it where it lies within the picture; returns it for the legend."""
  bottom, top = axes.get_ylim()
  place = (
    ' (below)' if entropy < bottom else ' (above)' if entropy > top else ''
  )
  style: dict[str, Any] = {'color': 'grey', 'linestyle': '--', 'linewidth': 1}
  if not place:
    axes.axhline(entropy, **style)
  label = f'unigram entropy: {entropy:.3f}{place}'
  return lines.Line2D([], [], **style, label=label)


def _label(label: str, seeds: Sequence[Curve], mean: np.ndarray) -> str:
  """'lev: 2.345, 3 seeds'."""
  last = f'{mean[-1]:.3f}' if len(mean) else 'no loss that is finite'
  return f'{palette.plain(label)}: {last}' + (
    f', {len(seeds)} seeds' if seeds[1:] else ''
  )


def _together(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray]:
  """x_X where all curves are known, and their y_SX.

  Seeds take the same steps, though not in the same time: of as many points
  each, x is the mean over the seeds. Else it is that of the first, between
  whose points a curve is a line. Where one has no point, there is no x.
  """
  if not curves or not all(len(x) for x, _ in curves):
    return np.zeros(0), np.zeros((1, 0))
  if len({len(x) for x, _ in curves}) == 1:
    x_SX, y_SX = np.array(curves, float).swapaxes(0, 1)
    return x_SX.mean(axis=0), y_SX
  low = max(x[0] for x, _ in curves)
  high = min(x[-1] for x, _ in curves)
  if low > high:
    return np.zeros(0), np.zeros((1, 0))
  x_X = np.unique(np.clip(curves[0][0], low, high))
  return x_X, np.stack([np.interp(x_X, x, y) for x, y in curves])


def _smooth(curve: Curve) -> Curve:
  """Exponential moving average, unbiased at its start."""
  x, y = curve
  keep = 1 - 1 / max(SMOOTHING, len(y) / 100)
  total = weight = 0.0
  smoothed = []
  for value in y:
    total = keep * total + (1 - keep) * value
    weight = keep * weight + (1 - keep)
    smoothed.append(total / weight)
  return x, smoothed


def _set_scales(
  axes,
  drawn: Sequence[tuple[np.ndarray, np.ndarray]],
  evaluated: np.ndarray,
) -> None:
  """Log x if validation spans so much; a height that shows the differences."""
  x_all, y_all = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
  if not x_all.size:
    return
  smallest = min(evaluated[evaluated > 0], default=x_all.max())
  start = START * x_all.max()
  if x_all.max() > SPAN * smallest:
    axes.set_xscale('log')
    axes.set_xlim(left=smallest / 2)
    start = smallest
  seen = y_all[x_all >= start]
  margin = 0.05 * np.ptp(seen) or 0.1
  axes.set_ylim(seen.min() - margin, seen.max() + margin)
