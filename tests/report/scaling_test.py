"""Gain by size, where there are several sizes."""

import itertools
import math
import pathlib

from etils import epath
import pytest

from configs.studies import vocabulary
from leviathan import config as config_lib
from leviathan import study as studies
from leviathan.report import document
from leviathan.report import groups
from leviathan.report import replicates
from leviathan.report import scaling


def at_scale(make_run, width, gains, **kwargs):
  """tied and lev of two seeds each, lev better by so many percent."""
  paths = []
  changes = {'model.width': width} | kwargs.pop('changes', {})
  shapes = {'blocks/mlp/gate_DF': [width, 1]}
  for seed, gain in enumerate(gains):
    for arm, nats in (('tied', 3.0), ('lev', 3 + math.log(1 - gain / 100))):
      name = f'{arm}-{width}-{seed}-{len(changes)}'
      paths.append(
        make_run(
          name, arm, nats, seed=seed, changes=changes, shapes=shapes, **kwargs
        )
      )
  return [str(path) for path in paths]


def test_gain_by_scale_has_a_line_an_arm_and_a_row_a_size(make_run):
  found = groups.read(
    at_scale(make_run, 256, [4.0, 5.0]) + at_scale(make_run, 128, [1.0, 3.0])
  )
  (section,) = scaling.sections(found, 'a')
  table, picture = section.parts
  assert isinstance(table, document.Table)
  assert table.header == ["parameters of the baseline's model", 'lev']
  # The table, the norm and the matrix; of 1 and 3: t(0.975, 1) = 12.706.
  assert table.rows == [
    [f'{200 + 2 + 128:,}', '+2.00 +- 12.71'],
    [f'{200 + 2 + 256:,}', '+4.50 +- 6.35'],
  ]
  header, first, _ = table.values
  assert header == ['size', 'arm', 'gain_percent', 'low', 'high']
  assert first[:2] == [330, 'lev']
  assert first[2:] == pytest.approx([2, 2 - 12.706, 2 + 12.706], abs=1e-3)
  assert isinstance(picture, document.Picture)
  (line,) = picture.figure.axes[0].containers
  # Drawn as the table says.
  assert line.lines[0].get_xydata().ravel() == pytest.approx(
    [330, 2.0, 458, 4.5]
  )


def test_gain_by_vocabulary_compares_within_each(make_run):
  other = {'trained_on': 'd2', 'evaluated_on': 'e2'}
  more = {'model.vocab_size': 1000}
  found = groups.read(
    at_scale(make_run, 128, [1.0, 1.0])
    + at_scale(make_run, 128, [6.0, 6.0], changes=more, **other)
  )
  (section,) = scaling.sections(found, 'a')
  table, _ = section.parts
  assert isinstance(table, document.Table)
  assert table.rows == [
    ['100', '+1.00 +- 0.00'],
    ['1,000', '+6.00 +- 0.00'],
  ]


def test_one_size_has_no_section(make_run):
  assert (
    scaling.sections(groups.read(at_scale(make_run, 128, [1.0])), 'a') == []
  )


def test_the_picture_s_legend_names_all_and_lies_below():
  point = scaling.Point(7, replicates.Estimate(1.0, None))
  labels = ['_lev', r'$\frac$']
  figure = scaling.draw({label: [point] for label in labels}, 'tokens')
  figure.draw_without_rendering()
  (axes,), (legend,) = figure.axes, figure.legends
  texts = [text.get_text().strip() for text in legend.get_texts()]
  assert texts == ['_lev', r'\$\frac\$']
  assert not legend.get_window_extent().overlaps(axes.get_window_extent())


def test_the_study_of_vocabularies_has_its_gain_by_vocabulary(
  make_run, tmp_path
):
  """Built from the arms that its commands train."""
  section = vocabulary.get_config().to_dict()
  study = config_lib.build(studies.Study, section, 'study')
  workspace = studies.Workspace(study, epath.Path(tmp_path))
  _, trials = itertools.islice(workspace.stages(), 2)
  paths = []
  for job in trials[:: len(study.learning_rates)]:
    flags = dict(word.split('=', 1) for word in job.commands[0][1:])
    data = flags['--config.data.train']
    file, _, _ = pathlib.Path(flags['--config']).name.partition(':')
    arm = flags.get('--config.arm', file.removesuffix('.py'))
    size = 100 * (1 + list(study.by_dataset()).index(data))
    path = make_run(
      pathlib.Path(flags['--workdir']).name,
      arm,
      2.0 - (arm == 'lev') * size / 1000,
      changes={'model.vocab_size': size},
      trained_on=data,
      evaluated_on=data,
    )
    paths.append(str(path))
  found = groups.read(paths)
  assert [(v.first.label, b.first.label) for v, b in found.rivals()] == [
    ('lev', 'tied')
  ] * 3
  (section,) = scaling.sections(found, 'a')
  assert [row[:1] for row in section.parts[0].rows] == [
    ['100'],
    ['200'],
    ['300'],
  ]
