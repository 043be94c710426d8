"""Each variant is told from every other."""

from leviathan.report import palette


def test_no_two_variants_look_alike():
  names = [f'v{i}' for i in range(len(palette.LINES) * len(palette.COLOURS))]
  looks = [tuple(s.values()) for s in palette.styles(names).values()]
  assert len(set(looks)) == len(names)


def test_colours_and_markers_differ_before_lines_do():
  names = 'abcdefg'
  styles = palette.styles(names).values()
  for key in ('color', 'marker'):
    assert len({style[key] for style in styles}) == len(names)
  assert {style['linestyle'] for style in styles} == {'-'}


def test_a_variant_s_look_is_that_of_its_place():
  assert palette.styles('abc')['b'] == palette.styles('xb')['b']
