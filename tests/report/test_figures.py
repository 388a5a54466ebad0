"""Drawings show what the space says, in image orientation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver

from dreamwarp import WarpSpace
from dreamwarp.report import figures

SPACE = WarpSpace((2, 3))


@pytest.fixture
def theta() -> np.ndarray:
    return np.random.default_rng(1).normal(scale=0.2, size=SPACE.dim)


def segments(figure: Figure) -> list[np.ndarray]:
    (lines,) = (c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    return lines.get_segments()


def test_tessellation_draws_every_edge_once() -> None:
    figure = figures.new_figure(2, 2)
    figures.draw_tessellation(figure.subplots(), SPACE)
    # Euler's formula for a triangulated square: edges = vertices + triangles - 1.
    assert len(segments(figure)) == len(SPACE.tessellation.vertices) + SPACE.n_cells - 1


def test_grid_lines_run_where_the_flow_carries_them(theta: np.ndarray) -> None:
    figure = figures.new_figure(2, 2)
    figures.draw_grid(figure.subplots(), SPACE, theta, n_lines=5)
    lines = segments(figure)
    assert len(lines) == 10
    start = np.stack([np.full(200, 0.25), np.linspace(0, 1, 200)], axis=1)
    expected = SPACE.flow(theta, start)
    np.testing.assert_allclose(lines[1][:, ::-1], expected, atol=1e-6)


def test_arrows_point_along_the_velocity(theta: np.ndarray) -> None:
    figure = figures.new_figure(2, 2)
    axes = figure.subplots()
    figures.draw_velocity(axes, SPACE, theta, n_arrows=7)
    (arrows,) = (c for c in axes.collections if isinstance(c, Quiver))
    velocity = SPACE.velocity(theta, np.stack([arrows.Y, arrows.X], axis=1))
    drawn = np.stack([arrows.V, arrows.U], axis=1)
    largest = np.linalg.norm(velocity, axis=1).max()
    np.testing.assert_allclose(drawn, velocity * (1.5 / 7 / largest), atol=1e-12)


def test_a_field_at_rest_can_be_drawn() -> None:
    figure = figures.new_figure(2, 2)
    figures.draw_velocity(figure.subplots(), SPACE, np.zeros(SPACE.dim))
    figure.canvas.draw()


def test_points_lie_on_the_pixels_they_name() -> None:
    image = np.zeros((20, 30))
    image[4, 25] = 1.0
    figure = figures.new_figure(3, 2)
    axes = figure.subplots()
    figures.prepare_axes(axes, "title")
    figures.draw_image(axes, image)
    figures.draw_points(axes, [[4.5 / 20, 25.5 / 30]])
    (x, y) = axes.collections[0].get_offsets()[0]
    left, right, bottom, top = axes.images[0].get_extent()
    assert int((x - left) / (right - left) * 30) == 25
    assert int((y - top) / (bottom - top) * 20) == 4


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.pdf"])
def test_figures_are_saved_by_suffix(tmp_path: Path, name: str) -> None:
    path = figures.save_figure(figures.new_figure(1, 1), tmp_path / name)
    assert path.stat().st_size > 100
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_unknown_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in one of \.pdf, \.png, \.svg"):
        figures.save_figure(figures.new_figure(1, 1), tmp_path / "a.txt")


@pytest.mark.parametrize("cells", [(3,), (2, 2, 2)])
def test_only_squares_are_drawn_as_squares(cells: tuple[int, ...]) -> None:
    with pytest.raises(
        ValueError, match=f"must have 2 axes to be drawn as a square, got {len(cells)}"
    ):
        figures.draw_tessellation(figures.new_figure(1, 1).subplots(), WarpSpace(cells))


def test_drawing_leaves_global_state_alone(run_python: Any) -> None:
    code = "import sys, dreamwarp.report.figures; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert run_python("-c", code).returncode == 0
