"""Drawings of a warp and of what it does to images.

Each function draws into axes it is given, so that figures are put together from them, and none
touches matplotlib's global state. Axes show the unit square as images are shown: rows run down,
columns to the right. Everything is drawn for T^θ as it moves points. The content of a warped image
moves by the inverse; pass -θ to draw that.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.files import write_beside
from dreamwarp.space import WarpSpace

INK = "#22283a"
FAINT = "#d5d9e0"
GRID = "#2f6f9f"
MARKS = ("#d1495b", "#e09f3e", "#2a9d8f", "#8053a0")

INK_ON_PAPER = LinearSegmentedColormap.from_list("ink on paper", ["white", INK])
SPEED = LinearSegmentedColormap.from_list("speed", ["#a9cbe3", GRID, "#14304a"])

SPEED_FROM_WHITE = LinearSegmentedColormap.from_list("from white", ["#f2f6fa", GRID, "#14304a"])
# Of classes: hues that differ in lightness too, so that they are told apart without colour.
CLASS_SHADES = LinearSegmentedColormap.from_list(
    "classes",
    ["#20305c", "#2f6f9f", "#2a9d8f", "#8ab17d", "#e0b13e", "#e07a3e", "#d1495b", "#8053a0"],
)

SUFFIXES = (".pdf", ".png", ".svg")

# A grid line bends smoothly inside a cell, so this many points make it look smooth.
POINTS_PER_LINE = 200


def new_figure(width: float, height: float) -> Figure:
    """Figure of a size in inches, without a window."""
    margins = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    return Figure(figsize=(width, height), facecolor="white", layout=margins)


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 150) -> Path:
    """Write a figure whole or not at all; the suffix of ``path`` says the format."""
    target = check_picture_path(path)
    with write_beside(target) as temporary:
        figure.savefig(temporary, dpi=dpi)
    return target


def check_picture_path(path: str | os.PathLike[str]) -> Path:
    """``path``, if a picture can have that name."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"`{target}` must end in one of {', '.join(SUFFIXES)}, which says the format of the "
            "picture."
        )
    return target


def shade(place: int, n: int) -> Any:
    """A colour for one of ``n`` classes."""
    return CLASS_SHADES(place / max(1, n - 1))


def plain_axes(axes: Axes) -> None:
    """Quiet spines and small, dark ticks, for axes with numbers on them."""
    for side, spine in axes.spines.items():
        spine.set_color(FAINT)
        spine.set_visible(side in ("left", "bottom"))
    axes.tick_params(labelsize=8.5, colors=INK, length=3, color=FAINT, labelcolor=INK)


def prepare_axes(axes: Axes, title: str = "") -> None:
    """Show the unit square with rows running down, and nothing round it."""
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(1.0, 0.0)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(FAINT)
    if title:
        axes.set_title(title, fontsize=10, color=INK)


def draw_tessellation(axes: Axes, space: WarpSpace, *, color: str = FAINT) -> None:
    """Edges of the triangles on which velocities are affine."""
    _check_square(space)
    tessellation = space.tessellation
    corners = tessellation.simplices[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
    edges = np.unique(np.sort(corners, axis=1), axis=0)
    _draw_lines(axes, tessellation.vertices[edges], color=color, linewidth=0.6)


def draw_grid(
    axes: Axes, space: WarpSpace, theta: ArrayLike, *, n_lines: int = 17, color: str = GRID
) -> None:
    """Where T^θ carries a regular grid of ``n_lines`` by ``n_lines`` lines."""
    _check_square(space)
    along = np.linspace(0.0, 1.0, POINTS_PER_LINE)
    rows = np.stack(np.meshgrid(np.linspace(0.0, 1.0, n_lines), along, indexing="ij"), axis=-1)
    lines = np.concatenate([rows, rows[..., ::-1]])
    moved = space.flow(theta, lines.reshape(-1, 2)).reshape(lines.shape)
    _draw_lines(axes, moved, color=color, linewidth=0.8)


def draw_velocity(axes: Axes, space: WarpSpace, theta: ArrayLike, *, n_arrows: int = 16) -> None:
    """The velocity field v^θ as ``n_arrows`` by ``n_arrows`` arrows, darker where faster."""
    _check_square(space)
    centres = (np.arange(n_arrows) + 0.5) / n_arrows
    points = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=-1).reshape(-1, 2)
    velocity = space.velocity(theta, points)
    speed = np.linalg.norm(velocity, axis=1)
    fastest = max(float(speed.max()), np.finfo(float).tiny)
    # The longest arrow spans one and a half gaps between arrows: long enough to read, and
    # neighbours of a smooth field point alike, so they don't cross.
    length = velocity[:, ::-1] * (1.5 / (n_arrows * fastest))
    axes.quiver(
        *points.T[::-1], *length.T, speed, cmap=SPEED, clim=(0.0, fastest), pivot="middle",
        angles="xy", scale_units="xy", scale=1.0, width=0.007, headwidth=3.6, minlength=0.3,
    )  # fmt: skip


def draw_image(axes: Axes, image: ArrayLike) -> None:
    """A grey image (rows, columns) with values in [0, 1], dark where high."""
    axes.imshow(
        np.asarray(image), cmap=INK_ON_PAPER, vmin=0.0, vmax=1.0, extent=(0.0, 1.0, 1.0, 0.0),
        interpolation="antialiased",
    )  # fmt: skip


def draw_points(axes: Axes, points: ArrayLike, *, size: float = 30.0) -> None:
    """Points (m, 2) as dots; dot k has the same colour in every drawing."""
    positions = np.asarray(points, dtype=float)
    colors = [MARKS[k % len(MARKS)] for k in range(len(positions))]
    axes.scatter(
        positions[:, 1], positions[:, 0], s=size, c=colors, edgecolors="white",
        linewidths=0.15 * size**0.5, zorder=3,
    )  # fmt: skip


def _draw_lines(axes: Axes, lines: NDArray[np.floating], *, color: str, linewidth: float) -> None:
    """Lines (n, points, 2) of row, column positions."""
    axes.add_collection(
        LineCollection(list(lines[..., ::-1]), colors=color, linewidths=linewidth, clip_on=False)
    )


def _check_square(space: WarpSpace) -> None:
    if space.ndim != 2:
        raise ValueError(
            f"`space` must have 2 axes to be drawn as a square, got {space.ndim}: {space!r}."
        )
