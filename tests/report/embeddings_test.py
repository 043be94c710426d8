"""Figures of an embedding, by hand."""

from etils import epath
import numpy as np
import pytest

from leviathan.report import embeddings


def test_an_isotropic_embedding():
  """Plus and minus each axis: no mean direction, all axes alike."""
  x_VD = np.concatenate([np.eye(4), -np.eye(4)]) * 3
  f = embeddings.figures_of(x_VD)
  assert f['norm_mean'] == pytest.approx(3.0)
  assert f['norm_std'] == pytest.approx(0.0)
  assert f['effective_rank'] == pytest.approx(4.0)
  assert f['spectrum'] == pytest.approx([0.25] * 4)
  # Of the 56 ordered pairs, 8 are opposite and the others at right angles.
  assert f['mean_cosine'] == pytest.approx(-8 / 56)


def test_an_embedding_of_one_direction():
  x_VD = np.outer([1.0, 2.0, 3.0], [0.0, 2.0])
  f = embeddings.figures_of(x_VD)
  assert f['mean_cosine'] == pytest.approx(1.0)
  assert f['effective_rank'] == pytest.approx(1.0)
  assert (f['norm_min'], f['norm_max']) == (2.0, 6.0)


def test_neighbours_are_by_angle_and_leave_the_token_out():
  x_VD = np.array([[1.0, 0.0], [9.0, 1.0], [0.0, 1.0], [-1.0, 0.0]])
  found = embeddings.neighbours(x_VD, 0)
  assert [i for i, _ in found] == [1, 2, 3]
  assert found[0][1] == pytest.approx(9 / np.sqrt(82))
  assert found[2][1] == pytest.approx(-1.0)


def test_the_picture_has_a_panel_a_head(tmp_path):
  rng = np.random.default_rng(0)
  named = {'lev': rng.normal(size=(50, 6)), 'tied': rng.normal(size=(50, 6))}
  curves = (np.linspace(0, 1, 9), rng.normal(size=(5, 70, 9)))
  with_curves = epath.Path(tmp_path / 'a.png')
  without = epath.Path(tmp_path / 'b.png')
  spectra = dict.fromkeys(named, [0.5, 0.3, 0.2])
  embeddings.draw(named, spectra, curves, with_curves)
  embeddings.draw(named, spectra, None, without)
  heights = []
  for path in (with_curves, without):
    data = path.read_bytes()
    assert data.startswith(b'\x89PNG')
    heights.append(int.from_bytes(data[20:24], 'big'))
  # Five heads fill two more rows of panels.
  assert heights[0] == 3 * heights[1]
