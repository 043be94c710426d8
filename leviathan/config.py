"""From a ConfigDict to frozen dataclasses, strictly.

Every key must be present and known, and of the declared type: `configs/base.py`
is the one place where a default lives.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import difflib
import types
import typing
from typing import Any

from leviathan import errors


def choose(choices: Mapping[str, type]) -> Any:
  """A field whose class is picked from `choices` by the section's `name`."""
  return dataclasses.field(metadata={'choices': choices})


def build(cls: type, section: Any, path: str = 'config') -> Any:
  """Builds the dataclass `cls` from a section of the config.

  Args:
    cls: a frozen dataclass; fields may be dataclasses themselves.
    section: a ConfigDict or mapping with exactly the fields of `cls`.
    path: where the section stands, for messages: `config.model`.

  Returns:
    An instance of `cls`.

  Raises:
    ConfigError: a key is missing, unknown or of another type.
  """
  _check_section(section, path, [f.name for f in dataclasses.fields(cls)])
  values = dict(section.items())
  hints = typing.get_type_hints(cls)
  fields = {f.name: f for f in dataclasses.fields(cls)}
  check_names(values, fields, path)
  for name in fields:
    if name not in values:
      raise errors.ConfigError(
        f'{path}.{name} is missing; give it in the config file or with '
        f'--{path}.{name}=VALUE'
      )
  return cls(
    **{
      name: _value(field, hints[name], values[name], f'{path}.{name}')
      for name, field in fields.items()
    }
  )


def _check_section(value: Any, path: str, fields: Sequence[str]) -> None:
  """Raises ConfigError for a value where a section should be."""
  if not hasattr(value, 'items'):
    raise errors.ConfigError(
      f'{path}={value!r} is not a section; it has the fields '
      f'{", ".join(fields)}'
    )


def check_names(names: Any, known: Any, path: str) -> None:
  """Raises ConfigError for the first of `names` that is not `known`."""
  for name in names:
    if name not in known:
      raise errors.ConfigError(
        f'{path}.{name} is not a config key{nearest(name, known)}'
      )


def nearest(name: str, known: Any) -> str:
  """'; did you mean X?', or the list of what there is."""
  close = difflib.get_close_matches(name, list(known), n=1)
  if close:
    return f'; did you mean {close[0]}?'
  return f'; choose one of {", ".join(sorted(known))}'


def _value(field: dataclasses.Field, hint: Any, value: Any, path: str) -> Any:
  """One field's value, as a dataclass where the field is a section."""
  choices = field.metadata.get('choices')
  if choices is not None:
    name = dict(value.items()).get('name') if hasattr(value, 'items') else value
    if name not in list(choices):  # A list as name is wrong, not unhashable.
      raise errors.ConfigError(
        f'{path}.name={name!r} is unknown{nearest(str(name), choices)}'
      )
    return build(choices[name], value, path)
  if dataclasses.is_dataclass(hint):
    return build(typing.cast(type, hint), value, path)
  if typing.get_origin(hint) is dict:
    inner = typing.get_args(hint)[1]
    _check_section(value, path, [f.name for f in dataclasses.fields(inner)])
    return {
      name: build(inner, section, f'{path}.{name}')
      for name, section in value.items()
    }
  return _check_type(hint, value, path)


def _check_type(hint: Any, value: Any, path: str) -> Any:
  """`value` if it has the type of `hint`; an int may stand for a float."""
  origin = typing.get_origin(hint)
  if origin in (typing.Union, types.UnionType):
    kinds = typing.get_args(hint)
    if value is None and type(None) in kinds:
      return None
    hint = next(kind for kind in kinds if kind is not type(None))
    origin = typing.get_origin(hint)
  if origin is tuple:
    if isinstance(value, (tuple, list)):
      inner = typing.get_args(hint)[0]
      return tuple(
        _check_type(inner, item, f'{path}[{i}]') for i, item in enumerate(value)
      )
  elif hint is float and isinstance(value, int | float):
    if not isinstance(value, bool):
      return float(value)
  elif type(value) is hint:
    return value
  name = getattr(hint, '__name__', str(hint))
  raise errors.ConfigError(
    f'{path}={value!r} is a {type(value).__name__}; give a {name}'
  )


def flatten(section: Any, path: str = 'config') -> dict[str, Any]:
  """{'config.model.width': 128, ...} of a nested mapping or dataclass."""
  values: Any = section
  if dataclasses.is_dataclass(section) and not isinstance(section, type):
    values = dataclasses.asdict(section)
  flat = {}
  for name, value in values.items():
    if hasattr(value, 'items'):
      flat |= flatten(value, f'{path}.{name}')
    else:
      flat[f'{path}.{name}'] = value
  return flat


def differences(
  old: Mapping[str, Any], new: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
  """{field: (old, new)} of the fields in which two flat mappings differ."""
  return {
    key: (old.get(key), new.get(key))
    for key in sorted(old.keys() | new.keys())
    if old.get(key) != new.get(key)
  }
