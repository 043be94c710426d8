"""What MkDocs is told: pages that are made, excerpts of code, equations."""

import re
from typing import Any

import generate
from latex2mathml import converter
from mkdocs.structure import files as files_lib

_EQUATION = re.compile(r'^```math\n(.*?)^```$', re.DOTALL | re.MULTILINE)


def on_files(files: files_lib.Files, config: Any) -> files_lib.Files:
  """Adds the pages of `generate.PAGES`."""
  for name, make in generate.PAGES.items():
    files.append(files_lib.File.generated(config, name, content=make()))
  return files


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
  """A page with its excerpts; equations as MathML, which needs no script."""
  del kwargs
  return _EQUATION.sub(_mathml, generate.expand(markdown))


def _mathml(found: re.Match) -> str:
  # On one line: a blank one would end the block.
  text = ' '.join(found[1].split())
  return f'<div>{converter.convert(text, display="block")}</div>'
