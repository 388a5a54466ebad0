"""What a prior holds plausible, as pictures of its draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from dreamwarp.align.prior import Prior
from dreamwarp.report import figures
from dreamwarp.space import WarpSpace
from dreamwarp.space.resample import check_values
from dreamwarp.space.warp import Warp

Array = NDArray[np.float64]

# Inches.
PANEL, PANEL_1D = (1.7, 1.7), (2.2, 1.6)


def draw_prior(
    prior: Prior, *, image: ArrayLike | None = None, n: int = 6, seed: int = 0
) -> Figure:
    """Draws of a prior, one per column: a regular grid moved by each, and an image warped by it.

    For signals: where each carries the points of the unit interval, and the signal warped by it.
    The first column shows the grid, and the image, as they are.

    Parameters
    ----------
    prior : Prior
        Of a space with 1 or 2 axes.
    image : (rows, columns) or (length,), optional
        Integers of any kind, or floating-point numbers. Low is paper, high is ink.
    n : int
        How many draws.
    seed : int

    Returns
    -------
    matplotlib.figure.Figure
    """
    space = prior.space
    if space.ndim > 2:
        raise ValueError(f"`prior` must have 1 or 2 axes to be drawn, got {space.ndim}: {space!r}.")
    theta = np.concatenate([np.zeros((1, space.dim)), prior.sample(n, seed)])
    samples = None if image is None else _warped(prior, theta, image)
    width, height = PANEL if space.ndim == 2 else PANEL_1D
    n_rows = 1 if samples is None else 2
    figure = figures.new_figure(width * len(theta), height * n_rows + 0.4)
    figure.suptitle(repr(prior), fontsize=10, color=figures.INK)
    columns = figure.subplots(n_rows, len(theta), squeeze=False).T
    for k, axes in enumerate(columns):
        title = "as it is" if k == 0 else f"draw {k - 1}"
        sample = None if samples is None else samples[k]
        draw = _draw_plane if space.ndim == 2 else _draw_line
        draw(list(axes), space, theta[k], sample, title)
    if space.ndim == 2:
        _leave_room(columns.ravel(), _excursion(space, theta))
    return figure


def _warped(prior: Prior, theta: Array, image: ArrayLike) -> Array:
    """An image warped by every θ, from 0 to 1."""
    values = check_values("image", image)
    ndim = prior.space.ndim
    if values.ndim != ndim or values.size == 0:
        raise ValueError(
            f"`image` must have {ndim} {'axis' if ndim == 1 else 'axes'}, as the space of the "
            f"prior has, got shape {values.shape}."
        )
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("`image` must be finite, got NaN or infinity.")
    values -= values.min()
    return Warp(prior.space, theta).image(values / (values.max() or 1.0))


def _draw_plane(
    axes: Sequence[Axes], space: WarpSpace, theta: Array, sample: Array | None, title: str
) -> None:
    figures.prepare_axes(axes[0], title)
    figures.draw_grid(axes[0], space, theta)
    if sample is not None:
        figures.prepare_axes(axes[1])
        figures.draw_image(axes[1], sample)


def _leave_room(axes: Iterable[Axes], margin: float) -> None:
    for each in axes:
        each.set_xlim(-margin, 1.0 + margin)
        each.set_ylim(1.0 + margin, -margin)


def _excursion(space: WarpSpace, theta: Array) -> float:
    """How far warps carry points of the border out of the domain."""
    along = np.linspace(0.0, 1.0, figures.POINTS_PER_LINE)
    sides = [np.insert(along[:, None], axis, side, axis=1) for axis in (0, 1) for side in (0, 1)]
    moved = space.flow(theta, np.concatenate(sides))
    return float(max(0.0, -moved.min(), moved.max() - 1.0))


def _draw_line(
    axes: Sequence[Axes], space: WarpSpace, theta: Array, sample: Array | None, title: str
) -> None:
    points = np.linspace(0.0, 1.0, figures.POINTS_PER_LINE)
    moved = space.flow(theta, points[:, None])[:, 0]
    _prepare_interval(axes[0], title)
    axes[0].plot(points, points, color=figures.FAINT, linewidth=0.8)
    axes[0].plot(points, moved, color=figures.GRID, linewidth=1.2)
    if sample is not None:
        _prepare_interval(axes[1])
        centers = (np.arange(len(sample)) + 0.5) / len(sample)
        axes[1].plot(centers, sample, color=figures.INK, linewidth=1.0)


def _prepare_interval(axes: Axes, title: str = "") -> None:
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(-0.05, 1.05)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(figures.FAINT)
    if title:
        axes.set_title(title, fontsize=10, color=figures.INK)
