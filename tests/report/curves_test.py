"""What is drawn, read back from the axes."""

import io

import numpy as np
import pytest

from leviathan.report import curves
from leviathan.report import palette

TOKENS = [100, 200, 300, 400]


def drawn(figure):
  """{label up to the colon: its line of validation}."""
  lines = figure.axes[0].get_lines()
  return {
    x.get_label().partition(':')[0]: x
    for x in lines
    if x.get_marker() != 'None'
  }


def legend(figure):
  """The labels, from top to bottom."""
  return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_line_is_the_mean_of_the_seeds_and_the_band_their_range():
  seeds = [(TOKENS, [4.0, 3.0, 2.0, 1.0]), (TOKENS, [5.0, 4.0, 2.0, 2.0])]
  figure = curves.draw('tokens', {'lev': seeds}, {}, None)
  line = drawn(figure)['lev']
  assert line.get_xdata().tolist() == TOKENS
  assert line.get_ydata().tolist() == [4.5, 3.5, 2.0, 1.5]
  assert legend(figure) == ['lev: 1.500, 2 seeds']
  corners = figure.axes[0].collections[0].get_paths()[0].vertices
  ends = {x: sorted({y for at, y in corners if at == x}) for x in TOKENS}
  assert ends == {100: [4, 5], 200: [3, 4], 300: [2], 400: [1, 2]}


def test_seeds_of_other_times_are_compared_at_one_time_and_not_beyond():
  # Both fall by 1 a second, the second one from half a nat higher up.
  seeds = [([1, 2, 3, 4], [9.0, 8.0, 7.0, 6.0]), ([1.5, 3.5], [9.0, 7.0])]
  line = drawn(curves.draw('seconds', {'lev': seeds}, {}, None))['lev']
  assert line.get_xdata().tolist() == [1.5, 2, 3, 3.5]
  assert line.get_ydata() == pytest.approx([8.75, 8.25, 7.25, 6.75])


def test_seeds_of_the_same_steps_are_averaged_step_by_step():
  """Also where their times do not overlap, as of one evaluation each."""
  seeds = [([10.0], [3.0]), ([14.0], [2.0])]
  figure = curves.draw('seconds', {'lev': seeds}, {}, None)
  assert drawn(figure)['lev'].get_xdata().tolist() == [12.0]
  assert legend(figure) == ['lev: 2.500, 2 seeds']


def test_the_legend_runs_as_the_lines_end():
  losses = {'tied': 3.0, 'lev': 2.0, 'untied': 3.5, 'lost': None}
  validation = {
    name: [([], []) if y is None else (TOKENS, [5.0, 5.0, 5.0, y])]
    for name, y in losses.items()
  }
  figure = curves.draw('tokens', validation, {}, 4.0)
  assert legend(figure) == [
    'untied: 3.500',
    'tied: 3.000',
    'lev: 2.000',
    'lost: no loss that is finite',
    'unigram entropy: 4.000',
  ]


@pytest.mark.parametrize(('entropy', 'place'), [(9.0, 'above'), (0.5, 'below')])
def test_an_entropy_out_of_the_picture_is_said_and_not_drawn(entropy, place):
  validation = {'lev': [(TOKENS, [4.0, 3.0, 2.0, 1.0])]}
  near = curves.draw('tokens', validation, {}, 3.2)
  far = curves.draw('tokens', validation, {}, entropy)
  assert legend(far)[1] == f'unigram entropy: {entropy:.3f} ({place})'
  assert legend(near)[1] == 'unigram entropy: 3.200'
  assert len(near.axes[0].get_lines()) == len(far.axes[0].get_lines()) + 1
  assert near.axes[0].get_ylim() == far.axes[0].get_ylim()


def test_the_height_is_that_of_the_losses_after_the_start():
  steps = np.arange(1, 1001)
  training = {'lev': [(steps, 3 + 7 * np.exp(-steps / 10))]}
  validation = {'lev': [([500, 1000], [3.2, 3.1])]}
  figure = curves.draw('tokens', validation, training, None)
  low, high = figure.axes[0].get_ylim()
  assert 2.9 < low < 3.0 and 3.2 < high < 3.6


def test_the_band_is_within_the_picture():
  seeds = [(TOKENS, [3.0, 3.0, 3.0, y]) for y in (2.0, 3.0, 4.0)]
  low, high = curves.draw('tokens', {'a': seeds}, {}, None).axes[0].get_ylim()
  assert low < 2 and high > 4


@pytest.mark.parametrize(
  ('last', 'scale'), [(9_000, 'linear'), (11_000, 'log')]
)
def test_far_evaluations_are_drawn_by_log_tokens(last, scale):
  validation = {'lev': [([0, 100, 1000, last], [7.0, 6.0, 4.0, 3.0])]}
  training = {'lev': [([1, last], [9.0, 3.0])]}
  axes = curves.draw('tokens', validation, training, None).axes[0]
  assert axes.get_xscale() == scale
  assert scale == 'linear' or axes.get_ylim()[1] > 6


def test_training_is_smoothed_without_a_bias_and_thinned():
  steps = np.arange(1, 100_001)
  noise = np.random.default_rng(0).normal(size=steps.size)
  training = {'lev': [(steps, 3 + noise)], 'tied': [(steps, 0 * steps + 4)]}
  validation = {name: [([10, 99_999], [3.0, 3.0])] for name in training}
  figure = curves.draw('tokens', validation, training, None)
  noisy, constant = [
    x for x in figure.axes[0].get_lines() if x.get_marker() == 'None'
  ]
  assert constant.get_ydata() == pytest.approx(4.0)
  assert 100 < len(noisy.get_xdata()) < 1000
  # A mean of about 2000 of them, with weights that fall by e each 1000.
  assert np.std(noisy.get_ydata()[50:]) == pytest.approx(2000**-0.5, rel=0.3)


@pytest.mark.parametrize('axis', curves.AXES)
@pytest.mark.parametrize(
  'seeds',
  [
    [([], [])],
    [([5], [3.0])],
    [([5], [3.0]), ([7], [3.0])],
    [(TOKENS, [2.0] * 4)],
  ],
)
def test_few_points_and_odd_labels_are_drawn(axis, seeds):
  # A dollar would begin a formula.
  figure = curves.draw(axis, {'lev $\\no$ <&': seeds}, {}, 6.0)
  figure.savefig(io.BytesIO(), format='svg')
  assert curves.AXES[axis] == figure.axes[0].get_xlabel()


def test_a_variant_looks_alike_in_each_picture_and_unlike_others():
  names = [f'v{i}' for i in range(2 * len(palette.COLOURS))]
  styles = palette.styles(names)
  assert len({tuple(style.values()) for style in styles.values()}) == len(names)
  seeds = [(TOKENS, [4.0, 3.0, 2.0, 1.0])]
  figure = curves.draw('tokens', dict.fromkeys(names, seeds), {}, None)
  for name, line in drawn(figure).items():
    assert line.get_color() == styles[name]['color']
    assert line.get_linestyle() == styles[name]['linestyle']


@pytest.mark.parametrize('steps', [1, 5, 360, 5000])
def test_a_long_curve_keeps_its_ends_and_what_a_screen_shows(steps):
  x = list(range(1, steps + 1))
  figure = curves.draw('tokens', {'lev': []}, {'lev': [(x, x)]}, None)
  kept = figure.axes[0].get_lines()[0].get_xdata()
  assert (kept[0], kept[-1]) == (1, steps)
  assert len(kept) == min(steps, curves.POINTS)
  assert len({*kept}) == len(kept)
