"""``dreamwarp demo``: real digits under smooth random warps, and a picture of what happened."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial.distance import cdist

from dreamwarp.space import WarpSpace
from dreamwarp.warp import Warp

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

Array = NDArray[np.float64]
Images = NDArray[np.float32]

# The digits are 8 x 8 and touch the border. With a margin, and enlarged this many times, they show
# a smooth warp as smooth; this range of ink is stretched to [0, 1], which sharpens the strokes.
ENLARGEMENT = 8
INK_RANGE = (0.35, 0.85)
# Velocities of natural strength: strokes move by about a twentieth of the image's width, and
# strokes a quarter of it apart move on their own.
SPEED = 0.06
LENGTH_SCALE = 0.25
# Warped versions of each digit in the picture.
N_VERSIONS = 3
# Ink above this share of the darkest counts as part of a stroke.
STROKE = 0.5


def run_demo(
    output: str | os.PathLike[str], *, seed: int = 0, say: Callable[[str], None] = print
) -> Path:
    """Warp digits, time it, and draw velocity field, grid and results.

    Parameters
    ----------
    output : path
        Picture to write: .png, .svg or .pdf.
    seed : int
        Fixes the warps.
    say : callable
        Receives what was done, line by line.

    Returns
    -------
    Path of the picture.
    """
    from dreamwarp.report.figures import check_picture_path, save_figure

    check_picture_path(output)
    images, labels = load_digits()
    rows, columns = images.shape[1:]
    say(f"{len(images):,} handwritten digits, enlarged to {rows} x {columns} pixels")
    space = WarpSpace((4, 4))
    prepare(space, images[0], say=say)
    theta = draw_smooth_theta(space, len(images), seed=seed)
    say(f"a smooth random warp for each, with {space.dim} parameters on {space.n_cells} triangles")
    time_warps(space, theta, images, say=say)
    examples = images[[np.flatnonzero(labels == label)[0] for label in range(10)]]
    path = save_figure(draw_demo(space, theta, examples), output)
    say(f"picture written to {path}")
    return path


def load_digits() -> tuple[Images, NDArray[np.int64]]:
    """scikit-learn's handwritten digits, enlarged: (1797, 80, 80) in [0, 1], and labels (1797,)."""
    from sklearn import datasets

    digits = datasets.load_digits()
    small = np.pad(digits.images.astype(np.float32) / 16.0, ((0, 0), (1, 1), (1, 1)))
    # Cubic enlargement is linear, and the same along rows and columns: one matrix, used twice.
    enlarge = ndimage.zoom(
        np.eye(small.shape[1], dtype=np.float32), (ENLARGEMENT, 1), mode="nearest", grid_mode=True
    )
    large = enlarge @ small @ enlarge.T
    least, most = INK_RANGE
    return np.clip((large - least) / (most - least), 0.0, 1.0), digits.target


def draw_smooth_theta(space: WarpSpace, n: int, *, seed: int) -> Array:
    """Parameters of smooth random warps: (n, d).

    Vertex velocities are Gaussian with a squared-exponential covariance, then brought to the
    nearest field that obeys the boundary.
    """
    vertices = space.tessellation.vertices
    distance = cdist(vertices, vertices) / LENGTH_SCALE
    # The covariance of so smooth a field is singular to rounding; the addition lets it factorise.
    covariance = np.exp(-0.5 * distance**2) + 1e-9 * np.eye(len(vertices))
    noise = np.random.default_rng(seed).standard_normal((n, *vertices.shape))
    return space.theta_from_vertices(SPEED * np.linalg.cholesky(covariance) @ noise)


def prepare(space: WarpSpace, image: Images, *, say: Callable[[str], None]) -> None:
    """Warp once, so that what is timed later is warping alone."""
    say("getting ready: the first run compiles, later runs load what it compiled")
    start = time.perf_counter()
    Warp(space, np.zeros(space.dim)).image(image)
    say(f"first image warped after {time.perf_counter() - start:.1f} s")


def time_warps(
    space: WarpSpace, theta: Array, images: Images, *, say: Callable[[str], None]
) -> None:
    """Warp every image by its own θ, and say how fast that was and how well it can be undone."""
    start = time.perf_counter()
    Warp(space, theta).image(images)
    seconds = time.perf_counter() - start
    say(f"all warped in {seconds:.2f} s: {len(images) / seconds:,.0f} images per second")
    points = space.tessellation.vertices
    back = space.flow(-theta, space.flow(theta, points))
    error = float(np.abs(back - points).max())
    say(f"there and back by the inverse, points return to within {error:.0e} of the width")


def stroke_ends(image: Images) -> Array:
    """Keypoints of a digit: its topmost, rightmost, lowest and leftmost ink, (4, 2)."""
    inked = np.argwhere(image > STROKE)
    rows, columns = inked.T
    extremes = inked[[rows.argmin(), columns.argmax(), rows.argmax(), columns.argmin()]]
    return (extremes + 0.5) / image.shape


def draw_demo(space: WarpSpace, theta: Array, examples: Images) -> Figure:
    """The picture: one warp in detail, then versions of all examples (10, rows, columns)."""
    from dreamwarp.report.figures import new_figure

    figure = new_figure(11.0, 8.0)
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(0.4, 0.6))[:, 0]
    _draw_detail(above, space, theta[0], examples[3])
    _draw_versions(below, space, theta, examples)
    return figure


def _draw_detail(figure: SubFigure, space: WarpSpace, theta: Array, image: Images) -> None:
    from dreamwarp.report import figures

    figure.suptitle("One warp: an invertible flow", fontsize=13, color=figures.INK)
    field, grid, before, after = figure.subplots(1, 4)
    warp, points = Warp(space, theta), stroke_ends(image)

    # The content of the warped image moves by the inverse, so that is what is drawn.
    figures.prepare_axes(field, f"velocity, affine on {space.n_cells} triangles")
    figures.draw_tessellation(field, space)
    figures.draw_velocity(field, space, -theta)
    figures.prepare_axes(grid, "where its flow carries a grid")
    figures.draw_grid(grid, space, -theta)
    for axes, title, content, marks in (
        (before, "a digit and four keypoints", image, points),
        (after, "both warped, still in step", warp.image(image), warp.points(points)),
    ):
        figures.prepare_axes(axes, title)
        figures.draw_image(axes, content)
        figures.draw_points(axes, marks)


def _draw_versions(figure: SubFigure, space: WarpSpace, theta: Array, examples: Images) -> None:
    from dreamwarp.report import figures

    figure.suptitle("Many warps: every digit becomes many", fontsize=13, color=figures.INK)
    all_axes = figure.subplots(1 + N_VERSIONS, len(examples))
    for column, image in enumerate(examples):
        points = stroke_ends(image)
        warps = [Warp(space, row) for row in theta[column :: len(examples)][:N_VERSIONS]]
        versions = [(image, points), *((w.image(image), w.points(points)) for w in warps)]
        for axes, (content, marks) in zip(all_axes[:, column], versions, strict=True):
            figures.prepare_axes(axes)
            figures.draw_image(axes, content)
            figures.draw_points(axes, marks, size=14.0)
    all_axes[0, 0].set_ylabel("original", fontsize=10, color=figures.INK)
    for axes in all_axes[1:, 0]:
        axes.set_ylabel("warped", fontsize=10, color=figures.INK)
