"""Learning curves as a picture."""

from collections.abc import Sequence

from etils import epath
from matplotlib import figure as figures
from matplotlib import ticker
import numpy as np

from leviathan.report import runs

SMOOTHING = 0.95  # Of the training loss, per step.


def draw(
  found: Sequence[runs.Run], entropies: dict[str, float], path: epath.Path
) -> None:
  """Writes a PNG: loss by tokens, training thin and validation thick.

  Args:
    found: the runs; colours follow their order.
    entropies: {dataset: unigram entropy in nats}, drawn as a line.
    path: of the PNG.
  """
  figure = figures.Figure(figsize=(8, 5), dpi=150, layout='constrained')
  axes = figure.subplots()
  for i, run in enumerate(found):
    colour = f'C{i}'
    tokens, nats = run.curve('train')
    axes.plot(tokens, _smooth(nats), color=colour, alpha=0.35, linewidth=1)
    for split in run.validation_splits:
      tokens, nats = run.curve(split)
      last = f'{nats[-1]:.3f}' if nats else 'not finite'
      label = f'{run.label}, {split}: {last}'
      axes.plot(tokens, nats, 'o-', color=colour, markersize=4, label=label)
  for name, entropy in entropies.items():
    axes.axhline(
      entropy,
      color='grey',
      linestyle='--',
      linewidth=1,
      label=f'unigram entropy of {name}: {entropy:.3f}',
    )
  axes.set_xlabel('tokens seen')
  axes.set_ylabel('nats per token')
  axes.set_title('Loss by tokens (thin: training, smoothed)')
  axes.xaxis.set_major_formatter(ticker.EngFormatter())
  axes.grid(alpha=0.3)
  axes.legend()
  with path.open('wb') as file:
    figure.savefig(file, format='png')


def _smooth(values: Sequence[float]) -> np.ndarray:
  """Exponential moving average, unbiased at its start."""
  total = weight = 0.0
  smoothed = []
  for value in values:
    total = SMOOTHING * total + (1 - SMOOTHING) * value
    weight = SMOOTHING * weight + (1 - SMOOTHING)
    smoothed.append(total / weight)
  return np.array(smoothed)
