r"""Prints a script by which bash completes commands, flags and files.

leviathan completion > ~/.local/share/bash-completion/completions/leviathan
source <(leviathan completion)   # for this shell alone
"""

import ast
from collections.abc import Iterator
import pathlib

from leviathan.cli import main as main_lib

SCRIPT = """\
_leviathan() {{
  local words='' word="${{COMP_WORDS[COMP_CWORD]}}"
  case "$COMP_CWORD:${{COMP_WORDS[1]}}" in
    1:*) words='{commands}' ;;
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  if [[ ${{COMPREPLY[0]-}} == *= ]]; then
    compopt -o nospace
  fi
}}
complete -o default -F _leviathan leviathan"""


def main(argv) -> None:
  """Runs the command."""
  del argv
  cases = [
    f"    *:{name}) words='{' '.join(sorted(flags_of(name)))}' ;;"
    for name in main_lib.COMMANDS
  ]
  print(
    SCRIPT.format(commands=' '.join(main_lib.COMMANDS), cases='\n'.join(cases))
  )


def flags_of(module: str) -> Iterator[str]:
  """Flags of a module of `leviathan.cli` and of those that it shares.

  Read from the source: commands define flags of the same names, so no two can
  be imported together, and importing one takes seconds.

  Args:
    module: its name, which for a command is the command's.

  Yields:
    `--name=`, or `--name` for what is true or false.
  """
  path = pathlib.Path(__file__).with_name(f'{module}.py')
  for statement in ast.parse(path.read_text()).body:
    value = getattr(statement, 'value', None)
    if isinstance(statement, ast.ImportFrom):
      if statement.module == 'leviathan.cli':
        for shared in statement.names:
          yield from flags_of(shared.name)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
      name, attribute = value.args[:1], value.func.attr
      if attribute == 'define':  # Of config_flag.
        yield '--config='
      elif attribute.startswith('DEFINE_') and name:
        flag = ast.literal_eval(name[0])
        yield f'--{flag}' if attribute == 'DEFINE_bool' else f'--{flag}='
