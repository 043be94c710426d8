"""`leviathan prepare`, as its main function, from text files to rows."""

import gzip
import json

from absl import flags
from absl.testing import flagsaver
from etils import epath
import numpy as np
import pytest
import sentencepiece

from leviathan import errors
from leviathan.cli import prepare as command
from leviathan.data import records
from leviathan.data import text
from leviathan.data import tokenizer as tokenizers
from leviathan.token_order import files as token_orders

TEXTS = [
  f'Document {i}:\n  it has  {i * 37 % 11} spaces\u2581\n' + 'so ' * (i % 9)
  for i in range(60)
]


@pytest.fixture(autouse=True)
def parsed():
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()


@pytest.fixture(scope='module')
def model(tmp_path_factory):
  path = epath.Path('a.txt')
  corpus = [text.Document(text=t, path=path, line=1) for t in TEXTS]
  directory = tmp_path_factory.mktemp('tokenizer')
  return tokenizers.train(corpus, 300, directory)


def jsonl(texts):
  return ''.join(json.dumps({'text': t}) + '\n' for t in texts).encode()


@pytest.fixture
def corpus(tmp_path):
  """Two files, with an empty document and one that stands twice."""
  (tmp_path / 'in').mkdir()
  (tmp_path / 'in' / 'a.jsonl').write_bytes(jsonl(TEXTS[:30] + ['']))
  (tmp_path / 'in' / 'b.jsonl.gz').write_bytes(
    gzip.compress(jsonl(TEXTS[30:] + TEXTS[5:6]))
  )
  return tmp_path / 'in'


def run(corpus, model, output, **changes):
  values = {
    'input': f'{corpus}/**/*.jsonl*',
    'output': str(output),
    'tokenizer': f'spm:{model}',
    'seq_len': 16,
    'text_key': 'text',
    'validation_fraction': 0.0,
    'shuffle': False,
  }
  with flagsaver.flagsaver(**(values | changes)):
    command.main(['prepare'])


def documents(directory):
  """The texts of a dataset, out of its rows alone."""
  dataset = records.open_dataset(directory)
  tokenizer = dataset.tokenizer()
  rows = np.stack([dataset[i] for i in range(len(dataset))])
  ids = rows[:, 1:].ravel()
  ids = ids[ids != records.PAD]
  ends = np.flatnonzero(ids == tokenizer.eos_id)
  assert ends[-1] == len(ids) - 1
  return [tokenizer.decode(part) for part in _between(ids, ends)]


def _between(ids, ends):
  starts = [0, *(ends[:-1] + 1)]
  return [ids[a:b] for a, b in zip(starts, ends, strict=True)]


def test_the_texts_come_back_from_the_rows(corpus, model, tmp_path, capsys):
  run(corpus, model, tmp_path / 'out')
  assert documents(tmp_path / 'out') == TEXTS + TEXTS[5:6]
  manifest = records.open_dataset(tmp_path / 'out').manifest
  assert manifest.bytes == sum(len(t.encode()) for t in TEXTS + TEXTS[5:6])
  assert [i.name for i in manifest.inputs] == [
    str(corpus / 'a.jsonl'),
    str(corpus / 'b.jsonl.gz'),
  ]
  said = capsys.readouterr().out
  assert len(said.splitlines()) == 2
  for part in (
    f'{manifest.sequences} sequences',
    f'{manifest.tokens:,} tokens',
    f'{manifest.bytes / manifest.tokens:.2f} bytes per token',
    '61 documents',
    '1 empty_text',
    str(tmp_path / 'out'),
  ):
    assert part in said


def test_the_validation_split_is_by_text(corpus, model, tmp_path):
  run(corpus, model, tmp_path / 'out', validation_fraction=0.3)
  train = documents(tmp_path / 'out' / 'train')
  validation = documents(tmp_path / 'out' / 'validation')
  assert sorted(train + validation) == sorted(TEXTS + TEXTS[5:6])
  assert not set(train) & set(validation)
  assert 6 < len(validation) < 30
  # A larger share keeps what was held out before.
  run(corpus, model, tmp_path / 'more', validation_fraction=0.6)
  assert set(validation) < set(documents(tmp_path / 'more' / 'validation'))


def test_the_same_input_gives_the_same_fingerprint(corpus, model, tmp_path):
  prints = []
  for name in ('a', 'b'):
    run(corpus, model, tmp_path / name)
    manifest = records.open_dataset(tmp_path / name).manifest
    prints.append(manifest.fingerprint)
  assert prints[0] == prints[1]


@pytest.mark.parametrize('fraction', [0.0, 0.3])
def test_a_bad_line_at_the_end_leaves_nothing(
  corpus, model, tmp_path, fraction
):
  (corpus / 'z.jsonl').write_bytes(jsonl(['good']) + b'{"text": 1}\n')
  with pytest.raises(errors.DataError, match='z.jsonl:2 has a number'):
    run(corpus, model, tmp_path / 'out', validation_fraction=fraction)
  assert list(tmp_path.iterdir()) == [corpus]


def test_a_side_without_documents_is_an_error(corpus, model, tmp_path):
  with pytest.raises(errors.DataError, match='out/validation would have 0 t'):
    run(corpus, model, tmp_path / 'out', validation_fraction=1e-9)
  assert list(tmp_path.iterdir()) == [corpus]


def test_no_text_at_all_is_an_error(corpus, model, tmp_path):
  for path in corpus.iterdir():
    path.unlink()
  (corpus / 'a.jsonl').write_bytes(jsonl(['', '']))
  with pytest.raises(errors.DataError, match='out would have 0 tokens'):
    run(corpus, model, tmp_path / 'out')
  assert list(tmp_path.iterdir()) == [corpus]


@pytest.mark.parametrize('fraction', [0.0, 0.3])
def test_what_exists_is_kept(corpus, model, tmp_path, fraction):
  (tmp_path / 'out').mkdir()
  (tmp_path / 'out' / 'mine').write_text('mine')
  with pytest.raises(errors.DataError, match='never overwritten'):
    run(corpus, model, tmp_path / 'out', validation_fraction=fraction)
  assert [p.name for p in (tmp_path / 'out').iterdir()] == ['mine']


def test_a_lossy_tokenizer_is_refused(corpus, tmp_path, tmp_path_factory):
  prefix = tmp_path_factory.mktemp('lossy') / 'm'
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(TEXTS),
    model_prefix=str(prefix),
    vocab_size=60,
    hard_vocab_limit=False,
    minloglevel=2,
  )
  with pytest.raises(errors.DataError, match='lossy: newline, runs of spaces'):
    run(corpus, f'{prefix}.model', tmp_path / 'out')
  assert list(tmp_path.iterdir()) == [corpus]
  run(corpus, f'{prefix}.model', tmp_path / 'out', allow_lossy=True)
  assert len(records.open_dataset(tmp_path / 'out')) > 0


@pytest.mark.parametrize('fraction', [-0.1, 1.0])
def test_the_fraction_is_checked(corpus, model, tmp_path, fraction):
  with pytest.raises(errors.ConfigError, match='validation_fraction='):
    run(corpus, model, tmp_path / 'out', validation_fraction=fraction)


def test_shards_and_workers_give_the_same_dataset(
  corpus, model, tmp_path, capsys
):
  run(corpus, model, tmp_path / 'one', shuffle=True)
  for i in (1, 0):
    run(corpus, model, tmp_path / 'many', shuffle=True, shard=f'{i}/2')
  assert not (tmp_path / 'many').exists()
  said = capsys.readouterr().out.splitlines()
  assert 'shard 0/2 is done' in said[-1] and 'without --shard' in said[-1]
  run(corpus, model, tmp_path / 'many', shuffle=True, workers=2)
  one, many = (
    records.open_dataset(tmp_path / name).manifest for name in ('one', 'many')
  )
  assert one == many


@pytest.mark.parametrize('shard', ['2/2', '1', '-1/2', 'a/b', '0/0', '1/2/3'])
def test_a_shard_is_one_of_so_many(corpus, model, tmp_path, shard):
  with pytest.raises(errors.ConfigError, match=f'--shard={shard} is not i/n'):
    run(corpus, model, tmp_path / 'out', shard=shard)
  assert list(tmp_path.iterdir()) == [corpus]


def test_a_bucket_as_output_is_refused(corpus, model, tmp_path):
  with pytest.raises(errors.ConfigError, match='is in a bucket'):
    run(corpus, model, 'gs://bucket/data')
  assert list(tmp_path.iterdir()) == [corpus]


def test_bad_records_are_left_out_when_told(corpus, model, tmp_path, capsys):
  (corpus / 'z.jsonl').write_bytes(jsonl(['good']) + b'{"text": 1}\n')
  run(corpus, model, tmp_path / 'out', max_bad_records=1)
  assert '1 empty_text, 1 text_not_a_string' in capsys.readouterr().out
  line = (tmp_path / 'out' / 'bad_records.jsonl').read_text()
  assert json.loads(line)['path'] == str(corpus / 'z.jsonl')
  with pytest.raises(errors.DataError, match='longer than 30 bytes'):
    run(corpus, model, tmp_path / 'new', max_record_bytes=30)


def test_subsets_by_a_key(corpus, model, tmp_path):
  rows = [
    {'text': t, 'meta': {'set': f'set {i % 2}'}} for i, t in enumerate(TEXTS)
  ]
  (tmp_path / 'sets.jsonl').write_text('\n'.join(map(json.dumps, rows)))
  run(
    corpus,
    model,
    tmp_path / 'out',
    input=str(tmp_path / 'sets.jsonl'),
    split_by='meta.set',
  )
  for i in range(2):
    assert documents(tmp_path / 'out' / f'set {i}') == TEXTS[i::2]


def test_a_token_order_is_made_of_what_is_not_held_out(
  corpus, model, tmp_path, capsys
):
  output = tmp_path / 'out'
  run(corpus, model, output, validation_fraction=0.3, token_order='frequency')
  order = token_orders.load(output / 'token_order.npy')
  train = records.open_dataset(output / 'train')
  assert order.origin.dataset_fingerprints == (train.manifest.fingerprint,)
  assert (np.diff(train.unigram_counts()[order.ids()]) <= 0).all()


def test_a_token_order_of_one_dataset_lies_in_it(corpus, model, tmp_path):
  run(corpus, model, tmp_path / 'out', token_order='bytes')
  records.open_dataset(tmp_path / 'out')
  order = token_orders.load(tmp_path / 'out' / 'token_order.npy')
  assert order.origin.method == 'bytes' and len(order.rank_V) == 300
