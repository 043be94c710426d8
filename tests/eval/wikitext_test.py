"""Pages and their text as the harness has them; figures by arithmetic."""

import json
import math
import sys
import types

import pytest

from leviathan import errors
from leviathan.data import tokenizer as tokenizers
from leviathan.eval import requests
from leviathan.eval import wikitext

ONE = ' = One = \n \n First . \n = = Part = = \n \n Text = this = . \n'
TWO = ' = Two ( a book ) = \n \n Second , N 5 . \n \n'
RAW = f' \n{ONE}\n{TWO}'


@pytest.fixture(scope='module')
def data(shared):
  return wikitext.read(shared / 'data')


def test_a_page_begins_with_its_title():
  assert wikitext.split(RAW) == [ONE, TWO]


def test_the_test_file_has_62_pages_and_all_of_its_text(data, shared):
  assert len(data.pages) == 62
  text = (shared / 'data' / 'wikitext' / 'wiki.test.raw').read_text()
  assert ' \n' + '\n'.join(data.pages) == text
  assert data.sha256 == wikitext.SOURCE.files
  assert data.pages[1].startswith(' = Du Fu = \n')


@pytest.mark.parametrize(
  'raw, plain',
  [
    (' a guest @-@ starring role ', ' a guest-starring role '),
    ('1 @,@ 000 @.@ 5', '1,000.5'),
    ('He said : " so , no " . ', 'He said: "so, no". '),
    ('( in 2000 ) [ sic ] { x }', '(in 2000) [sic] {x}'),
    ("the boys ' house", "the boys' house"),
    ("in Teddy 's Story", "in Teddy's Story"),
    (' = = = Life = = = \n Born', ' === Life ===\nBorn'),
    ('20 \u00b0 C and N 5', '20\u00b0C and 1 5'),
  ],
)
def test_spaces_around_signs_go(raw, plain):
  assert wikitext.detokenize(raw) == plain


def test_all_pages_are_detokenized_as_by_the_harness(data):
  harness = pytest.importorskip(
    'lm_eval.tasks.wikitext.preprocess_wikitext', reason='extra `eval`'
  )
  scores = [requests.Scored(1.0, 1, True, 1, False)] * len(data.pages)
  found, samples = wikitext.figures(data.pages, scores)
  for page, sample in zip(data.pages, samples, strict=True):
    doc = {'page': page}
    assert wikitext.detokenize(page) == harness.wikitext_detokenizer(doc)
    theirs = harness.process_results(doc, (-1.0,))
    assert theirs['word_perplexity'] == (-1.0, sample['words'])
    assert theirs['bits_per_byte'] == (-1.0, sample['bytes'])
  assert found['words'] == sum(sample['words'] for sample in samples)


def test_every_token_of_a_page_is_scored_after_eos(tiny):
  tokenizer = tokenizers.load(f'spm:{tiny.tokenizer}')
  pages = wikitext.split(RAW)
  for page, pair in zip(pages, wikitext.encode(tokenizer, pages), strict=True):
    assert (pair.ids[0], pair.start) == (tokenizer.eos_id, 1)
    assert tokenizer.decode(pair.ids[1:]) == wikitext.detokenize(page)


def test_figures_by_hand():
  pages = [' = A = \n b', ' = \u00c9 = \n c d \n']
  scores = [
    requests.Scored(6.0, 3, False, 1, False),
    requests.Scored(10.0, 5, False, 2, True),
  ]
  found, samples = wikitext.figures(pages, scores)
  # As re.split counts them, with what is empty before and after.
  assert [sample['words'] for sample in samples] == [5, 7]
  assert [sample['bytes'] for sample in samples] == [10, 15]
  assert [sample['title'] for sample in samples] == ['A', '\u00c9']
  assert found['perplexity'] == pytest.approx(math.exp(16 / 8))
  assert found['word_perplexity'] == pytest.approx(math.exp(16 / 12))
  assert found['byte_perplexity'] == pytest.approx(math.exp(16 / 25))
  assert found['bits_per_byte'] == pytest.approx(16 / 25 / math.log(2))
  # Both pages have two nats a token: there is no error in that.
  assert found['perplexity_stderr'] == pytest.approx(0.0)
  # Residuals of 6 - 10 r and 10 - 15 r at r = 16 / 25 are -0.4 and 0.4; their
  # sum's standard error is sqrt(2 * 0.32).
  assert found['bits_per_byte_stderr'] == pytest.approx(
    math.sqrt(0.64) / 25 / math.log(2)
  )
  assert (found['pages'], found['truncated']) == (2, 1)
  assert json.loads(json.dumps(samples))[1]['windows'] == 2


def test_the_hubs_pages_are_the_same(data, monkeypatch):
  rows = [
    json.loads(line) for line in wikitext.hub_rows(data.pages).split('\n')[:-1]
  ]
  asked = []
  monkeypatch.setitem(
    sys.modules,
    'datasets',
    types.SimpleNamespace(
      load_dataset=lambda path, name, split: asked.append(name) or rows
    ),
  )
  assert wikitext.read(None).pages == data.pages
  assert asked == ['wikitext-2-raw-v1']


def test_the_protocol_says_which_file_it_was(data):
  found = wikitext.protocol(data)
  assert found['official'] and found['pages'] == 62
  assert found['sha256'] == {'wiki.test.raw': data.sha256['wiki.test.raw']}


def test_text_that_is_not_utf8_is_refused(tmp_path):
  (tmp_path / 'wiki.test.raw').write_bytes(b' = A = \n \xff')
  with pytest.raises(errors.DataError, match='is not UTF-8'):
    wikitext.read(tmp_path)
