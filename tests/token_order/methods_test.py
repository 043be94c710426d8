"""Each way to order tokens."""

import json

from etils import epath
import numpy as np
import pytest

from leviathan.data import job as job_lib
from leviathan.data import manifest as manifest_lib
from leviathan.data import prepare
from leviathan.data import records
from leviathan.data import text
from leviathan.token_order import files
from leviathan.token_order import methods


@pytest.fixture(scope='module')
def dataset(tiny):
  return records.open_dataset(tiny.directory / 'train')


@pytest.mark.parametrize('method', files.METHODS)
def test_each_method_gives_every_token_a_rank(dataset, method):
  order = methods.make([dataset], method)
  found = dataset.manifest
  assert sorted(order.rank_V) == list(range(found.tokenizer.vocab_size))
  assert order.origin.method == method
  assert order.origin.tokenizer_sha256 == found.tokenizer.sha256
  assert order.origin.dataset_fingerprints == (found.fingerprint,)
  assert methods.make([dataset], method).sha256 == order.sha256


def test_the_tokenizer_s_order_changes_nothing(dataset):
  order = methods.make([dataset], 'tokenizer')
  np.testing.assert_array_equal(order.rank_V, np.arange(len(order.rank_V)))


def test_the_frequent_come_first(dataset):
  ids = methods.make([dataset], 'frequency').ids()
  assert (np.diff(dataset.unigram_counts()[ids]) <= 0).all()


def test_seeds_give_random_orders_of_their_own(dataset):
  first, second = (methods.make([dataset], 'random', s) for s in (0, 1))
  assert first.sha256 != second.sha256


class Words:
  """As much of a tokenizer as spelling needs."""

  pieces = (b'they', b' the', b'\xff', b'The', b'', b'a', b'the', b' The')
  vocab_size = len(pieces)

  def token_bytes(self, token_id):
    return self.pieces[token_id]


def test_spelling_ignores_case_and_the_space_first_then_not():
  ids = methods.spelling(Words())
  assert [Words.pieces[i] for i in ids] == [
    b'', b'a', b' The', b'The', b' the', b'the', b'they', b'\xff',
  ]  # fmt: skip


def test_orders_do_not_depend_on_the_workers_that_prepared(
  tiny, tmp_path, dataset
):
  source = tmp_path / 'text.jsonl'
  words = 'one two three four five six'.split()
  rng = np.random.default_rng(0)
  texts = [' '.join(rng.choice(words, 30)) for _ in range(200)]
  source.write_text(''.join(json.dumps({'text': t}) + '\n' for t in texts))
  found = set()
  for workers in (1, 2):
    job = job_lib.Job(
      output=epath.Path(tmp_path / str(workers)),
      inputs=(
        manifest_lib.Input(name=str(source), bytes=source.stat().st_size),
      ),
      tokenizer=f'spm:{tiny.tokenizer}',
      tokenizer_sha256=dataset.manifest.tokenizer.sha256,
      format=text.Format(),
      seq_len=16,
      block_bytes=1000,
    )
    prepare.run(job, workers)
    made = records.open_dataset(job.output)
    found.add(methods.make([made], 'distributional').sha256)
  assert len(found) == 1
