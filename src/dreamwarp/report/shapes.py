"""Figures and a page about models of point sets and meshes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dreamwarp.align.points import PointAlignments, align_points
from dreamwarp.align.prior import SmoothPrior
from dreamwarp.augment.shapes import neighbor_edges, sample_shapes
from dreamwarp.core.defaults import DISPLACEMENT, LENGTH, N_NEIGHBORS
from dreamwarp.core.progress import ProgressOption
from dreamwarp.core.samples import spaced
from dreamwarp.data.shapes import Box, ShapeSet
from dreamwarp.model import WarpModel
from dreamwarp.report import figures, model_plots
from dreamwarp.report.page import Page, check_page_path
from dreamwarp.report.sheets import shorten
from dreamwarp.space import Warp

Array = NDArray[np.float64]

# Figures of `dreamwarp figure` that meshes have.
NAMES = ("samples", "components", "spectrum", "similarity")
# Rows and columns of a figure, and inches of a cell.
MAX_ROWS, N_COLUMNS, CELL = 6, 6, 1.5
DEVIATIONS = (-2.0, -1.0, 0.0, 1.0, 2.0)
# Largest number of pairs to align again.
MAX_PAIRS = 24
# Largest number of faces or points drawn per shape: screens show no more.
MAX_DRAWN = 20_000
# Directions in space that point right and up on the page, for a view from above and from the right;
# and the direction of the light.
RIGHT, UP = np.array([0.87, 0.5, 0.0]), np.array([-0.2, 0.35, 0.92])
LIGHT = np.array([0.3, -0.6, 0.75])


def draw_shape_samples(
    model: WarpModel,
    shapes: ShapeSet,
    *,
    label: Any = None,
    strength: float | None = None,
    seed: int = 0,
) -> Figure:
    """Draw a shape of each class, left, and random samples of the class beside it."""
    rows = []
    for code in _choose_classes(shapes, label):
        members = np.flatnonzero(shapes.y == shapes.classes[code])
        own = shapes.take(members)
        made = sample_shapes(model, own, N_COLUMNS - 1, seed=seed, strength=strength)
        rows.append((str(shapes.classes[code]), [_at(own, 0), *_each(made)]))
    return _draw_rows(rows, shapes.ndim, ["original", "samples"])


def draw_shape_components(
    model: WarpModel, shapes: ShapeSet, *, label: Any = None, component: int = 1
) -> Figure:
    """Draw a shape of each class along a principal component of its warps."""
    rows = []
    for code in _choose_classes(shapes, label):
        name = shapes.classes[code].item()
        found = model.components(name)
        if not 1 <= component <= found.directions.shape[1]:
            raise ValueError(
                f"`component` must be from 1 to {found.directions.shape[1]}, got {component}."
            )
        direction = found.directions[:, component - 1] * found.standard_deviations[component - 1]
        place = int(np.flatnonzero(shapes.y == shapes.classes[code])[0])
        points, faces = _at(shapes, place)
        moved = [
            (_move(model, points, shapes.boxes[place], size * direction), faces)
            for size in DEVIATIONS
        ]
        rows.append((str(name), moved))
    titles = [f"{size:+g} σ".replace("-", "−") if size else "0" for size in DEVIATIONS]
    return _draw_rows(rows, shapes.ndim, titles)


def draw_shape_alignments(
    model: WarpModel, shapes: ShapeSet, *, progress: ProgressOption = None
) -> tuple[Figure, PointAlignments]:
    """Align some neighbours again, with the settings of the model.

    Draws the pairs with the least, the median and the largest distance left, relative to that
    before: source, aligned source and target. Also returns the alignments.
    """
    settings, points = model.settings, shapes.unit_points()
    n_neighbors = int(settings.get("n_neighbors", N_NEIGHBORS))
    edges = neighbor_edges(points, shapes.y, n_neighbors, shapes.corresponds, False)
    edges = edges[spaced(len(edges), MAX_PAIRS)]
    prior = SmoothPrior(
        model.space, displacement=float(settings.get("displacement", DISPLACEMENT)),
        length=float(settings.get("length", LENGTH)),
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of single pairs
        found = align_points(
            model.space, *([points[i] for i in ends] for ends in edges.T), prior=prior,
            sigma=float(settings["sigma"]) if "sigma" in settings else "auto",
            match="known" if shapes.corresponds else "nearest", progress=progress,
        )  # fmt: skip
    order = np.argsort(found.loss_after / np.maximum(found.loss_before, 1e-300), kind="stable")
    rows = []
    for name, place in {"best": 0, "median": len(order) // 2, "worst": -1}.items():
        source, target = (int(i) for i in edges[order[place]])
        (_, faces), (_, others) = _at(shapes, source), _at(shapes, target)
        moved = np.asarray(Warp(model.space, found.theta[order[place]]).points(points[source]))
        drawn = [(points[source], faces), (moved, faces), (points[target], others)]
        rows.append((name, drawn))
    return _draw_rows(rows, shapes.ndim, ["source", "aligned", "target"]), found


def draw_shape_figure(name: str, model: WarpModel, shapes: ShapeSet, **options: Any) -> Figure:
    """Draw a figure by its name."""
    if name == "samples":
        options.pop("component")
        return draw_shape_samples(model, shapes, **options)
    if name == "components":
        return draw_shape_components(
            model, shapes, label=options["label"], component=options["component"]
        )
    if name in NAMES:
        draw = (
            model_plots.draw_spectrum if name == "spectrum" else model_plots.draw_class_similarity
        )
        return draw(model)
    raise ValueError(
        f"the figure {name!r} needs series, images or volumes, got meshes in `{shapes.name}`. "
        f"For meshes use {', '.join(NAMES)}."
    )


def write_shape_report(
    model: WarpModel, shapes: ShapeSet, path: str | os.PathLike[str], *, seed: int = 0
) -> Path:
    """Write a page about a model of shapes as one HTML file."""
    page = Page(f"Learned warps of {shapes.name}")
    page.text(f"{shapes.describe()}.")
    counts = [f"{label}: {int((shapes.y == label).sum()):,}" for label in shapes.classes]
    page.facts(
        [
            (f"{len(shapes):,}", "shapes"),
            (f"{len(shapes.classes):,}", "classes"),
            ("x".join(map(str, model.space.cells)), f"cells, {model.space.dim} parameters"),
        ]
    )
    page.text(f"Shapes by class: {', '.join(counts)}.")
    page.heading("Alignments")
    figure, found = draw_shape_alignments(model, shapes)
    before, after = (float(loss.mean()) ** 0.5 for loss in (found.loss_before, found.loss_after))
    page.figure(
        figure,
        f"Of {len(found):,} pairs of neighbours, those with the least, the median and the largest "
        f"distance left. Root mean square distance of matched points: {before:.4f} before and "
        f"{after:.4f} after alignment, as a fraction of the box.",
    )
    page.heading("Samples")
    samples = draw_shape_samples(model, shapes, seed=seed)
    page.figure(samples, "A shape of each class, and samples from it.")
    page.heading("Principal components")
    for component in (1, 2):
        page.figure(
            draw_shape_components(model, shapes, component=component),
            f"A shape of each class along component {component}, in standard deviations.",
        )
    page.figure(model_plots.draw_spectrum(model), "Standard deviations and variance by component.")
    if len(model.classes) > 1:
        page.heading("Classes")
        page.figure(model_plots.draw_class_similarity(model), "Similarity of the warps of classes.")
    return page.save(check_page_path(path))


# -- drawing

Drawn = tuple[Array, NDArray[np.int64]]


def _draw_rows(rows: Sequence[tuple[str, list[Drawn]]], ndim: int, titles: Sequence[str]) -> Figure:
    n_columns = max(len(drawn) for _, drawn in rows)
    figure = figures.new_figure(CELL * n_columns + 0.4, CELL * len(rows) + 0.3)
    axes = figure.subplots(len(rows), n_columns, squeeze=False)
    for row, (name, drawn) in enumerate(rows):
        flat = [_project(points, ndim) for points, _ in drawn]
        low = np.min([page.min(axis=0) for page, _ in flat], axis=0)
        high = np.max([page.max(axis=0) for page, _ in flat], axis=0)
        for column, ((page, depth), (points, faces)) in enumerate(zip(flat, drawn, strict=True)):
            _draw_shape(axes[row, column], page, depth, points, faces)
            axes[row, column].set_xlim(low[0], high[0])
            axes[row, column].set_ylim(low[1], high[1])
        axes[row, 0].set_ylabel(shorten(name, 18), fontsize=9, color=figures.INK)
    for column, title in enumerate(titles):
        axes[0, column].set_title(title, fontsize=9, color=figures.INK)
    return figure


def _draw_shape(
    axes: Axes, page: Array, depth: Array, points: Array, faces: NDArray[np.int64]
) -> None:
    """Draw faces, those behind first, or points if there are none."""
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    if not len(faces):
        chosen = np.linspace(0, len(page) - 1, min(len(page), MAX_DRAWN)).astype(np.int64)
        axes.plot(*page[chosen].T, ".", color=figures.GRID, markersize=2.5)
        return
    chosen = np.linspace(0, len(faces) - 1, min(len(faces), MAX_DRAWN)).astype(np.int64)
    some = faces[chosen]
    some = some[np.argsort(depth[some].mean(axis=1), kind="stable")]
    a, b, c = np.moveaxis(points[some], 1, 0)
    normals = np.cross(b - a, c - a)
    lengths = np.linalg.norm(normals, axis=1)
    # Faces without area have no normal.
    shade = np.abs(normals @ LIGHT) / np.where(lengths > 0.0, lengths, 1.0)
    colors = figures.SPEED_FROM_WHITE(np.clip(0.75 - 0.6 * shade, 0.0, 1.0))
    axes.add_collection(
        PolyCollection(list(page[some]), facecolors=colors, edgecolors=colors, lw=0.2)
    )


def _project(points: Array, ndim: int) -> tuple[Array, Array]:
    """Positions on the page (m, 2), and coordinates toward the viewer (m,)."""
    if ndim == 2:  # rows go down, columns to the right
        return np.stack([points[:, 1], -points[:, 0]], axis=1), np.zeros(len(points))
    return points @ np.stack([RIGHT, UP], axis=1), points @ np.cross(RIGHT, UP)


# -- shapes


def _choose_classes(shapes: ShapeSet, label: Any) -> list[int]:
    if label is None:
        return list(range(len(shapes.classes)))[:MAX_ROWS]
    names = [str(each) for each in shapes.classes]
    if str(label) not in names:
        raise ValueError(f"`label` must be one of {', '.join(names)}, got {label!r}.")
    return [names.index(str(label))]


def _each(shapes: ShapeSet) -> list[Drawn]:
    return [_at(shapes, k) for k in range(len(shapes))]


def _at(shapes: ShapeSet, place: int) -> Drawn:
    """Points (m, ndim) and faces (f, 3) of a shape; f = 0 if it has no faces."""
    faces = getattr(shapes.meshes[place], "faces", None) if shapes.meshes else None
    return shapes.points[place], np.asarray(np.empty((0, 3)) if faces is None else faces, np.int64)


def _move(model: WarpModel, points: Array, box: Box, theta: Array) -> Array:
    return box.to_world(Warp(model.space, theta).points(box.to_unit(points)))
