"""Data, runs and checkpoints are read, never run: JSON and plain arrays."""

import ast
import pathlib
import pickle

import numpy as np
import pytest

from leviathan import errors
from leviathan import rundir

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What can turn a file into code.
MODULES = {'pickle', 'marshal', 'shelve', 'dill', 'joblib', 'yaml', 'runpy'}
CALLS = {'eval', 'exec', 'compile', '__import__'}
# Of a name in the code, not in a file: commands, and packages that not all
# have installed.
IMPORTERS = {
  'cli/main.py',
  'eval/harness.py',
  'huggingface/check.py',
  'sinks.py',
}


def sources():
  for path in sorted((ROOT / 'leviathan').rglob('*.py')):
    yield (
      path.relative_to(ROOT / 'leviathan').as_posix(),
      ast.walk(ast.parse(path.read_text())),
    )


def test_nothing_that_runs_files_is_imported_or_called():
  for path, nodes in sources():
    for node in nodes:
      if isinstance(node, ast.Import):
        assert not {name.name for name in node.names} & MODULES, path
      elif isinstance(node, ast.ImportFrom):
        assert node.module not in MODULES, path
      elif isinstance(node, ast.Call):
        function = ast.unparse(node.func)
        assert function not in CALLS, f'{path}: {function}'
        if function == 'importlib.import_module':
          assert path in IMPORTERS, path
        if function == 'np.load':
          unsafe = [ast.unparse(k.value) for k in node.keywords]
          assert 'True' not in unsafe, path


class Bomb:
  def __reduce__(self):
    return pathlib.Path.touch, (Bomb.path,)


def test_an_array_file_that_holds_code_is_refused_and_not_run(tmp_path):
  Bomb.path = tmp_path / 'exploded'
  run = rundir.open_(str(tmp_path / 'run'))
  run.tokenizer_dir.mkdir(parents=True)
  file = run.tokenizer_dir / 'unigram_counts.npy'
  np.save(file, np.array([Bomb()], dtype=object), allow_pickle=True)
  with pytest.raises(errors.CheckpointError, match='unigram_counts.npy'):
    run.unigram_counts()
  file.write_bytes(pickle.dumps(Bomb()))
  with pytest.raises(errors.CheckpointError, match='unigram_counts.npy'):
    run.unigram_counts()
  assert not Bomb.path.exists()


def test_a_run_s_config_is_json_and_never_a_program(tmp_path):
  run = rundir.open_(str(tmp_path))
  run.config_file.write_text(f'open({str(tmp_path / "made")!r}, "w")')
  with pytest.raises(errors.CheckpointError, match='is not JSON'):
    run.config()
  assert not (tmp_path / 'made').exists()
