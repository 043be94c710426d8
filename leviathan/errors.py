"""Errors that the user can mend. Each kind has its own exit code.

The message is one line that names the file or field, the value found and the
remedy. Anything else that escapes is a bug of ours and keeps its traceback.
"""


class UserError(Exception):
  """Base of the errors that are printed as one line, without a traceback."""

  exit_code = 1


class ConfigError(UserError):
  """A flag or a config field is missing, unknown or out of range."""

  exit_code = 2


class DataError(UserError):
  """An input file, a tokenizer or a dataset cannot be used as it is."""

  exit_code = 3


class CheckpointError(UserError):
  """A checkpoint or a run directory cannot be read, written or resumed."""

  exit_code = 4


class NotFiniteError(UserError):
  """Too many steps in a row were skipped: not finite, or spikes."""

  exit_code = 5


class StalledError(UserError):
  """A process did not come to where the others wait for it."""

  exit_code = 6


class PreemptedError(UserError):
  """The run was told to stop, and was saved: the same command goes on."""

  exit_code = 75


def of_exit_code(code: int) -> type[UserError]:
  """The class of errors with this exit code."""
  return next(c for c in UserError.__subclasses__() if c.exit_code == code)


def first_line(error: BaseException) -> str:
  """Of an error's message, for a place in ours."""
  return (str(error).splitlines() or [type(error).__name__])[0][:200]
