"""datatrove's tasks make the bytes of `prepare.run`, and can be run again."""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys

from datatrove.executor import local
from etils import epath
import pytest

from leviathan import errors
from leviathan.data import datatrove_steps
from leviathan.data import job as job_lib
from leviathan.data import manifest as manifest_lib
from leviathan.data import prepare
from leviathan.data import shards as shards_lib
from leviathan.data import text
from leviathan.data import tokenizer
from leviathan.data import units as units_lib

ROOT = pathlib.Path(__file__).parents[2]
TEXTS = [f'{i} ' + 'so it goes ' * (i * 37 % 23) for i in range(200)]


@pytest.fixture
def job(tiny, tmp_path, monkeypatch):
  """Of three files, several blocks each, into several shards."""
  monkeypatch.setattr(shards_lib, '_SHARD_BYTES', 3000)
  return job_of(tiny, tmp_path)


def job_of(tiny, tmp_path, last=''):
  inputs = []
  for i in range(3):
    path = tmp_path / f'{i}.jsonl'
    lines = [json.dumps({'text': t}) + '\n' for t in TEXTS[i::3]]
    path.write_text(''.join(lines) + (last if i == 2 else ''))
    inputs.append(manifest_lib.Input(name=str(path), bytes=path.stat().st_size))
  spec = f'spm:{tiny.tokenizer}'
  return job_lib.Job(
    output=epath.Path(tmp_path / 'shared'),
    inputs=tuple(inputs),
    tokenizer=spec,
    tokenizer_sha256=tokenizer.load(spec).sha256,
    format=text.Format(),
    seq_len=16,
    validation_fraction=0.2,
    block_bytes=2000,
  )


def executor(logs, step, *, tasks=3, workers=1, depends=None):
  return local.LocalPipelineExecutor(
    [step],
    tasks=tasks,
    workers=workers,
    logging_dir=str(logs / step.name),
    skip_completed=False,
    depends=depends,
  )


def run_all(job, logs, *, most=0, **settings):
  tokenize = executor(logs, datatrove_steps.Tokenize(job, most), **settings)
  write = executor(
    logs, datatrove_steps.Write(job, most), depends=tokenize, **settings
  )
  finish = datatrove_steps.Finish(job, most)
  executor(logs, finish, tasks=1, depends=write).run()


def plain(job, tmp_path):
  """{file: its bytes} of the same job as one machine does it."""
  alone = dataclasses.replace(job, output=epath.Path(tmp_path / 'alone'))
  prepare.run(alone)
  return contents(alone.output)


def contents(directory):
  return {
    str(path.relative_to(directory)): path.read_bytes()
    for path in sorted(pathlib.Path(directory).rglob('*'))
    if path.is_file()
  }


def units(job):
  return {path.name for path in (job.work / 'units').iterdir()}


def shards(job):
  return {path.name for path in job.work.glob('output/train/shard-*')}


def test_the_result_is_that_of_one_machine(job, tmp_path):
  run_all(job, tmp_path / 'logs')
  found = contents(job.output)
  assert found == plain(job, tmp_path)
  assert len([name for name in found if 'shard-' in name]) > 6
  assert not job.work.exists()


def test_tasks_in_processes_of_their_own(tiny, tmp_path):
  job = job_of(tiny, tmp_path)
  run_all(job, tmp_path / 'logs', workers=2)
  assert contents(job.output) == plain(job, tmp_path)


def test_a_task_does_a_share_and_all_tasks_do_all(job):
  made, written = [], []
  for rank in range(3):
    datatrove_steps.Tokenize(job).run(rank=rank, world_size=3)
    made.append(units(job))
  tasks = shards_lib.tasks(job, units_lib.read(job, 0))
  for rank in range(3):
    datatrove_steps.Write(job).run(rank=rank, world_size=3)
    written.append(shards(job))
  assert set() < made[0] < made[1] < made[2]
  assert set() < written[0] < written[1] < written[2]
  assert written[2] == {t.name for t in tasks if t.dataset == 'train'}


def test_a_stage_that_was_done_is_used(job, tmp_path, monkeypatch):
  executor(tmp_path / 'logs', datatrove_steps.Tokenize(job)).run()

  def never(*args):
    raise AssertionError(f'a unit is made again: {args}')

  with monkeypatch.context() as patch:
    patch.setattr(units_lib, '_make_unit', never)
    # Shared out in another way.
    run_all(job, tmp_path / 'logs', tasks=2)
  assert contents(job.output) == plain(job, tmp_path)


def test_marks_of_datatrove_do_not_stand_for_what_was_removed(job, tmp_path):
  executor(tmp_path / 'logs', datatrove_steps.Tokenize(job)).run()
  job_lib.clear(job)
  run_all(job, tmp_path / 'logs')
  assert contents(job.output) == plain(job, tmp_path)


def test_writing_waits_for_all_of_the_reading(job):
  datatrove_steps.Tokenize(job).run(rank=1, world_size=3)
  with pytest.raises(errors.DataError, match='not all shards have run'):
    datatrove_steps.Write(job).run(rank=0, world_size=3)


def test_only_the_first_task_finishes_and_it_fills_holes(job, tmp_path):
  datatrove_steps.Tokenize(job).run()
  datatrove_steps.Write(job).run(rank=0, world_size=2)
  datatrove_steps.Finish(job).run(rank=1, world_size=2)
  assert not job.output.exists()
  datatrove_steps.Finish(job).run(rank=0, world_size=2)
  assert contents(job.output) == plain(job, tmp_path)


@pytest.mark.parametrize('workers', [1, 2])
def test_a_bad_record_is_named(tiny, tmp_path, workers):
  job = job_of(tiny, tmp_path, last='{"text": 1}\n')
  with pytest.raises(errors.DataError, match=r'2.jsonl:67 has a number'):
    run_all(job, tmp_path / 'logs', workers=workers)
  assert not job.output.exists()


def test_bad_records_that_are_allowed_are_left_out(tiny, tmp_path):
  job = job_of(tiny, tmp_path, last='{"text": 1}\n')
  logs = tmp_path / 'logs'
  run_all(job, logs, most=1)
  bad = (job.output / units_lib.BAD_RECORDS_FILE).read_text()
  assert len(bad.splitlines()) == 1


def test_the_script_of_the_readme(tiny, tmp_path):
  job = job_of(tiny, tmp_path)
  page = (ROOT / 'docs' / 'preparing.md').read_text()
  blocks = re.findall(r'```python\n(.*?)```', page, re.DOTALL)
  (script,) = [b for b in blocks if 'RayPipelineExecutor' in b]
  (tmp_path / 'a.py').write_text(
    script.replace('Ray', 'Local').replace('64, workers=16', '2, workers=1')
  )
  flags = [
    f'--input={tmp_path}/*.jsonl',
    f'--tokenizer={job.tokenizer}',
    f'--output={job.output}',
    f'--seq_len={job.seq_len}',
    f'--validation_fraction={job.validation_fraction}',
  ]
  subprocess.run([sys.executable, tmp_path / 'a.py', *flags], check=True)
  assert contents(job.output) == plain(job, tmp_path)
