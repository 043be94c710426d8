"""How a token is written for people to read."""

_ESCAPE = 0xDC00  # 'surrogateescape' reads a byte that is no text as this more.


def of_bytes(data: bytes) -> str:
  """Text; bytes that are not UTF-8 are written <0xE2>."""
  return ''.join(
    f'<0x{ord(c) - _ESCAPE:X}>' if '\udc80' <= c <= '\udcff' else c
    for c in data.decode(errors='surrogateescape')
  )


def of_none(token_id: int) -> str:
  """An id below V that is no token."""
  return f'<no token {token_id}>'
