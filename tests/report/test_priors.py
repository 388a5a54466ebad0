"""Pictures of priors show their draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from dreamwarp import Warp, WarpSpace
from dreamwarp.align import GMRFPrior, SmoothPrior
from dreamwarp.report.priors import draw_prior

SPACE = WarpSpace((3, 2))
IMAGE = np.random.default_rng(0).integers(0, 256, size=(12, 16)).astype(np.uint8)


def grids(figure: Figure) -> list[np.ndarray]:
    """Lines of every grid: (lines, points, 2) of column, row."""
    found = [c for axes in figure.axes for c in axes.collections if isinstance(c, LineCollection)]
    return [np.array(lines.get_segments()) for lines in found]


def test_grids_are_those_of_the_draws() -> None:
    prior = SmoothPrior(SPACE)
    figure = draw_prior(prior, n=3, seed=5)
    still, *moved = grids(figure)
    assert len(figure.axes) == 4
    assert len(moved) == 3
    for theta, grid in zip(prior.sample(3, 5), moved, strict=True):
        expected = SPACE.flow(theta, still.reshape(-1, 2)[:, ::-1])
        np.testing.assert_allclose(grid.reshape(-1, 2)[:, ::-1], expected, atol=1e-5)


def test_images_are_warped_by_the_draws() -> None:
    prior = GMRFPrior(SPACE)
    figure = draw_prior(prior, image=IMAGE, n=2)
    assert len(figure.axes) == 6
    still, *warped = (axes.images[0].get_array() for axes in figure.axes if axes.images)
    scaled = (IMAGE - float(IMAGE.min())) / (float(IMAGE.max()) - float(IMAGE.min()))
    np.testing.assert_allclose(still, scaled)
    np.testing.assert_allclose(warped, Warp(SPACE, prior.sample(2)).image(scaled[None]))


@pytest.mark.parametrize("boundary", ["zero", "slip", "free", "periodic"])
def test_grids_stay_inside_their_axes(boundary: Any) -> None:
    prior = SmoothPrior(WarpSpace((3, 3), boundary), displacement=0.3)
    figure = draw_prior(prior, image=IMAGE, n=3)
    low, high = figure.axes[0].get_xlim()
    assert all(axes.get_xlim() == (low, high) for axes in figure.axes)
    assert all(axes.get_ylim() == (high, low) for axes in figure.axes)
    points = np.concatenate([grid.reshape(-1, 2) for grid in grids(figure)])
    assert low - 1e-3 < points.min() and points.max() < high + 1e-3
    assert (low < -0.01) == (boundary in ("free", "periodic"))


def test_signals_are_drawn_as_curves() -> None:
    space = WarpSpace((4,))
    prior, signal = SmoothPrior(space), np.sin(np.linspace(0.0, 9.0, 50))
    figure = draw_prior(prior, image=signal, n=2)
    assert len(figure.axes) == 6
    moved = figure.axes[1].lines[1].get_xydata()
    theta = prior.sample(2)[0]
    np.testing.assert_allclose(moved[:, 1:], space.flow(theta, moved[:, :1]), atol=1e-6)
    scaled = (signal - signal.min()) / np.ptp(signal)
    np.testing.assert_allclose(
        figure.axes[4].lines[0].get_ydata(), Warp(space, theta).signal(scaled)
    )


def test_the_title_says_which_prior() -> None:
    prior = SmoothPrior(SPACE, displacement=0.07)
    figure = draw_prior(prior, n=1)
    assert figure.get_suptitle() == repr(prior)
    figure.canvas.draw()


def test_a_constant_image_can_be_drawn() -> None:
    draw_prior(SmoothPrior(SPACE), image=np.ones((4, 4)), n=1).canvas.draw()


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros(4), r"`image` must have 2 axes, as the space of the prior has, got shape \(4,\)"),
        (np.zeros((0, 4)), r"`image` must have 2 axes, .*, got shape \(0, 4\)"),
        (np.full((4, 4), np.nan), "`image` must be finite, got NaN or infinity"),
    ],
)
def test_bad_images_are_refused(image: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        draw_prior(SmoothPrior(SPACE), image=image)


def test_volumes_can_not_be_drawn() -> None:
    with pytest.raises(ValueError, match="must have 1 or 2 axes to be drawn, got 3"):
        draw_prior(GMRFPrior(WarpSpace((2, 1, 1))))
