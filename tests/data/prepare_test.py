"""Nothing is lost, and neither kills nor workers change a byte."""

import collections
import dataclasses
import gzip
import json
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import time

from etils import epath
import numpy as np
import pytest
import zstandard

from leviathan import errors
from leviathan.data import files
from leviathan.data import job as job_lib
from leviathan.data import manifest as manifest_lib
from leviathan.data import prepare
from leviathan.data import records
from leviathan.data import shards
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers
from leviathan.data import units as units_lib
from leviathan.data import workers

TEXTS = [f'Text {i} has\n{"words, " * (i * 7 % 40)}.' for i in range(120)]
KILLS = 8


def jsonl(texts, **meta):
  rows = ({'text': t, 'meta': meta} for t in texts)
  return ''.join(json.dumps(row) + '\n' for row in rows).encode()


@pytest.fixture
def job(tiny, tmp_path):
  """Makes a job of files, {name: bytes}."""

  def made(contents, output='out', **settings):
    inputs = []
    for name, data in contents.items():
      path = tmp_path / name
      path.write_bytes(data)
      inputs.append(manifest_lib.Input(name=str(path), bytes=len(data)))
    spec = f'spm:{tiny.tokenizer}'
    return job_lib.Job(
      output=epath.Path(tmp_path / output),
      inputs=tuple(inputs),
      tokenizer=spec,
      tokenizer_sha256=tokenizers.load(spec).sha256,
      **{'format': text.Format(), 'seq_len': 16, 'block_bytes': 700} | settings,
    )

  return made


def everything(directory):
  """{name: bytes} of all files below."""
  return {
    str(path.relative_to(directory)): path.read_bytes()
    for path in sorted(directory.rglob('*'))
    if path.is_file()
  }


def done(work):
  """How many pieces of a job are done."""
  return len([*work.glob('units/0*'), *work.glob('shards/*/*.npz')])


def rows(directory):
  dataset = records.open_dataset(directory)
  return dataset.read(range(len(dataset)))


def documents(directory):
  """How often each text is in a dataset of rows in order."""
  dataset = records.open_dataset(directory)
  tokenizer = dataset.tokenizer()
  ids = rows(directory)[:, 1:].ravel()
  ids = ids[ids != records.PAD]
  parts = np.split(ids, np.flatnonzero(ids == tokenizer.eos_id) + 1)
  assert not len(parts[-1])
  return collections.Counter(tokenizer.decode(part) for part in parts[:-1])


CORPUS = {
  'a.jsonl': jsonl(TEXTS[:50]),
  'b.jsonl.gz': gzip.compress(jsonl(TEXTS[50:90])),
  'c.jsonl.zst': zstandard.compress(jsonl(TEXTS[90:])),
  'd.txt': b'a whole file',
}


def test_one_corpus_in_any_packing_is_one_dataset(job, tmp_path):
  data = jsonl(TEXTS[:10])
  frames = zstandard.compress(data[:333]) + zstandard.compress(data[333:])
  packings = {
    'a.jsonl': data,
    'a.jsonl.gz': gzip.compress(data),
    'a.jsonl.zst': zstandard.compress(data),
    'b.jsonl.zst': frames,
  }
  found = {
    prepare.run(job({name: packed}, name + '.out'))[
      epath.Path(tmp_path / f'{name}.out')
    ].fingerprint
    for name, packed in packings.items()
  }
  assert len(found) == 1


@pytest.mark.parametrize('workers', [2, 5, 40])
def test_the_sharing_out_of_work_changes_no_byte(
  job, tmp_path, monkeypatch, workers
):
  made = []
  honest = units_lib._make_unit
  monkeypatch.setattr(
    units_lib, '_make_unit', lambda *a: made.append(a[:2]) or honest(*a)
  )
  settings = {'validation_fraction': 0.3}
  prepare.run(job(CORPUS, 'one', **settings))
  many = job(CORPUS, 'many', **settings)
  assert len(many.groups) > 1
  job_lib.start(many)
  tasks = units_lib.tasks(many, workers)
  assert len(tasks) >= workers
  random.Random(workers).shuffle(tasks)
  for task in tasks:
    units_lib.tokenize(many, task, 0)
    # No task does another's work.
    for job_, path in made:
      if job_ == many:
        block = int(path.name.split('-')[1])
        assert block % task.parts == task.part
    made.clear()
  prepare.run(many)
  assert not made
  assert everything(tmp_path / 'many') == everything(tmp_path / 'one')


def test_processes_and_shards_change_no_byte(job, tmp_path):
  prepare.run(job(CORPUS, 'one'))
  prepare.run(job(CORPUS, 'two'), workers_=2)
  array = job(CORPUS, 'array')
  for share in (2, 0, 1):
    job_lib.start(array)
    prepare.run_tokenize(array, 1, 0, share, 3)
  assert array.work.exists() and not array.output.exists()
  units = everything(tmp_path / array.work.name / 'units')
  prepare.run(array)
  assert units
  one = everything(tmp_path / 'one')
  assert everything(tmp_path / 'two') == everything(tmp_path / 'array') == one
  assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
    [*CORPUS, 'one', 'two', 'array']
  )


def test_a_kill_at_any_instant_is_made_good(job, tmp_path):
  corpus = {
    'a.jsonl.zst': zstandard.compress(jsonl(TEXTS * 30)),
    'b.jsonl': jsonl(TEXTS * 20),
  }
  settings = {'block_bytes': 10_000, 'validation_fraction': 0.3}
  (tmp_path / 'one.job').write_bytes(
    pickle.dumps(job(corpus, 'one', **settings))
  )
  script = (
    'import pickle, sys; from leviathan.data import prepare; '
    'prepare.run(pickle.load(open(sys.argv[1], "rb")), 2)'
  )

  def begin(name):
    return subprocess.Popen(
      [sys.executable, '-c', script, tmp_path / f'{name}.job'],
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
    )

  assert begin('one').wait() == 0
  many = job(corpus, 'many', **settings)
  (tmp_path / 'many.job').write_bytes(pickle.dumps(many))
  one, instants = everything(tmp_path / 'one'), random.Random(0)
  kills = finished = 0
  while kills < KILLS:
    process = begin('many')
    goal = done(many.work) + instants.randrange(12)
    while process.poll() is None and done(many.work) < goal:
      time.sleep(0.001)
    time.sleep(instants.uniform(0, 0.03))
    kills += process.poll() is None
    process.kill()
    process.wait()
    if many.output.exists():
      finished += 1
      assert everything(tmp_path / 'many') == one
      many.output.rmtree()
      many.work.rmtree(missing_ok=True)
  assert finished < KILLS
  process = begin('many')
  assert process.wait() == 0, process.stdout.read()
  assert everything(tmp_path / 'many') == one
  # Killed after the output had its name, before the rest was cleared.
  (many.work / 'shards').mkdir(parents=True)
  assert begin('many').wait() != 0
  left = {'many.job', 'one.job', 'many', 'one', *corpus}
  assert {p.name for p in tmp_path.iterdir()} == left


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
  script = (
    'import os, sys, time; from leviathan.data import workers\n'
    'if __name__ == "__main__":\n'
    '  workers.Workers(2).run(time.sleep, [(60,), (60,)])\n'
  )
  (tmp_path / 'main.py').write_text(script)
  process = subprocess.Popen([sys.executable, tmp_path / 'main.py'])
  children = []
  path = f'/proc/{process.pid}/task/{process.pid}/children'
  if not os.path.exists(path):
    process.kill()
    pytest.skip('the children of a process are listed on Linux alone')
  while len(children) < 3:  # The workers, and what tracks their resources.
    time.sleep(0.2)
    with open(path) as file:
      children = file.read().split()
  time.sleep(2)  # They are up.
  process.kill()
  process.wait()
  deadline = time.monotonic() + 30
  while any(os.path.exists(f'/proc/{child}') for child in children):
    assert time.monotonic() < deadline
    time.sleep(0.1)


def test_a_worker_that_is_killed_is_one_line(tmp_path):
  script = (
    'import os, signal; from leviathan.data import workers\n'
    'from leviathan import errors\n'
    'if __name__ == "__main__":\n'
    '  try:\n'
    '    workers.Workers(2).run(os.abort, [()])\n'
    '  except errors.DataError as e:\n'
    '    print(e)\n'
  )
  (tmp_path / 'main.py').write_text(script)
  found = subprocess.run(
    [sys.executable, tmp_path / 'main.py'],
    capture_output=True,
    text=True,
    check=True,
  )
  assert 'one of 2 workers was killed' in found.stdout


def test_workers_stay_for_more_work():
  found = []
  with workers.Workers(2) as pool:
    for _ in range(2):
      pool.run(time.sleep, [(0,), (0,)])
      found.append({child.pid for child in multiprocessing.active_children()})
  assert found[0] == found[1] and len(found[0]) == 2
  assert not multiprocessing.active_children()


def test_a_unit_that_cannot_be_written_is_not_passed_over(job, monkeypatch):
  one = job({'a.jsonl': jsonl(TEXTS[:30])})
  honest, saved = units_lib._save, []

  def full(path, *rest):
    saved.append(path)
    if len(saved) == 2:
      raise OSError('no space left')
    honest(path, *rest)

  monkeypatch.setattr(units_lib, '_save', full)
  with pytest.raises(OSError, match='no space left'):
    prepare.run(one)
  assert not any((one.work / 'groups').iterdir())
  assert prepare.run(one)[one.output].documents == 30


def test_writing_needs_no_tokenizer(job, monkeypatch):
  one = job({'a.jsonl': jsonl(TEXTS[:30])})
  job_lib.start(one)
  prepare.run_tokenize(one, 1, 0)
  tasks = shards.tasks(one, units_lib.read(one, 0))
  with monkeypatch.context() as patch:
    patch.setattr(job_lib, 'load_tokenizer', None)
    for task in tasks:
      shards.write(one, task)
  assert prepare.run(one)[one.output].documents == 30


BAD = b'{"text": 1}\n{"no": 1}\n\n{"text": ""}\nnot json\n'


def test_the_totals_add_up_to_the_input(job, tmp_path):
  corpus = {'a.jsonl': jsonl(TEXTS[:40]), 'b.jsonl': BAD + jsonl(TEXTS[5:60])}
  made = prepare.run(job(corpus, validation_fraction=0.3), 1, 3)
  for manifest in made.values():
    assert manifest.records == 99
    assert manifest.skipped == {
      'empty_text': 1,
      'no_text': 1,
      'not_json': 1,
      'text_not_a_string': 1,
    }
  train, validation = (
    made[tmp_path / 'out' / n] for n in ('train', 'validation')
  )
  assert train.documents + validation.documents == 95
  assert (train.elsewhere, validation.elsewhere) == (
    validation.documents,
    train.documents,
  )
  assert train.duplicates + validation.duplicates == 35
  bad = (tmp_path / 'out' / units_lib.BAD_RECORDS_FILE).read_text().splitlines()
  path = str(tmp_path / 'b.jsonl')
  assert [
    (row['reason'], row['path'], row['line']) for row in map(json.loads, bad)
  ] == [
    ('text_not_a_string', path, 1),
    ('no_text', path, 2),
    ('not_json', path, 5),
  ]
  names = tmp_path / 'out' / 'train', tmp_path / 'out' / 'validation'
  assert records.shared_texts(*([epath.Path(n)] for n in names)) == 0
  assert records.shared_texts(*([epath.Path(names[0])] for _ in range(2))) == (
    train.documents - train.duplicates
  )


@pytest.mark.parametrize('block_bytes', [1, 1 << 20])
@pytest.mark.parametrize('most, line', [(0, 1), (1, 2), (2, 5)])
def test_one_bad_record_too_many_is_named(job, most, line, block_bytes):
  one = job({'b.jsonl': BAD + jsonl(TEXTS[:9])}, block_bytes=block_bytes)
  with pytest.raises(errors.DataError, match=rf'b.jsonl:{line} ') as e:
    prepare.run(one, 1, most)
  assert not most or f'--max_bad_records={most}' in str(e.value)
  assert not one.output.exists()
  assert prepare.run(one, 1, 3)[one.output].documents == 9


def test_what_was_done_before_a_bad_record_is_kept(job, monkeypatch):
  one = job({'a.jsonl': jsonl(TEXTS[:30]) + b'bad\n'})
  with pytest.raises(errors.DataError, match='a.jsonl:31'):
    prepare.run(one)
  made = []
  honest = units_lib._make_unit
  monkeypatch.setattr(
    units_lib, '_make_unit', lambda *a: made.append(a) or honest(*a)
  )
  prepare.run(one, 1, 1)
  assert len(made) == 1


def test_the_unfinished_work_of_another_job_is_refused(job):
  one = job({'a.jsonl': jsonl(TEXTS[:30]) + b'bad\n'})
  with pytest.raises(errors.DataError, match='a.jsonl:31'):
    prepare.run(one)
  for changes, message in (
    ({'seq_len': 8}, 'seq_len: 16 there, 8 here'),
    ({'format': text.Format(text_key='t')}, 'text_key: text there, t here'),
    ({'tokenizer_sha256': 'a'}, 'tokenizer_sha256'),
    ({'shuffle_seed': None}, 'shuffle_seed: 0 there, None here'),
    ({'inputs': one.inputs * 2}, r'inputs: None there, .*a.jsonl.* here'),
  ):
    with pytest.raises(errors.DataError, match=message):
      prepare.run(dataclasses.replace(one, **changes))
  # Nothing was done yet: nothing is in the way of the mended input.
  first = job({'z.jsonl': b'bad\n'}, 'first')
  with pytest.raises(errors.DataError, match='z.jsonl:1'):
    prepare.run(first)
  prepare.run(job({'z.jsonl': jsonl(['mended'])}, 'first'))


def test_a_file_in_the_output_costs_no_work(job, tmp_path):
  one = job({'a.jsonl': jsonl(TEXTS[:30])})
  job_lib.start(one)
  prepare.run_tokenize(one, 1, 0)
  units = done(one.work)
  one.output.mkdir()
  (one.output / 'notes.txt').write_text('mine')
  with pytest.raises(errors.DataError, match='never overwritten'):
    prepare.run(one)
  assert done(one.work) == units
  (one.output / 'notes.txt').unlink()
  assert prepare.run(one)[one.output].documents == 30


def test_work_that_was_cleared_in_part_is_begun_again(job):
  one = job({'a.jsonl': jsonl(TEXTS[:30])})
  job_lib.start(one)
  (one.work / 'units').rmdir()
  (one.work / 'groups').rmdir()
  assert prepare.run(one)[one.output].documents == 30
  # Facts of shards that went away with the output are not trusted.
  two = job({'a.jsonl': jsonl(TEXTS[:30])}, 'two')
  job_lib.start(two)
  prepare.run_tokenize(two, 1, 0)
  for task in shards.tasks(two, units_lib.read(two, 0)):
    shards.write(two, task)
  (two.work / 'output').rmtree()
  assert prepare.run(two)[two.output].documents == 30


def test_two_at_once_are_refused(job):
  one = job({'a.jsonl': jsonl(TEXTS[:30])})
  job_lib.start(one)
  with job_lib.alone(one):
    with pytest.raises(errors.DataError, match='another process is at work'):
      prepare.run(one)
  assert prepare.run(one)[one.output].documents == 30


def test_a_text_that_the_tokenizer_refuses_is_a_bad_record(job, monkeypatch):
  one = job({'a.jsonl': jsonl(['good', 'awful', 'good'])})
  honest = job_lib.load_tokenizer(one)

  class Tokenizer:
    eos_id, vocab_size = honest.eos_id, honest.vocab_size
    kind, sha256, save = honest.kind, honest.sha256, honest.save

    def encode(self, content):
      if content == 'awful':
        raise errors.DataError('too awful')
      return honest.encode(content)

  monkeypatch.setattr(job_lib, 'load_tokenizer', lambda job: Tokenizer())
  with pytest.raises(errors.DataError, match='a.jsonl:2 .*too awful'):
    prepare.run(one)
  found = prepare.run(one, 1, 1)[one.output]
  assert found.documents == 2 and found.skipped == {'not_tokenizable': 1}


@pytest.mark.parametrize('seed', [-1, 2**64])
def test_a_seed_has_64_bits(job, seed):
  with pytest.raises(errors.ConfigError, match=f'shuffle_seed={seed}; give'):
    job({'a.jsonl': jsonl(TEXTS)}, shuffle_seed=seed)


def test_a_shard_that_has_not_run_is_named(job):
  one = job(CORPUS)
  job_lib.start(one)
  prepare.run_tokenize(one, 1, 0, 0, 2)
  with pytest.raises(errors.DataError, match='not all shards have run'):
    units_lib.read(one, 0)


def test_subsets_are_datasets_of_their_own(job, tmp_path):
  names = ['Pile-CC', 'Wikipedia (en)', '../odd/%', 'bad_records.jsonl']
  corpus = {
    'a.jsonl': b''.join(
      jsonl(TEXTS[i::4], set=name) for i, name in enumerate(names)
    )
  }
  made = prepare.run(
    job(corpus, format=text.Format(split_by='meta.set'), shuffle_seed=None)
  )
  directories = [
    'Pile-CC',
    'Wikipedia (en)',
    '%2E.%2Fodd%2F%25',
    'bad_records%2Ejsonl',
  ]
  assert set(made) == {tmp_path / 'out' / d for d in directories}
  for i, directory in enumerate(directories):
    assert documents(tmp_path / 'out' / directory) == collections.Counter(
      TEXTS[i::4]
    )
    assert made[tmp_path / 'out' / directory].elsewhere == 90


def test_subsets_have_two_sides_each(job, tmp_path):
  corpus = {'a.jsonl': jsonl(TEXTS[:60], set='a') + jsonl(TEXTS[60:], set='b')}
  made = prepare.run(
    job(
      corpus,
      format=text.Format(split_by='meta.set'),
      validation_fraction=0.3,
      shuffle_seed=None,
    )
  )
  assert {str(p.relative_to(tmp_path / 'out')) for p in made} == {
    'train/a',
    'train/b',
    'validation/a',
    'validation/b',
  }
  assert sum(map(documents, made), collections.Counter()) == (
    collections.Counter(TEXTS)
  )


def test_the_shuffle_moves_whole_rows_and_depends_on_its_seed(job, tmp_path):
  found = {}
  for name, seed in (('none', None), ('a', 0), ('b', 0), ('c', 1)):
    made = prepare.run(job(CORPUS, name, shuffle_seed=seed))
    found[name] = rows(tmp_path / name)
    assert made[tmp_path / name].shuffle_seed == seed
  assert (found['a'] == found['b']).all() and (found['a'] != found['c']).any()
  for name in 'ac':
    assert (found[name] != found['none']).any()
    assert sorted(map(bytes, found[name])) == sorted(map(bytes, found['none']))
  # A row is as the stream has it: it begins with the last token of another.
  begins, ends = (collections.Counter(found['a'][:, i]) for i in (0, -1))
  assert sum((begins - ends).values()) <= 1


def test_texts_that_spell_tokens_and_odd_characters_come_back(job, tmp_path):
  texts = [
    '<s>a</s><unk><pad><0x41>',
    '<|endoftext|> [INST]',
    '\x00\x01\x1b\x7f\u0085\u2028',
    '\ufeff\u2581 \ufb01\u0301',
    ' ',
    '\n',
  ]
  prepare.run(job({'a.jsonl': jsonl(texts)}, shuffle_seed=None))
  assert documents(tmp_path / 'out') == collections.Counter(texts)


def test_a_job_on_a_bucket_reads_the_same(job, tmp_path):
  fs = files.fsspec.filesystem('memory')
  fs.pipe('/prepared/a.jsonl', jsonl(TEXTS))
  there = job({'a.jsonl': jsonl(TEXTS)}, 'there')
  remote = manifest_lib.Input(
    name='memory:///prepared/a.jsonl', bytes=len(jsonl(TEXTS))
  )
  found = prepare.run(dataclasses.replace(there, inputs=(remote,)))
  assert found[there.output].fingerprint == (
    prepare.run(job({'a.jsonl': jsonl(TEXTS)}, 'here'))[
      epath.Path(tmp_path / 'here')
    ].fingerprint
  )
