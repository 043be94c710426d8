"""What is installed is all that the commands need."""

import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
NOT_SOURCES = ('.*', 'runs', 'build', 'dist', '__pycache__', '*.egg-info')


@pytest.fixture(scope='module')
def built(tmp_path_factory):
  """Names in the wheel and in the sdist, made from a copy of the sources."""
  directory = tmp_path_factory.mktemp('package')
  source, output = directory / 'source', directory / 'output'
  shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*NOT_SOURCES))
  for kind in ('sdist', 'bdist_wheel'):
    subprocess.run(
      [sys.executable, 'setup.py', '--quiet', kind, f'--dist-dir={output}'],
      cwd=source,
      check=True,
      capture_output=True,
    )
  (wheel,), (sdist,) = output.glob('*.whl'), output.glob('*.tar.gz')
  with zipfile.ZipFile(wheel) as z, tarfile.open(sdist) as t:
    return z.namelist(), [name.partition('/')[2] for name in t.getnames()]


def sources(folder):
  return {str(p.relative_to(ROOT)) for p in (ROOT / folder).rglob('*.py')}


def test_the_wheel_holds_every_module_and_config_and_no_test(built):
  wheel, _ = built
  assert sources('leviathan') | sources('configs') <= set(wheel)
  assert not [name for name in wheel if name.startswith('tests/')]
  assert any(name.endswith('licenses/LICENSE') for name in wheel)


def test_the_wheel_installs_the_command(built):
  wheel, _ = built
  assert any(name.endswith('entry_points.txt') for name in wheel)


def test_the_sdist_holds_what_a_reader_wants(built):
  _, sdist = built
  for name in ('README.md', 'LICENSE', 'CHANGELOG.md', 'CITATION.cff'):
    assert name in sdist
  assert sources('leviathan') | sources('configs') <= set(sdist)
