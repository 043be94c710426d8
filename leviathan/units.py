"""Sizes and times as people read them."""


def size(count: float | None) -> str:
  """'9.59 GB', of 1e9 bytes."""
  if count is None:
    return 'unknown'
  for unit, scale in (('GB', 1e9), ('MB', 1e6), ('kB', 1e3)):
    if abs(count) >= scale:
      return f'{count / scale:.2f} {unit}'
  return f'{count:.0f} B'


def duration(seconds: float) -> str:
  """'1.23 s', '310 ms'."""
  return f'{seconds:.3g} s' if seconds >= 1 else f'{1e3 * seconds:.3g} ms'
