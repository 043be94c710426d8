"""A study says what it asked for in the numbers of the page."""

import pytest

from leviathan import errors
from leviathan.report import groups
from leviathan.report import runs
from leviathan.report import sections
from leviathan.report import strata
from leviathan.report import study

RATES = {'tied': {0.002: 3.0, 0.004: 2.5}, 'lev': {0.002: 2.0, 0.004: 2.5}}
PAIRS = [('lev', 'tied')]


def found(make_run, **losses):
  """{arm: its runs, a seed a loss}; rare tokens cost as much."""
  return {
    arm: [
      runs.read(
        str(
          make_run(f'{arm}{seed}', arm, nats, seed=seed, strata={1: (nats, 50)})
        )
      )
      for seed, nats in enumerate(values)
    ]
    for arm, values in losses.items()
  }


def parts(of_variants, pairs=PAIRS, note='Chosen.'):
  """{title: its parts}."""
  said = study.sections('data/train', of_variants, RATES, pairs, note)
  return {section.title: section.parts for section in said}


def test_contrasts_and_their_strata_are_the_page_s(make_run, numbers):
  variants = found(make_run, tied=(2.0, 3.0), lev=(1.9, 2.7))
  contrasts, by_frequency = parts(variants)['Contrasts on a']
  page = groups.read([str(run.path) for of in variants.values() for run in of])
  losses = sections.losses(page, 'a').parts[1]
  (row,) = contrasts.rows
  assert row == ['lev - tied', *losses.rows[1][7:]]
  assert row[1:3] == ['2 seeds', '-0.2000 +- 1.2706']
  ours, theirs = numbers(contrasts)[0], numbers(losses)[1]
  for name in sections.DIFFERENCE:
    assert ours[name] == theirs[name]
  _, _, of_page, _ = strata.sections(page, 'a')[0].parts
  of_contrast, of_arm = numbers(by_frequency)[1], numbers(of_page)[1]
  assert of_contrast.pop('contrast') == 'lev - tied'
  assert of_arm.pop('arm') == 'lev'
  assert of_contrast == of_arm
  assert by_frequency.header == ['contrast', 'below 1e-07 (n = 50)']
  assert by_frequency.rows[0][1].startswith('-0.2000 [-1.47')
  for table in (contrasts, by_frequency):
    assert table.caption.endswith('over the 2 seeds.')


def test_rates_that_were_tried_and_chosen_are_a_table(make_run, numbers):
  variants = found(make_run, tied=(2.5,), lev=(2.0,))
  rates = {name: dict(tried) for name, tried in RATES.items()}
  rates['lev'] = {0.001: 2.1, 0.002: 2.0, 0.004: 2.5}
  said = study.sections('data/train', variants, rates, PAIRS, 'Chosen.')
  intro, table = said[0].parts
  assert intro == (
    '2 variants, trained on data/train (d1), 400 tokens each; seeds: 0. Chosen.'
  )
  assert table.header == ['variant', '0.001', '0.002', '0.004', 'chosen']
  assert table.rows == [
    ['tied', '-', '3.0000', '2.5000', '0.004'],
    ['lev', '2.1000', '2.0000', '2.5000', '0.002'],
  ]
  # Beyond the highest tied might do better, lev not.
  assert table.caption.endswith('the lowest or the highest tried for tied.')
  assert [row['learning_rate'] for row in numbers(table) if row['chosen']] == [
    0.004, 0.002,
  ]  # fmt: skip


def test_without_contrasts_there_is_no_section_of_them(make_run):
  assert list(parts(found(make_run, tied=(2.5,)), [])) == ['Study']


def test_how_rates_were_chosen_and_what_is_lost_is_said():
  apart = study.said(4096, {'tied': [], 'lev': [1, 2]})
  assert 'in runs of their own of 4,096 tokens.' in apart
  assert apart.endswith('not finite: lev with seed 1, lev with seed 2.')
  assert study.said(0, {'tied': []}).endswith('one of those compared.')


def test_runs_of_several_datasets_are_no_study(make_run):
  variants = found(make_run, tied=(2.0,))
  other = make_run('other', 'lev', trained_on='d2')
  with pytest.raises(errors.CheckpointError, match='another on d1; give'):
    parts(variants | {'lev': [runs.read(str(other))]})
