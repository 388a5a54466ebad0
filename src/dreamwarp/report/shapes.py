"""Figures and a page about models of point sets and meshes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dreamwarp.align.points import Match, PointAlignments, align_points
from dreamwarp.augment.learning import Settings
from dreamwarp.augment.shapes import (
    choose_edges,
    find_known,
    find_match,
    match_edges,
    sample_shapes,
)
from dreamwarp.core.samples import spaced
from dreamwarp.data.shapes import ShapeSet
from dreamwarp.model import WarpModel
from dreamwarp.report import figures, model_plots
from dreamwarp.report.page import Page
from dreamwarp.report.sheets import Area, draw_table
from dreamwarp.report.subject import Layout, join_labels
from dreamwarp.report.warped import along_component, name_deviations
from dreamwarp.space import Warp, WarpSpace

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Rows and columns of a figure, and height of a shape in inches.
MAX_ROWS, N_COLUMNS, BOX_HEIGHT = 6, 6, 1.5
ALIGNED = ("source", "aligned", "target")
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
    for name in _choose_classes(shapes, label):
        own = shapes.take(np.flatnonzero(shapes.y == name))
        made = sample_shapes(model, own, N_COLUMNS - 1, seed=seed, strength=strength)
        drawn = zip(made.points, map(made.faces, range(len(made))), strict=True)
        rows.append((str(name), [(own.points[0], own.faces(0)), *drawn]))
    return _draw_rows(rows, ["original", "samples"])


def draw_shape_components(
    model: WarpModel, shapes: ShapeSet, *, label: Any = None, component: int = 1
) -> Figure:
    """Draw a shape of each class along a principal component of its warps."""
    rows = []
    for name in _choose_classes(shapes, label):
        place = int(np.flatnonzero(shapes.y == name)[0])
        theta = along_component(model, name.item(), component - 1, np.array(DEVIATIONS))
        box = shapes.boxes[place]
        points = box.to_unit(shapes.points[place])
        moved = [box.to_world(Warp(model.space, each).points(points)) for each in theta]
        rows.append((str(name), [(each, shapes.faces(place)) for each in moved]))
    return _draw_rows(rows, name_deviations(DEVIATIONS))


def draw_shape_alignments(model: WarpModel, shapes: ShapeSet) -> tuple[Figure, PointAlignments]:
    """Align some pairs of a class again, with the settings of the model.

    Draws the pairs with the least, the median and the largest distance left, relative to that
    before: source, aligned source and target. Also returns the alignments.
    """
    settings = Settings.of(model)
    edges = choose_edges(shapes.y, settings.n_neighbors)
    edges = edges[spaced(len(edges), MAX_PAIRS)]
    prior, match = settings.smooth_prior(model.space), find_match(model)
    found, _ = align_shapes(
        model.space, shapes, edges, match=match, prior=prior, sigma=settings.sigma
    )
    order = np.argsort(found.loss_after / np.maximum(found.loss_before, 1e-300), kind="stable")
    rows = []
    for name, place in {"best": 0, "median": len(order) // 2, "worst": -1}.items():
        pair = shapes.take(edges[order[place]])
        rows.append((name, _show_alignment(model.space, pair, found.theta[order[place]])))
    return _draw_rows(rows, ALIGNED), found


def align_shapes(
    space: WarpSpace, shapes: ShapeSet, edges: Integers, *, match: Match, **settings: Any
) -> tuple[PointAlignments, list[Match]]:
    """Align pairs (e, 2) of a set, to be shown; also return how the points of each were matched."""
    points, matched = shapes.unit_points(), match_edges(find_known(shapes, match), edges)
    ends = ([points[k] for k in side] for side in edges.T)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # what is shown says the same
        return align_points(space, *ends, match=matched, **settings), matched


def draw_shape_pair(space: WarpSpace, pair: ShapeSet, theta: Array) -> Figure:
    """Draw a shape, the same moved by θ (d,), and the shape that it was aligned to."""
    return _draw_rows([("", _show_alignment(space, pair, theta))], ALIGNED)


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
        f"Of {len(found):,} pairs of one class, those with the least, the median and the largest "
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
    return page.save(path)


# -- drawing

Drawn = tuple[Array, NDArray[np.int64]]


def _show_alignment(space: WarpSpace, pair: ShapeSet, theta: Array) -> list[Drawn]:
    source, target = pair.unit_points()
    moved = Warp(space, theta).points(source)
    return [(source, pair.faces(0)), (moved, pair.faces(0)), (target, pair.faces(1))]


def _draw_rows(rows: Sequence[tuple[str, list[Drawn]]], titles: Sequence[str]) -> Figure:
    """Draw rows of shapes, given by points and faces; all of a row at one scale."""
    table = []
    for name, drawn in rows:
        flat = np.concatenate([_project(points)[0] for points, _ in drawn])
        limits = flat.min(axis=0), flat.max(axis=0)
        table.append((name, [partial(_draw_shape, shape=each, limits=limits) for each in drawn]))
    return draw_table(Layout((1.0, 1.0)), table, list(enumerate(titles)), height=BOX_HEIGHT)


def _draw_shape(axes: Axes, box: Area, shape: Drawn, limits: tuple[Array, Array]) -> None:
    """Draw faces, those behind first, or points if there are none."""
    (points, faces), (low, high) = shape, limits
    page, depth = _project(points)
    scale = min((box.width, box.height) / np.maximum(high - low, np.finfo(float).tiny))
    center = box.x + box.width / 2, box.y + box.height / 2
    page = center + scale * (page - (low + high) / 2)
    if not len(faces):
        axes.plot(*page[spaced(len(page), MAX_DRAWN)].T, ".", color=figures.GRID, markersize=2.5)
        return
    some = faces[spaced(len(faces), MAX_DRAWN)]
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


def _project(points: Array) -> tuple[Array, Array]:
    """Positions on the page (m, 2), right and down, and coordinates toward the viewer (m,)."""
    if points.shape[1] == 2:  # rows go down, columns to the right
        return points[:, ::-1], np.zeros(len(points))
    return points @ np.stack([RIGHT, -UP], axis=1), points @ np.cross(RIGHT, UP)


def _choose_classes(shapes: ShapeSet, label: Any) -> list[Any]:
    chosen = [each for each in shapes.classes if label is None or str(each) == str(label)]
    if not chosen:
        raise ValueError(f"`label` must be one of {join_labels(shapes.classes)}, got {label!r}.")
    return chosen[:MAX_ROWS]
