"""Samples and warps are drawn where they should be, as they are."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.quiver import Quiver

from dreamwarp import SmoothPrior
from dreamwarp.core.samples import pixel_centers
from dreamwarp.report import sheets
from dreamwarp.report.sheets import Area
from dreamwarp.report.subject import (
    ANATOMICAL_SLICES,
    MAX_LANES,
    SLICES,
    Layout,
    Look,
    Section,
)
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
    sheets.draw_sample(axes, BOX, values, Look(0.0, 1.0, False))
    volume = values[0]
    expected = [volume[3], volume[:, 4], volume[:, :, 5]]
    for image, slice_ in zip(axes.images, expected, strict=True):
        np.testing.assert_array_equal(image.get_array(), slice_)
        left, right, bottom, top = image.get_extent()
        ratio = slice_.shape[1] / slice_.shape[0]
        assert (right - left) / (bottom - top) == pytest.approx(ratio)
    assert sheets.box_width(Layout(SHAPES[3]), 3.0) == pytest.approx(
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


def head() -> np.ndarray:
    """A volume (x, y, z) with marks at the patient's right, front and top."""
    volume = np.zeros((1, 7, 9, 11))
    volume[0, 6, 4, 5], volume[0, 3, 8, 5], volume[0, 3, 4, 10] = 1.0, 2.0, 3.0
    return volume


def test_patients_are_seen_as_in_radiology() -> None:
    _, axes = sheets.new_sheet(8, 8)
    look = Look(0.0, 3.0, False, is_anatomical=True)
    sheets.draw_sample(axes, BOX, head(), look)
    axial, coronal, sagittal = (3.0 * image.get_array() for image in axes.images)
    right, front, top = 1.0, 2.0, 3.0
    # Front up, and the patient's right on the left of the page.
    assert axial[0, 3] == front and axial[4, 0] == right
    assert coronal[0, 3] == top and coronal[5, 0] == right
    assert sagittal[0, 4] == top and sagittal[5, 0] == front
    assert (axial.shape, coronal.shape, sagittal.shape) == ((9, 7), (11, 7), (11, 9))


@pytest.mark.parametrize("section", [*SLICES, *ANATOMICAL_SLICES])
def test_points_lie_where_pixels_of_their_section_do(section: Section) -> None:
    volume = np.random.default_rng(0).random((1, 4, 5, 6))
    picture = section.cut(volume)[0]
    points = pixel_centers(picture.shape)
    (across,) = {0, 1, 2} - set(section.axes)
    n = volume.shape[1 + across]
    embedded = section.embed(points, 3, (n // 2 + 0.5) / n)
    indices = np.floor(embedded * volume.shape[1:]).astype(int)
    np.testing.assert_array_equal(volume[0][tuple(indices.T)], picture.ravel())
    np.testing.assert_allclose(section.project(embedded), points)
    # A small step in the domain is that step in the picture.
    step = np.random.default_rng(1).normal(size=embedded.shape)
    moved = section.project(embedded + step) - points
    np.testing.assert_allclose(section.project_vectors(step), moved, atol=1e-12)


def test_few_bright_voxels_do_not_darken_a_volume() -> None:
    for affine, known in ((None, False), (np.diag([2.0, 1.0, 3.0, 1.0]), True)):
        X = np.random.default_rng(0).normal(500.0, 10.0, (3, 12, 12, 12)).astype(np.int16)
        X[:, 5, 5, 5] = 30_000
        look = Look.of(X, 3, affine=affine, is_anatomical=known)
        assert 470 < look.low < 500 < look.high < 540 and not look.is_ink
        assert look.is_anatomical == known
    # Background is black on a screen, even if most is background; not all shades may be one.
    mask = np.zeros((1, 12, 12, 12), np.uint8)
    mask[0, 5, 5, 5] = 1
    assert Look.of(mask, 3) == Look(0.0, 1.0, False)


def test_channels_of_a_signal_have_lanes_of_their_own() -> None:
    values = np.array([[[0.0, 1.0, 0.5], [100.0, 300.0, 200.0]]])
    look = Look.of(values, 1)
    assert look.lanes == ((0.0, 1.0), (100.0, 300.0))
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_sample(axes, BOX, values[0], look)
    (lines,) = (c for c in axes.collections if isinstance(c, LineCollection))
    first, second = lines.get_segments()
    np.testing.assert_allclose(second[[0, 2, 1], 1] - first[[0, 2, 1], 1], BOX.height / 2)
    assert first[:, 1].max() < BOX.y + BOX.height / 2 < second[:, 1].min()
    # The same difference in both, in the units of each.
    moved = values[0] + [[0.1], [20.0]]
    sheets.draw_difference(axes, BOX, moved, values[0], look)
    areas = [c for c in axes.collections if isinstance(c, PolyCollection)]
    heights = [np.ptp(area.get_paths()[0].vertices[:, 1]) for area in areas]
    np.testing.assert_allclose(heights, 0.1 * BOX.height / 4)


def test_signals_of_many_channels_are_higher_and_show_some() -> None:
    look = Look.of(np.random.default_rng(0).random((2, 24, 30)), 1)
    assert len(look.lanes) == MAX_LANES
    assert look.layout((30,)).stretch > 3.0 > Look(0.0, 1.0, False).layout((30,)).stretch == 1.0
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_sample(axes, BOX, np.zeros((24, 30)), look)
    assert len(axes.collections[0].get_segments()) == MAX_LANES


def test_signals_without_lanes_are_a_line_for_each_channel() -> None:
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
    layout = Layout(SHAPES[ndim][-ndim:])
    sheets.draw_grid(axes, BOX, space, theta, layout)
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
    _, plane = sheets.planes(layout, BOX)[0]
    np.testing.assert_allclose((middle[:, 0] - plane.x) / plane.width, moved[:, 1], atol=1e-5)
    np.testing.assert_allclose((middle[:, 1] - plane.y) / plane.height, moved[:, 0], atol=1e-5)


def test_tessellation_draws_every_edge_once() -> None:
    space = SPACES[2]
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_tessellation(axes, BOX, space, Layout(SHAPES[2]))
    # Euler's formula for a triangulated square: edges = vertices + triangles - 1.
    n_edges = len(space.tessellation.vertices) + space.n_cells - 1
    assert len(axes.collections[0].get_segments()) == n_edges


def test_arrows_point_along_the_velocity() -> None:
    space = SPACES[2]
    theta = SmoothPrior(space).sample(1, 5)[0]
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_velocity(axes, BOX, space, theta, Layout(SHAPES[2]))
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
    layout = Layout(SHAPES[ndim][-ndim:])
    for theta in (np.zeros(space.dim), SmoothPrior(space).sample(1, 5)[0]):
        sheets.draw_velocity(axes, BOX, space, theta, layout)
        sheets.draw_tessellation(axes, BOX, space, layout)
    figure.draw_without_rendering()


def test_differences_have_a_sign() -> None:
    first, second = np.full((1, 2, 2), 200, np.uint8), np.full((1, 2, 2), 98, np.uint8)
    _, axes = sheets.new_sheet(8, 8)
    sheets.draw_difference(axes, BOX, first, second, Look(0.0, 255.0, True))
    np.testing.assert_allclose(axes.images[0].get_array(), 0.4)


def test_long_labels_are_shortened() -> None:
    assert sheets.shorten("abc") == "abc"
    assert sheets.shorten("a very long name indeed", 8) == "a very …"
