"""`--config=FILE.py:SCALE --config.a.b=VALUE`, with one-line refusals."""

from collections.abc import Sequence
import re
import sys

from absl import flags
import ml_collections
from ml_collections import config_flags

from leviathan import errors


def define():
  """Defines --config; each of its fields becomes a flag of its own."""
  return config_flags.DEFINE_config_file(
    'config',
    None,
    'FILE.py:SCALE, as configs/lev.py:smoke; override any field with '
    '--config.SECTION.FIELD=VALUE.',
  )


def read(flag) -> ml_collections.ConfigDict:
  """The config of a parsed flag.

  Raises:
    ConfigError: it was not given, or there is no such file.
  """
  if flag.value is None:
    raise errors.ConfigError(
      f'--{flag.name} is missing; give --{flag.name}=FILE.py:SCALE, as '
      'configs/lev.py:smoke, or configs/studies/order.py'
    )
  try:
    flag.value.keys()  # A file that is missing is an error only when used.
  except OSError as error:
    raise errors.ConfigError(explain(error, sys.argv)) from error
  return flag.value


def explain(error: Exception, argv: Sequence[str]) -> str:
  """One line for what ml_collections raised while flags were parsed."""
  text = str(error).strip()
  if isinstance(error, (KeyError, AttributeError)):
    found = re.search(r"'(\w+)'", text.replace('\\', ''))
    key = found[1] if found else text
    words = [a.split('=')[0] for a in argv if re.search(rf'\.{key}\b', a)]
    near = re.search(r'Did you mean "(\w+)"', text)
    hint = f'did you mean {near[1]}?' if near else 'see configs/base.py'
    return f'{words[0] if words else key} is not a config key; {hint}'
  if missing := re.findall(r'flag --(\w+)=None', text):
    return f'give {", ".join(f"--{name}=..." for name in sorted(missing))}'
  given = (a for a in argv if a.startswith(('--config=', '--study=')))
  file = next(given, '--config')
  if isinstance(error, OSError):
    return f'{file}: there is no such file; give another path'
  if isinstance(error, flags.UnrecognizedFlagError) and file == '--config':
    return f'--{error.flagname} needs --config=FILE.py:SCALE before it'
  last = text.splitlines()[-1]
  if 'missing 1 required positional argument' in last:
    return f'{file}: name a scale too, as {file}:smoke'
  if 'parsing config file' in text:
    return f'{file}: {last.partition(": ")[2] or last}'
  return ' '.join(text.split())
