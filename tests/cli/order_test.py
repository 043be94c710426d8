"""`leviathan order` and `leviathan inspect --token_order`, as processes."""

import json

import numpy as np
import pytest

from leviathan.token_order import files


@pytest.fixture(scope='module')
def made(leviathan, tiny, tmp_path_factory):
  """The file of an order by use."""
  path = tmp_path_factory.mktemp('order') / 'order.npy'
  code, stdout, stderr = leviathan(
    'order', f'--dataset={tiny.directory / "train"}', f'--output={path}'
  )
  assert code == 0, stderr
  assert '512 tokens by distributional' in stdout and str(path) in stdout
  return path


def test_an_order_says_how_it_was_made(made):
  assert files.load(made).origin.method == 'distributional'


def test_an_order_is_never_overwritten(leviathan, tiny, made):
  code, _, stderr = leviathan(
    'order', f'--dataset={tiny.directory / "train"}', f'--output={made}'
  )
  assert code == 3 and 'never overwritten' in stderr


@pytest.mark.parametrize(
  'flags, code, words',
  [
    (('--method=byte', '--output=o.npy'), 2, 'method'),
    (('--output=order',), 2, 'ends in .npy'),
    (('--output=o.npy', '--dataset=missing'), 3, 'missing is not a dataset'),
  ],
)
def test_bad_flags_are_refused_in_one_line(leviathan, tiny, flags, code, words):
  found, _, stderr = leviathan(
    'order', f'--dataset={tiny.directory / "train"}', *flags
  )
  lines = [line for line in stderr.splitlines() if line.startswith('error: ')]
  assert found == code and len(lines) == 1 and words in lines[0], stderr


def test_inspect_shows_neighbours_and_what_digits_say(leviathan, tiny, made):
  code, stdout, stderr = leviathan(
    'inspect', f'--token_order={made}',
    f'--dataset={tiny.directory / "train"}', '--token=def', '--json',
  )  # fmt: skip
  assert code == 0, stderr
  facts = json.loads(stdout)
  assert facts['sha256'] == files.load(made).sha256
  ours = facts['use_told_by_first_digits']
  random = facts['the_same_of_a_random_order']
  assert len(ours) == 2 and (np.array(ours) > random).all()
  (neighbours,) = facts['neighbours'].values()
  assert len(neighbours) <= 11


def test_inspect_needs_the_data_of_the_order(leviathan, made):
  code, _, stderr = leviathan('inspect', f'--token_order={made}')
  assert code == 2 and '--dataset' in stderr
