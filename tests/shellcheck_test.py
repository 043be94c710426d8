"""Every script of a shell in the checkout is sound."""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[1]


def test_shellcheck_finds_nothing(shellcheck):
  files = subprocess.run(
    ['git', 'ls-files', '-z', '--', '*.sh', '.ci/run'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  ).stdout.split('\0')[:-1]
  assert '.ci/run' in files
  for file in files:
    shellcheck((ROOT / file).read_text())
