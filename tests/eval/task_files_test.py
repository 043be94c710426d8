"""Official files are found and read strictly; the hub's rows are the same."""

import hashlib
import json
import sys
import types

import pytest

from leviathan import errors
from leviathan.eval import task_files
from leviathan.eval import tasks

COUNTS = {
  'hellaswag': 10042,
  'arc_easy': 2376,
  'arc_challenge': 1172,
  'piqa': 1838,
  'winogrande': 1267,
  'lambada': 5153,
}
QUESTION = {
  'stem': 'Which\u2028one?',
  'choices': [
    {'text': 'this', 'label': '1'},
    {'text': 'that \U0001f600', 'label': '2'},
    {'text': 'none', 'label': '3'},
  ],
}
STORY = {
  'ind': 4,
  'activity_label': 'Baking',
  'ctx_a': 'A man.',
  'ctx_b': 'he',
  'ctx': 'A man. he',
  'split': 'val',
  'split_type': 'indomain',
  'endings': ['sits.', 'stands.', 'goes.', 'comes.'],
  'source_id': 'x~1',
}
# Rows as they are in the official file, and on the hub.
OFFICIAL = {
  'arc_easy': {'id': 'Q1', 'question': QUESTION, 'answerKey': '2'},
  'hellaswag': STORY | {'label': 3},
  'piqa': {'goal': 'Boil?', 'sol1': 'heat', 'sol2': 'cool', 'label': 1},
  'winogrande': {
    'qID': 'X-1',
    'sentence': 'Ann met Bea as _ left.',
    'option1': 'Ann',
    'option2': 'Bea',
    'answer': '2',
  },
  'lambada': {'text': 'He said hi to Ann'},
}
OFFICIAL['arc_challenge'] = OFFICIAL['arc_easy']
HUB = OFFICIAL | {
  'arc_easy': {
    'id': 'Q1',
    'question': QUESTION['stem'],
    'choices': {
      'text': ['this', 'that \U0001f600', 'none'],
      'label': ['1', '2', '3'],
    },
    'answerKey': '2',
  },
  'hellaswag': STORY | {'label': '3'},
  'winogrande': {
    key: value for key, value in OFFICIAL['winogrande'].items() if key != 'qID'
  },
}
HUB['arc_challenge'] = HUB['arc_easy']
PIQA = {key: OFFICIAL['piqa'][key] for key in ('goal', 'sol1', 'sol2')}


def write(path, *rows):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))


def read(name, directory):
  return task_files.read(tasks.TASKS[name], directory)


def refused(name, directory):
  with pytest.raises(errors.DataError) as e:
    read(name, directory)
  assert '\n' not in str(e.value)
  return str(e.value)


@pytest.mark.parametrize('name', COUNTS)
def test_official_files_are_found_and_read(shared, name):
  data = read(name, shared / 'data')
  assert len(data.items) == len(data.rows) == COUNTS[name]
  assert len({item.id for item in data.items}) == COUNTS[name]
  assert data.sha256 == tasks.TASKS[name].source.files
  assert data.source in data.sha256


def test_their_choices(shared):
  easy = read('arc_easy', shared / 'data').items
  assert {len(item.pairs) for item in easy} == {3, 4, 5}
  stories = read('hellaswag', shared / 'data').items
  texts = [text for item in stories for pair in item.pairs for text in pair]
  assert not any('[title]' in text or '[step]' in text for text in texts)
  assert min(min(item.lengths) for item in stories) > 0


@pytest.mark.parametrize('name', COUNTS)
def test_rows_go_to_the_hubs_schema_and_back(shared, name, hub):
  task, data = tasks.TASKS[name], read(name, shared / 'data')
  # A step that is odd, so that labels of all kinds are met.
  rows = data.rows[:: len(data.rows) // 99]
  lines = task_files.hub_rows(task, rows).split('\n')
  hub([json.loads(line) for line in lines if line])
  assert read(name, None).items == [
    item._replace(id=str(i) if item.id.isdigit() else item.id)
    for i, item in enumerate(data.items[:: len(data.rows) // 99])
  ]


@pytest.fixture
def hub(monkeypatch):
  """(rows, or what is raised) -> what the hub was asked for."""

  def serve(rows):
    asked = []

    def load_dataset(path, name, split):
      asked.append((path, name, split))
      if isinstance(rows, Exception):
        raise rows
      return rows

    library = types.SimpleNamespace(load_dataset=load_dataset)
    monkeypatch.setitem(sys.modules, 'datasets', library)
    return asked

  return serve


@pytest.mark.parametrize('name', COUNTS)
def test_the_hubs_rows_give_the_official_items(tmp_path, name, hub):
  task = tasks.TASKS[name]
  file = next(iter(task.source.files))
  write(tmp_path / name / file, *2 * [OFFICIAL[name]])
  if name == 'piqa':
    (tmp_path / name / 'valid-labels.lst').write_text('1\n1')
  asked = hub(2 * [HUB[name]])
  data = read(name, None)
  assert data.items == read(name, tmp_path).items
  assert asked == [task.source.hub]
  assert list(data.sha256) == [data.source]
  converted = json.loads(task_files.hub_rows(task, [OFFICIAL[name]]))
  assert converted | HUB[name] == converted
  hub([HUB[name]])
  assert read(name, None).sha256 != data.sha256


def test_without_the_library_or_the_network_one_line_says_what_to_do(
  hub, monkeypatch
):
  hub(ConnectionError('no route\nto host'))
  said = refused('piqa', None)
  assert 'baber/piqa, validation cannot be had' in said
  assert 'ConnectionError: no route); give --task_data=DIR' in said
  monkeypatch.setitem(sys.modules, 'datasets', None)
  with pytest.raises(errors.ConfigError, match=r"install 'leviathan\[eval\]'"):
    read('piqa', None)


def test_files_are_found_at_any_depth_by_the_folder_they_are_in(
  tmp_path, monkeypatch
):
  folder = tmp_path / 'a' / 'PIQA-1.0' / 'data'
  write(folder / 'valid.jsonl', PIQA, PIQA)
  (folder / 'valid-labels.lst').write_text('1\n0\n')
  write(tmp_path / 'snli' / 'valid.jsonl', {'other': 1})
  write(tmp_path / '.cache' / 'piqa' / 'valid.jsonl', {'other': 1})
  data = read('piqa', tmp_path)
  assert [item.gold for item in data.items] == [1, 0]
  assert data.sha256 == {
    name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
    for name in ('valid.jsonl', 'valid-labels.lst')
  }
  # The folder that is given may be the one that has the name.
  assert read('piqa', folder.parent).items == data.items
  monkeypatch.chdir(folder.parent)
  assert read('piqa', '.').items == data.items


def test_what_is_not_found_is_named(tmp_path):
  said = refused('hellaswag', tmp_path / 'x')
  assert f'--task_data={tmp_path}/x is not a folder' in said
  said = refused('hellaswag', tmp_path)
  assert f'no hellaswag_val.jsonl below {tmp_path}; put the' in said
  said = refused('winogrande', tmp_path)
  assert "in a folder with 'winogrande' in its name" in said


def test_two_files_are_not_chosen_from(tmp_path):
  for name in ('a', 'b'):
    write(tmp_path / name / 'lambada_test.jsonl', OFFICIAL['lambada'])
  said = refused('lambada', tmp_path)
  assert '2 files lambada_test.jsonl' in said
  assert f'{tmp_path}/a/lambada_test.jsonl, {tmp_path}/b/' in said
  assert len(read('lambada', tmp_path / 'b').items) == 1


@pytest.mark.parametrize(
  'lines, said',
  [
    (b'{"text": "a b"}\n{"text": ', ':2 is not valid JSON'),
    (b'{"text": "a b"}\n\n{"text": "a b"}\n', ':2 is empty'),
    (b'{"text": "a b"}\n{"text": "\xff b"}\n', ':2 is not UTF-8'),
    (b'["a b"]\n', ':1 is no JSON object'),
    (b'{"text": "a b"}\n{"Text": "a b"}', ":2 has no key 'text', only Text"),
    (b'\n', ' holds nothing'),
  ],
)
def test_a_damaged_line_is_named(tmp_path, lines, said):
  file = tmp_path / 'lambada_test.jsonl'
  file.write_bytes(lines)
  assert refused('lambada', tmp_path).startswith(f'{file}{said}')


def test_lines_end_at_line_feeds_alone(tmp_path):
  text = 'a\u2028b\x85c d'
  row = json.dumps({'text': text}, ensure_ascii=False)
  (tmp_path / 'lambada_test.jsonl').write_text(f'{row}\r\n{row}', newline='')
  items = read('lambada', tmp_path).items
  assert [item.pairs for item in items] == 2 * [(('a\u2028b\x85c', ' d'),)]


@pytest.mark.parametrize(
  'labels, said',
  [
    (None, "valid.jsonl has rows without 'label', and there is no valid-lab"),
    ('0\n', 'valid-labels.lst has 1 labels for the 2 rows of valid.jsonl'),
    ('0\n1\n1\n', 'has 3 labels for the 2 rows'),
    ('0\n2\n', "valid-labels.lst:2 is '2'; one of 0, 1 is wanted"),
    ('0\n\n', 'valid-labels.lst:2 is empty'),
  ],
)
def test_labels_must_fit_the_rows(tmp_path, labels, said):
  write(tmp_path / 'piqa' / 'valid.jsonl', PIQA, PIQA)
  if labels is not None:
    (tmp_path / 'piqa' / 'valid-labels.lst').write_text(labels)
  assert said in refused('piqa', tmp_path)


def test_labels_that_are_there_twice_must_agree(tmp_path):
  folder = tmp_path / 'WinoGrande'
  write(folder / 'dev.jsonl', *2 * [OFFICIAL['winogrande']])
  alone = read('winogrande', tmp_path)
  assert list(alone.sha256) == ['dev.jsonl']
  (folder / 'dev-labels.lst').write_text('2\n2\n')
  assert read('winogrande', tmp_path).items == alone.items
  (folder / 'dev-labels.lst').write_text('2\n1\n')
  said = refused('winogrande', tmp_path)
  assert "dev-labels.lst:2 is '1', and dev.jsonl has '2' under 'answer'" in said
