"""A report says what the runs' files say, and compares only like with like."""

import json
import math

from etils import epath
import pytest

from leviathan import errors
from leviathan.report import document
from leviathan.report import page
from leviathan.report import runs


def write(tmp_path, *paths, **kwargs):
  """(the page, the cells of its tables)."""
  directory = epath.Path(tmp_path / 'report')
  text = page.write([str(p) for p in paths], directory, **kwargs).read_text()
  lines = text.splitlines()
  return text, [[c.strip() for c in x.split('|')[1:-1]] for x in lines]


def test_the_page_says_what_the_files_say(make_run, tmp_path):
  text, cells = write(
    tmp_path,
    make_run('one', nats=2.0, seconds=2.0),
    make_run('two', 'lev', nats=1.5),
  )
  assert ['tied', '0', '400', '2.0000', '7.39', '1.2500', *'----'] in cells
  assert [
    'lev', '0', '400', '1.5000', '4.48', '1.2500', 'tied', '1 seed', '-0.5000',
    '+39.35',
  ] in cells  # fmt: skip
  assert ['1e-07 to 1e-06', '7', '50', '7.39', '4.48'] in cells
  assert ['1e-07 to 1e-06', '7', '50', '2.0000', '1.5000'] in cells
  assert ['1e-07 to 1e-06', '50', '-0.5000, +39.3 %'] in cells
  assert ['never seen', '0', '0', 'n = 0', 'n = 0'] in cells
  # The table has 100 rows of 2, and 28 more that only pad it.
  assert ['tied', '200', '32', '0', '232', '+0.00 %'] in cells
  (cost,) = (row for row in cells if row[:2] == ['lev', '100'])
  assert cost[:4] == ['lev', '100', '+100.00 %', '4']
  assert '6.5000' in text and 'nan' not in text
  for name in ('curves_tokens_a', 'strata_predicted_gain_a'):
    png = (tmp_path / 'report' / f'{name}.png').read_bytes()
    assert png.startswith(b'\x89PNG') and len(png) > 10_000


def test_seeds_are_one_row_with_an_interval(make_run, tmp_path):
  paths = [
    make_run(f'{arm}{seed}', arm, nats, seed=seed)
    for arm, values in (('tied', (2.0, 3.0)), ('lev', (1.8, 2.9)))
    for seed, nats in enumerate(values)
  ]
  _, cells = write(tmp_path, *paths)
  # s = 0.7071 and 0.0707, t(0.975, 1) = 12.706, over sqrt(2).
  (row,) = (row for row in cells if row[:2] == ['tied', '0, 1'])
  assert row[3] == '2.5000 +- 6.3531'
  (row,) = (row for row in cells if row[:2] == ['lev', '0, 1'])
  assert row[3:9] == [
    '2.3500 +- 6.9884', '10.49', '1.2500', 'tied', '2 seeds',
    '-0.1500 +- 0.6353',
  ]  # fmt: skip


def test_subsets_are_rows_of_one_table(make_run, tmp_path):
  paths = make_run('a', nats=2.0), make_run('b', 'lev', nats=1.9)
  for path in paths:
    for file in (path / 'eval' / '4').glob('*.json'):
      document = json.loads(file.read_text())
      sets = document['datasets']
      document['datasets'] |= {'a/code': sets['a'], 'a/web': sets['a']}
      file.write_text(json.dumps(document))
  text, cells = write(tmp_path, *paths)
  assert text.count('## Loss on ') == text.count('## By training') == 1
  for name in ('code', 'web'):
    assert [name, '2.0000', '1.9000'] in cells
    assert [name, '+9.52'] in cells


def test_runs_without_samples_say_how_to_get_them(make_run, tmp_path):
  paths = make_run('a'), make_run('b', 'lev')
  text, _ = write(tmp_path, *paths)
  for path in paths:
    assert f'`leviathan evaluate --workdir={path} --step=4' in text
  alone, _ = write(tmp_path, paths[0])
  assert 'leviathan evaluate' not in alone and 'Difference to' not in alone
  # Seeds give the interval where there are several.
  more = make_run('c', seed=1), make_run('d', 'lev', seed=1)
  assert 'leviathan evaluate' not in write(tmp_path, *paths, *more)[0]


def test_what_is_left_out_and_what_differs_comes_first(make_run, tmp_path):
  text, cells = write(
    tmp_path,
    make_run('a'),
    make_run('b', 'lev', steps=9, evaluated=(9,)),
    make_run('c', 'albert', trained_on='other'),
    make_run('d', evaluated=()),
  )
  titles = [x[3:] for x in text.splitlines() if x.startswith('## ')]
  assert titles[:3] == ['Left out', 'Differences besides the arm', 'Loss on a']
  assert f'{tmp_path / "c"}: was trained on dataset other' in text
  assert f'{tmp_path / "d"}: {tmp_path / "d"} was not evaluated yet' in text
  assert '| albert' not in text
  assert any(
    row[1] == 'lev' and row[-1] == 'compared with none'
    for row in cells
    if row[1:]
  )


def test_vocabularies_have_strata_of_their_own(make_run, tmp_path):
  other = {'trained_on': 'd2', 'evaluated_on': 'e2'}
  other['changes'] = {'model.vocab_size': 1000}
  rare = {1: (9.0, 7)}
  text, cells = write(
    tmp_path,
    make_run('a'),
    make_run('b', 'lev'),
    make_run('c', strata=rare, **other),
    make_run('d', 'lev', strata=rare, **other),
  )
  assert '## By training frequency on a, V=100\n' in text
  assert '## By training frequency on a, V=1000\n' in text
  assert ['below 1e-07', '7', '7', '9.0000', '9.0000'] in cells
  assert ['below 1e-07', '0', '0', 'n = 0', 'n = 0'] in cells


def test_nothing_is_written_when_nothing_can_be_shown(make_run, tmp_path):
  path = make_run('one', evaluated=())
  with pytest.raises(errors.CheckpointError, match='leviathan evaluate'):
    write(tmp_path, path)
  with pytest.raises(errors.ConfigError, match='did you mean tied'):
    write(tmp_path, make_run('two'), baseline='tie')
  assert not (tmp_path / 'report').exists()


def test_an_evaluation_that_is_not_finite_is_shown_as_such(make_run, tmp_path):
  path = make_run('one')
  results = path / 'eval' / '4' / 'perplexity.json'
  document = json.loads(results.read_text())
  document['datasets']['a'] |= {'nats_per_token': None, 'perplexity': None}
  results.write_text(json.dumps(document))
  _, cells = write(tmp_path, path, make_run('two', 'lev', nats=math.log(8)))
  assert any(
    row[0] == 'tied' and row[3:5] == ['nan'] * 2 for row in cells if row
  )
  assert any(row[0] == 'lev' and row[4] == '8.00' for row in cells if row[4:])


def test_a_set_without_a_curve_has_no_picture(make_run, tmp_path):
  write(tmp_path, make_run('a', curve={}), make_run('b', 'lev', curve={}))
  assert not [*(tmp_path / 'report').glob('curves_*')]


def test_of_many_rates_all_are_in_the_tables_and_few_in_the_pictures(
  make_run, tmp_path
):
  paths = [
    make_run(f'{arm}{i}', arm, 2 + i, changes={'optimizer.learning_rate': rate})
    for arm in ('tied', 'lev')
    for i, rate in enumerate((1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0))
  ]
  text, cells = write(tmp_path, *paths)
  labels = [row[0] for row in cells if row[3:4] == ['4.0000']]
  assert labels[:2] == ['tied, rate 3', 'lev, rate 3']
  pictures = [line for line in text.splitlines() if line.startswith('![')]
  assert len(pictures) == 4
  assert all('most seeds the best.' in line for line in pictures)


def test_sets_and_arms_of_any_name_are_shown(make_run, tmp_path):
  paths = [
    make_run(name, arm, changes={'model.width': width})
    for width in (128, 256)
    for name, arm in ((f'a{width}', 'tied'), (f'b{width}', r'_x$\frac$'))
  ]
  for path in paths:
    for file in (path / 'eval' / '4').glob('*.json'):
      document = json.loads(file.read_text())
      sets = document['datasets']
      for name in ('x-y', 'x_y', 'a/s', 'a_gain', 'a_gain/s'):
        sets[name] = sets['a']
      file.write_text(json.dumps(document))
  write(tmp_path, *paths)
  for name in ('loss_x_y', 'loss_x_y_2', 'subsets_a_gain_2'):
    assert (tmp_path / 'report' / f'{name}.csv').exists()


def titles_of_parts(tmp_path, **paths):
  """(the report of datasets with a section each, its titles)."""
  parts = {
    name: page.Part(
      [document.Section('Study', ['Said.'])], [runs.read(str(p)) for p in of]
    )
    for name, of in paths.items()
  }
  path = page.write_parts(parts, epath.Path(tmp_path / 'report'))
  text = path.read_text()
  return text, [x[3:] for x in text.splitlines() if x.startswith('## ')]


def test_a_study_of_several_datasets_has_the_losses_of_each(make_run, tmp_path):
  one = make_run('a', nats=2.0), make_run('b', 'lev', nats=1.5)
  two = [
    make_run(name, arm, nats=nats, trained_on='d2')
    for name, arm, nats in (('c', 'tied', 3.125), ('d', 'lev', 2.625))
  ]
  text, titles = titles_of_parts(tmp_path, one=one, two=two)
  assert 'Left out' not in text
  assert '2.6250' in text and '1.5000' in text
  for name in ('one', 'two'):
    for title in ('Study', 'Loss on a', 'Cost'):
      assert titles.count(f'{title}, trained on {name}') == 1
  # Of one, there is nothing to tell apart.
  _, titles = titles_of_parts(tmp_path, two=two)
  assert titles[:2] == ['Study', 'Loss on a']


def test_a_study_of_vocabularies_has_them_on_one_page(make_run, tmp_path):
  other = {'trained_on': 'd2', 'evaluated_on': 'e2'}
  other['changes'] = {'model.vocab_size': 1000}
  _, titles = titles_of_parts(
    tmp_path,
    small=[make_run('a'), make_run('b', 'lev')],
    large=[make_run('c', **other), make_run('d', 'lev', **other)],
  )
  assert titles[:2] == [f'Study, trained on {n}' for n in ('small', 'large')]
  assert titles.count('Loss on a') == 1
  assert 'By training frequency on a, V=1000' in titles
