"""`leviathan COMMAND --flags`: finds the command and reports its errors."""

from collections.abc import Callable
from collections.abc import Sequence
import importlib
import itertools
import logging as python_logging
import os
import subprocess
import sys
import types
from typing import NamedTuple

from absl import app
from absl import flags
from absl import logging

from leviathan import config as config_lib
from leviathan import errors
from leviathan import storage
from leviathan.cli import config_flag


class Command(NamedTuple):
  """What `leviathan` alone tells of a command."""

  task: str  # it belongs to
  purpose: str
  example: str  # after `leviathan COMMAND`


# Modules of leviathan.cli, in the order in which a person comes to them.
COMMANDS = {
  'tokenizer': Command(
    'From text to data',
    'train a tokenizer that loses nothing, or check one',
    "--input='text/*.jsonl' --vocab_size=16384 --output=tokenizer",
  ),
  'prepare': Command(
    'From text to data',
    'turn text into a dataset',
    "--input='text/*.jsonl' --tokenizer=spm:tokenizer/tokenizer.model "
    '--output=data',
  ),
  'order': Command(
    'From text to data',
    'order the tokens for LEV',
    '--dataset=data --method=distributional --output=data/token_order.npy',
  ),
  'inspect': Command(
    'Training',
    'show what a config, a dataset or a run consists of',
    '--config=configs/lev.py:200m',
  ),
  'compile': Command(
    'Training',
    'see whether a run fits devices that are not here',
    '--config=configs/lev.py:1p2b --topology=v5e:8x8',
  ),
  'train': Command(
    'Training',
    'train a run, or go on with it',
    '--config=configs/lev.py:smoke --workdir=runs/lev',
  ),
  'study': Command(
    'Training',
    'train and compare many runs',
    '--study=configs/studies/miniature.py --workdir=runs/miniature',
  ),
  'evaluate': Command(
    'Trained runs',
    'evaluate a checkpoint',
    '--workdir=runs/lev --tasks=wikitext,lambada',
  ),
  'generate': Command(
    'Trained runs',
    'continue a prompt',
    "--workdir=runs/lev --prompt='import os'",
  ),
  'report': Command(
    'Trained runs',
    'compare runs: pictures, tables, one page',
    '--workdirs=runs/tied,runs/lev --output=runs/report',
  ),
  'export': Command(
    "Other people's tools",
    'write a checkpoint as a Hugging Face Llama',
    '--workdir=runs/lev --output=exports/lev',
  ),
  'import': Command(
    "Other people's tools",
    'make a run of a Hugging Face Llama',
    '--hf=exports/lev --config=configs/untied.py:smoke --workdir=runs/llama',
  ),
  'completion': Command(
    'Your shell',
    'make bash complete commands and flags',
    '> ~/.local/share/bash-completion/completions/leviathan',
  ),
}


def run() -> None:
  """The console script."""
  sys.exit(execute(sys.argv[1:]))


def execute(arguments: Sequence[str]) -> int:
  """Runs one command and returns the exit code."""
  if not arguments or arguments[0] in ('--help', '-h') or arguments == ['help']:
    return _exit_code(lambda: print(_usage(), flush=True))
  name, *rest = arguments
  if name == 'help':
    name, rest = rest[0], ['--help']
  if name not in COMMANDS:
    return _fail(
      errors.ConfigError(
        f'{name!r} is not a command{config_lib.nearest(name, COMMANDS)}'
      )
    )
  return _exit_code(
    lambda: _run(
      importlib.import_module(f'leviathan.cli.{name}'),
      [f'leviathan {name}', *rest],
    )
  )


def run_module(module: types.ModuleType, argv: Sequence[str]) -> int:
  """Runs a script of launch/ as a command is run; returns the exit code."""
  ours = argv[: list(argv).index('--')] if '--' in argv else argv
  return _exit_code(lambda: _run(module, ours))


def words_after_dashes() -> list[str]:
  """The command that a script of launch/ was given.

  Raises:
    ConfigError: there is none.
  """
  words = sys.argv[sys.argv.index('--') + 1 :] if '--' in sys.argv else []
  if not words:
    raise errors.ConfigError(
      'no command is given; write it after `--`, as `-- leviathan train '
      '--config=... --workdir=...`'
    )
  return words


def start(words: Sequence[str], **options) -> subprocess.Popen:
  """A script's command as a process in a group of its own.

  Ctrl-C then comes through the script.

  Args:
    words: of the command.
    **options: of subprocess.Popen.

  Raises:
    ConfigError: there is no such program.
  """
  try:
    return subprocess.Popen(words, start_new_session=True, **options)
  except OSError as e:
    raise errors.ConfigError(
      f'{words[0]!r} cannot be started ({e.strerror}); give a program after '
      '`--`'
    ) from e


def _run(module: types.ModuleType, argv: Sequence[str]) -> None:
  """Parses the flags of a command and calls its main, or prints its help."""
  if {'--help', '-h'} & set(argv):
    print(_help(module))
    return
  app.run(_no_arguments(module.main), argv=list(argv), flags_parser=_parse)


def _exit_code(call: Callable[[], None]) -> int:
  """Calls it; what a user can mend, and how it was stopped, as a code."""
  try:
    call()
  except errors.PreemptedError as told:
    print(f'preempted: {told}', file=sys.stderr)
    return told.exit_code
  except errors.UserError as error:
    return _fail(error)
  except BrokenPipeError:
    # Whoever read the output has seen enough; nothing is left to flush to.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
  except KeyboardInterrupt:
    print('interrupted; the same command goes on', file=sys.stderr)
    return 130
  except SystemExit as stop:
    # absl leaves so after main has returned, then with None.
    return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
  except Exception as error:
    if isinstance(error, OSError) or not storage.is_refusal(error):
      raise
    return _fail(
      errors.CheckpointError(
        f'a bucket cannot be used ({storage.said(error)}); mend that, and run '
        'the same command again'
      )
    )
  return 0


def _no_arguments(main):
  """`main` that refuses words which belong to no flag."""

  def checked(argv):
    if len(argv) > 1:
      raise errors.ConfigError(
        f'{argv[1]!r} belongs to no flag; write --flag=value'
      )
    # Orbax and JAX tell every step they take; their warnings are enough.
    logging.set_verbosity(logging.WARNING)
    python_logging.getLogger('leviathan').setLevel(python_logging.INFO)
    # What fails in Orbax's tasks is raised to us as well, and said in one line.
    python_logging.getLogger('asyncio').setLevel(python_logging.CRITICAL)
    return main(argv)

  return checked


def _parse(argv: Sequence[str]) -> list[str]:
  """absl's parsing, with every refusal as a ConfigError."""
  try:
    return flags.FLAGS(argv)
  except flags.UnrecognizedFlagError as error:
    name = f'--{error.flagname}'
    if name.startswith('--config.'):
      raise errors.ConfigError(config_flag.explain(error, argv)) from error
    defined = flags.FLAGS.flags_by_module_dict()
    known = [f'--{flag.name}' for m in _flag_modules() for flag in defined[m]]
    raise errors.ConfigError(
      f'{name} is not a flag{config_lib.nearest(name, known)}'
    ) from error
  except (flags.Error, KeyError, AttributeError, OSError) as error:
    raise errors.ConfigError(config_flag.explain(error, argv)) from error


def _help(command: types.ModuleType) -> str:
  """What a command does, an example, and its flags."""
  parts = [
    command.__doc__ or '',
    *map(flags.FLAGS.module_help, _flag_modules()),
  ]
  return '\n'.join(parts)


def _flag_modules() -> list[str]:
  """Modules of ours that define flags: the command's, and what it shares."""
  defined = flags.FLAGS.flags_by_module_dict()
  # absl calls a script by its path.
  ours = ('leviathan.cli', sys.argv[0])
  return [name for name in defined if name.startswith(ours)]


def _fail(error: errors.UserError) -> int:
  print(f'error: {error}', file=sys.stderr)
  return error.exit_code


def _usage() -> str:
  """All commands by task, each with an example."""
  lines = ['usage: leviathan COMMAND [--flags]; `leviathan COMMAND --help`']
  by_task = itertools.groupby(COMMANDS.items(), lambda item: item[1].task)
  for task, commands in by_task:
    lines += ['', task]
    for name, command in commands:
      lines.append(f'  {name:<10}  {command.purpose}')
      lines.append(f'              leviathan {name} {command.example}')
  return '\n'.join(lines)
