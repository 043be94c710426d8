"""The config is strict: what is not meant is refused in one line."""

import dataclasses
import pathlib

from absl import flags
import ml_collections
from ml_collections import config_dict
from ml_collections import config_flags
import pytest

from leviathan import config as config_lib
from leviathan import errors
from leviathan import experiment

ROOT = pathlib.Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Round:
  name: str
  radius: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Square:
  name: str
  side: float
  corners: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
  width: int
  deep: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
  steps: int
  rate: float
  label: str
  horizon: int | None
  sizes: tuple[int, ...]
  inner: Inner
  shape: Round | Square = config_lib.choose({'round': Round, 'square': Square})


def section(**changes):
  """A right section, with changes."""
  values = dict(
    steps=3,
    rate=0.5,
    label='a',
    horizon=None,
    sizes=(1, 2),
    inner={'width': 8, 'deep': False},
    shape={'name': 'round', 'radius': 1.0},
  )
  return values | changes


def refusal(values):
  """The one line with which `values` is refused."""
  with pytest.raises(errors.ConfigError) as caught:
    config_lib.build(Outer, values)
  message = str(caught.value)
  assert '\n' not in message
  return message


@pytest.mark.parametrize('kind', [dict, ml_collections.ConfigDict])
def test_a_right_section_becomes_dataclasses(kind):
  assert config_lib.build(Outer, kind(section())) == Outer(
    steps=3,
    rate=0.5,
    label='a',
    horizon=None,
    sizes=(1, 2),
    inner=Inner(width=8, deep=False),
    shape=Round(name='round', radius=1.0),
  )


def test_an_unknown_key_is_refused_with_the_nearest_name():
  message = refusal(section(stpes=4))
  assert 'config.stpes' in message and 'did you mean steps?' in message


def test_an_unknown_key_without_a_near_one_lists_what_there_is():
  message = refusal(section(inner={'width': 8, 'deep': False, 'zzz': 1}))
  assert 'config.inner.zzz' in message
  assert 'deep, width' in message


@pytest.mark.parametrize('missing', sorted(section()))
def test_each_missing_key_is_refused_by_name_with_the_flag_that_gives_it(
  missing,
):
  values = section()
  del values[missing]
  message = refusal(values)
  assert f'config.{missing} is missing' in message
  assert f'--config.{missing}=' in message


@pytest.mark.parametrize(
  'name, value',
  [
    ('steps', 3.0),
    ('steps', '3'),
    ('steps', True),  # A bool is an int to Python, not to a config.
    ('steps', None),
    ('rate', '0.5'),
    ('rate', True),
    ('rate', None),
    ('label', 3),
    ('horizon', 2.5),
    ('horizon', False),
    ('sizes', 3),
    ('sizes', '12'),
  ],
)
def test_a_value_of_another_type_is_refused_by_field_value_and_type(
  name, value
):
  message = refusal(section(**{name: value}))
  assert f'config.{name}={value!r}' in message
  assert f'is a {type(value).__name__}' in message


def test_an_item_of_another_type_is_named_by_its_place():
  message = refusal(section(sizes=(1, 2.5)))
  assert 'config.sizes[1]=2.5' in message


def test_an_int_for_a_float_is_accepted_and_becomes_a_float():
  rate = config_lib.build(Outer, section(rate=2)).rate
  assert rate == 2.0 and type(rate) is float


def test_a_bool_stays_a_bool():
  values = section(inner={'width': 8, 'deep': True})
  assert config_lib.build(Outer, values).inner.deep is True
  assert 'config.inner.deep=1' in refusal(
    section(inner={'width': 8, 'deep': 1})
  )


def test_an_optional_field_takes_a_value_and_an_unset_placeholder():
  assert config_lib.build(Outer, section(horizon=7)).horizon == 7
  values = ml_collections.ConfigDict(section())
  values.horizon = config_dict.placeholder(int)
  assert config_lib.build(Outer, values).horizon is None


def test_a_list_does_for_a_tuple():
  # A run's config.json has no tuples.
  assert config_lib.build(Outer, section(sizes=[4, 5])).sizes == (4, 5)


def test_the_class_of_a_choice_is_picked_by_name():
  shape = {'name': 'square', 'side': 2, 'corners': 4}
  built = config_lib.build(Outer, section(shape=shape)).shape
  assert built == Square(name='square', side=2.0, corners=4)


def test_keys_of_another_choice_are_refused():
  shape = {'name': 'round', 'radius': 1.0, 'corners': 4}
  assert 'config.shape.corners' in refusal(section(shape=shape))


def test_an_unknown_choice_is_refused_with_the_nearest_name():
  message = refusal(section(shape={'name': 'sqare'}))
  assert "config.shape.name='sqare'" in message
  assert 'did you mean square?' in message


def test_a_choice_without_a_name_lists_the_names():
  assert 'round, square' in refusal(section(shape={'radius': 1.0}))


@pytest.mark.parametrize('name', ['inner', 'shape'])
def test_a_value_in_place_of_a_section_is_refused(name):
  assert f'config.{name}' in refusal(section(**{name: 3}))


def parse(*argv):
  """The config of a command line, as the commands read it."""
  file = f'--config={ROOT / "configs" / "tied.py"}:smoke'
  line = ['command', file, *argv]
  values = flags.FlagValues()
  config_flags.DEFINE_config_file('config', flag_values=values, sys_argv=line)
  values(line)
  return experiment.read_config(values['config'].value)


def test_a_section_replaced_as_a_whole_is_refused():
  # ml_collections itself replaces it without a word.
  with pytest.raises(errors.ConfigError, match='config.model.a is not a conf'):
    parse('--config.model={"a": 1}')
  with pytest.raises(errors.ConfigError, match='config.train.seed is missing'):
    parse('--config.train={"steps": 1}')


def test_overrides_reach_the_dataclasses():
  config = parse(
    '--config.train.steps=90',
    '--config.optimizer.horizon=120',
    '--config.optimizer.learning_rate=1',
    "--config.evaluate.datasets=('a=b','c=d')",
  )
  assert config.train.steps == 90
  assert config.optimizer.horizon == 120
  assert config.optimizer.learning_rate == 1.0
  assert config.evaluate.directories() == {'a': 'b', 'c': 'd'}


def test_a_horizon_that_is_not_given_is_the_number_of_steps():
  assert parse('--config.train.steps=90').optimizer.horizon == 90


def test_flatten_names_each_field_by_its_path():
  expected = {
    'config.steps': 3,
    'config.rate': 0.5,
    'config.label': 'a',
    'config.horizon': None,
    'config.sizes': (1, 2),
    'config.inner.width': 8,
    'config.inner.deep': False,
    'config.shape.name': 'round',
    'config.shape.radius': 1.0,
  }
  assert config_lib.flatten(section()) == expected
  assert config_lib.flatten(config_lib.build(Outer, section())) == expected


def test_differences_have_both_values_and_fields_of_one_side_only():
  old = {'a': 1, 'b': 2, 'gone': 3, 'same': None}
  new = {'a': 1, 'b': 5, 'new': 4, 'same': None}
  assert config_lib.differences(old, new) == {
    'b': (2, 5),
    'gone': (3, None),
    'new': (None, 4),
  }
  assert config_lib.differences(old, dict(reversed(old.items()))) == {}
