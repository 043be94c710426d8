"""How a token is written for people to read."""

import re

_BYTE = re.compile('<0x([0-9A-F]{2})>')
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


def is_byte(token: str) -> bool:
  """Whether a token is one byte, written <0xE2>."""
  return _BYTE.fullmatch(token) is not None


def byte(token: str) -> bytes:
  """The byte of a token that is written <0xE2>."""
  return bytes([int(token[3:5], 16)])
