"""Markdown that says what it was given, and stays readable as it is."""

import pytest

from leviathan.report import markdown


@pytest.mark.parametrize(
  ('text', 'escaped'),
  [
    # What a report is full of stays as it is.
    ('lev_ordered: -0.0312 [-0.0401, -0.0223], 96.9 % (n = 5)', None),
    ('--config.a.b=~/runs/x_1', None),
    ('a|b', r'a\|b'),
    ('<b> & `c` *d* \\', r'\<b> \& \`c\` \*d\* ' + '\\' * 2),
    ('_x_ y_z', r'\_x\_ y_z'),
    ('[a](b)', r'[a]\(b)'),
    ('two\nlines', 'two lines'),
  ],
)
def test_escape(text, escaped):
  assert markdown.escape(text) == (text if escaped is None else escaped)


def test_a_paragraph_keeps_its_code():
  text = '*a* `b *c* | d` <e> `f'
  assert markdown.paragraph(text) == r'\*a\* `b *c* | d` \<e> \`f'


def test_numbers_stand_to_the_right():
  rows = [
    ['1e-07', '1.50', 'not reached', 'x|y', ''],
    ['b', '-20,000 %', '.5', '1', ''],
    ['c', '+3 [1, 5]', '7 x', 'z', ''],
  ]
  assert markdown.table(['a', 'b', 'c', 'd', 'e'], rows).splitlines() == [
    '| a     |         b |           c | d    | e  |',
    '| ----- | --------: | ----------: | ---- | -- |',
    r'| 1e-07 |      1.50 | not reached | x\|y |    |',
    '| b     | -20,000 % |          .5 | 1    |    |',
    '| c     | +3 [1, 5] |         7 x | z    |    |',
  ]


def test_a_rule_to_the_right_has_a_dash():
  assert markdown.table(['', ''], [['', '1']]).splitlines()[1] == '| -- | -: |'
