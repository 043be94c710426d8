"""What make would do."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.skipif(not shutil.which('make'), reason='needs make')
@pytest.mark.parametrize(
  'also, flag', [('', ''), ('a', ' --also=a'), (' a  b ', ' --also=a,b')]
)
def test_further_text_is_of_all_directories(tmp_path, also, flag):
  file = f'{tmp_path}/corpus.jsonl'
  # The tests may themselves be run by make, which then tells where it is.
  words = [
    'make',
    '-n',
    '--no-print-directory',
    f'RUNS={tmp_path}',
    f'ALSO={also}',
    file,
  ]
  done = subprocess.run(
    words, cwd=ROOT, capture_output=True, text=True, check=True
  )
  line = done.stdout.splitlines()[-1]
  assert line.rstrip().endswith(f'--output={file}{flag}')
