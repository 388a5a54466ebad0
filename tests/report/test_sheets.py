"""Samples and warps are drawn where they should be, as they are."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.quiver import Quiver

from dreamwarp import SmoothPrior
from dreamwarp.report import sheets
from dreamwarp.report.sheets import Area
from dreamwarp.report.subject import Look
from tests.report.cases import SHAPES, SPACES

BOX = Area(1.0, 2.0, 4.0, 3.0)


def test_whole_numbers_are_drawn_on_their_full_scale() -> None:
    look = Look.of(np.array([[30, 200]], np.uint8))
    assert look == Look(0.0, 255.0, False)
    assert look.scale(51) == pytest.approx(0.2)


def test_a_background_makes_ink() -> None:
    X = np.zeros((3, 8, 8))
    X[:, 2:5, 2:5] = 7.0
    assert Look.of(X) == Look(0.0, 7.0, True)
    assert not Look.of(np.linspace(0, 1, 64).reshape(1, 8, 8)).is_ink
    assert Look.of(np.zeros((2, 4))).high == 1.0


def test_images_are_drawn_into_their_box() -> None:
    values = np.random.default_rng(0).integers(0, 256, (1, 5, 7)).astype(np.uint8)
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_sample(axes, BOX, values, Look.of(values))
    (image,) = axes.images
    np.testing.assert_allclose(image.get_array(), values[0] / 255.0)
    # With square pixels, from the top left corner of the box.
    assert image.get_extent() == pytest.approx([1.0, 5.0, 2.0 + 4.0 * 5 / 7, 2.0])


def test_colours_are_drawn_in_colour() -> None:
    values = np.random.default_rng(0).integers(0, 256, (3, 5, 7)).astype(np.uint8)
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_sample(axes, BOX, values, Look.of(values))
    np.testing.assert_allclose(axes.images[0].get_array(), np.moveaxis(values, 0, -1) / 255.0)


def test_volumes_are_three_slices_through_the_middle() -> None:
    values = np.random.default_rng(0).random((1, *SHAPES[3]))
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_sample(axes, BOX, values, Look(0.0, 1.0, True))
    volume = values[0]
    expected = [volume[3], volume[:, 4], volume[:, :, 5]]
    for image, slice_ in zip(axes.images, expected, strict=True):
        np.testing.assert_array_equal(image.get_array(), slice_)
        left, right, bottom, top = image.get_extent()
        ratio = slice_.shape[1] / slice_.shape[0]
        assert (right - left) / (bottom - top) == pytest.approx(ratio)
    assert sheets.box_width(SHAPES[3], 3.0) == pytest.approx(
        axes.images[-1].get_extent()[1] - BOX.x
    )


def test_slices_have_the_proportions_of_their_voxels() -> None:
    values, look = np.zeros((1, 6, 6, 3)), Look(0.0, 1.0, True, spacing=(1.0, 1.0, 4.0))
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_sample(axes, BOX, values, look)
    sheets.draw_difference(axes, BOX, values, values, look)
    for image, ratio in zip(axes.images, 2 * (2.0, 2.0, 1.0), strict=True):
        left, right, bottom, top = image.get_extent()
        assert (right - left) / (bottom - top) == pytest.approx(ratio)


def test_signals_are_a_line_for_each_channel() -> None:
    values = np.array([[0.0, 1.0, 0.5], [1.0, 1.0, 0.0]])
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_sample(axes, BOX, values, Look(0.0, 1.0, False))
    (lines,) = (c for c in axes.collections if isinstance(c, LineCollection))
    first, second = (segment for segment in lines.get_segments())
    np.testing.assert_allclose(first[:, 0], 1.0 + 4.0 * np.array([1, 3, 5]) / 6)
    assert first[0, 1] > first[2, 1] > first[1, 1]  # upside down
    assert second[0, 1] == first[1, 1]


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_grids_are_moved_by_the_flow(ndim: int) -> None:
    space = SPACES[ndim]
    theta = SmoothPrior(space).sample(1, 5)[0]
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_grid(axes, BOX, space, theta, SHAPES[ndim][-ndim:])
    lines = [c for c in axes.collections if isinstance(c, LineCollection)]
    if ndim == 1:
        curve = lines[-1].get_segments()[0]
        points = (curve[:, 0] - BOX.x) / BOX.width
        moved = space.flow(theta, points[:, None])[:, 0]
        np.testing.assert_allclose(1.0 - (curve[:, 1] - BOX.y) / BOX.height, moved, atol=1e-5)
        return
    assert len(lines) == (1 if ndim == 2 else 3)
    # The middle row of the first plane.
    middle = lines[0].get_segments()[sheets.N_LINES // 2]
    n = len(middle)
    row = np.full((n, ndim), 0.5)
    row[:, -1] = np.linspace(0.0, 1.0, n)
    moved = space.flow(theta, row)[:, -2:]
    plane = sheets.planes(SHAPES[ndim][-ndim:], BOX)[0].box
    np.testing.assert_allclose((middle[:, 0] - plane.x) / plane.width, moved[:, 1], atol=1e-5)
    np.testing.assert_allclose((middle[:, 1] - plane.y) / plane.height, moved[:, 0], atol=1e-5)


def test_tessellation_draws_every_edge_once() -> None:
    space = SPACES[2]
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_tessellation(axes, BOX, space, SHAPES[2])
    # Euler's formula for a triangulated square: edges = vertices + triangles - 1.
    n_edges = len(space.tessellation.vertices) + space.n_cells - 1
    assert len(axes.collections[0].get_segments()) == n_edges


def test_arrows_point_along_the_velocity() -> None:
    space = SPACES[2]
    theta = SmoothPrior(space).sample(1, 5)[0]
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_velocity(axes, BOX, space, theta, SHAPES[2])
    (arrows,) = (c for c in axes.collections if isinstance(c, Quiver))
    size = np.array([BOX.height, BOX.width])
    points = (np.stack([arrows.Y, arrows.X], axis=1) - (BOX.y, BOX.x)) / size
    velocity = space.velocity(theta, points)
    drawn = np.stack([arrows.V, arrows.U], axis=1) / size
    largest = np.linalg.norm(velocity, axis=1).max()
    np.testing.assert_allclose(drawn, velocity * (1.5 / sheets.N_ARROWS / largest), atol=1e-6)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_fields_and_cells_can_be_drawn(ndim: int) -> None:
    space = SPACES[ndim]
    figure, axes = sheets.new_sheet(8, 8)
    shape = SHAPES[ndim][-ndim:]
    for theta in (np.zeros(space.dim), SmoothPrior(space).sample(1, 5)[0]):
        sheets.draw_velocity(axes, BOX, space, theta, shape)
        sheets.draw_tessellation(axes, BOX, space, shape)
    figure.draw_without_rendering()


def test_differences_have_a_sign() -> None:
    first, second = np.full((1, 2, 2), 200, np.uint8), np.full((1, 2, 2), 98, np.uint8)
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_difference(axes, BOX, first, second, Look(0.0, 255.0, True))
    np.testing.assert_allclose(axes.images[0].get_array(), 0.4)


def test_long_labels_are_shortened() -> None:
    assert sheets.shorten("abc") == "abc"
    assert sheets.shorten("a very long name indeed", 8) == "a very …"
