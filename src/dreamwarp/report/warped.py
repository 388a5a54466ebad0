"""Figures of warped samples: random warps, and warps along principal components."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dreamwarp.augment.subject import Data, Subject
from dreamwarp.core.samples import spaced
from dreamwarp.core.validation import check_integer
from dreamwarp.model import WarpModel
from dreamwarp.model.strength import resolve_strength
from dreamwarp.report.galleries import Cell, draw_table
from dreamwarp.report.sheets import draw_sample

DEVIATIONS = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
# Largest number of classes in a figure.
MAX_ROWS = 12


def draw_samples(
    model: WarpModel,
    data: Data,
    *,
    label: Any = None,
    n_versions: int = 8,
    strength: float | None = None,
    seed: int = 0,
) -> Figure:
    """Draw originals and random warps of each: the paper's figure 1.

    Parameters
    ----------
    model : WarpModel
    data : DataSet, or pair (X, y)
        Signals, images or volumes of the model's classes.
    label : optional
        Show eight originals of this class. Default: one of each class, up to twelve.
    n_versions : int
        Warps of each original.
    strength : float, optional
        Factor on the learned warps. Default: the strength of the model or, if that is 0, 1.
    seed : int
    """
    subject = Subject.of(model, data)
    check_integer("n_versions", n_versions, 1)
    used = shown_strength(model, strength)
    if label is None:
        originals = [int(subject.typical(code)[0]) for code in shown_classes(subject)]
        names = [str(subject.labels[subject.codes[index]]) for index in originals]
    else:
        originals = subject.typical(subject.code_of(label), 400)[::50][:8].tolist()
        names = [""] * len(originals)
    rows = []
    for name, index in zip(names, originals, strict=True):
        theta = subject.draw_theta(index, n_versions, strength=used, seed=seed)
        versions = [subject.sample(index), *subject.warp(theta, index)]
        rows.append((name, [show(subject, values) for values in versions]))
    titles = [(0, "original"), (1, f"random warps, strength {used:g}")]
    return draw_table(subject.extent, rows, titles, gaps=(1,), height=box_height(subject))


def draw_components(
    model: WarpModel,
    data: Data,
    *,
    label: Any = None,
    component: int = 1,
    n_components: int = 5,
) -> Figure:
    """Draw typical samples, warped along components of their class: the paper's figure 4.

    From left to right, -3 to 3 standard deviations.

    Parameters
    ----------
    model : WarpModel
    data : DataSet, or pair (X, y)
    label : optional
        Show several components of this class, one per row. Default: one component of each class.
    component : int
        Component, from 1, the largest; with ``label``, the first one shown.
    n_components : int
        Components shown of ``label``.
    """
    subject = Subject.of(model, data)
    rows, notes = [], []
    for name, code, k in choose_rows(subject, label, component, n_components):
        moved = warp_along(subject, code, k, np.array(DEVIATIONS))
        rows.append((name, [show(subject, values) for values in moved]))
        notes.append(f"{model.components(subject.labels[code]).share[k]:.0%} of variance")
    titles = list(enumerate(name_deviations(DEVIATIONS)))
    return draw_table(subject.extent, rows, titles, height=box_height(subject), notes=notes)


def name_deviations(deviations: Sequence[float]) -> list[str]:
    """Titles of columns that show deviations, with a typographic minus sign."""
    return [f"{value:+g} σ".replace("-", "−") if value else "0" for value in deviations]


def choose_rows(
    subject: Subject, label: Any, component: int, n_components: int
) -> list[tuple[str, int, int]]:
    """Return name, class and component (from 0) of each row."""
    first = check_integer("component", component, 1)
    n = check_integer("n_components", n_components, 1)
    if label is None:
        return [(str(subject.labels[k]), k, first - 1) for k in shown_classes(subject)]
    code, dim = subject.code_of(label), subject.model.space.dim
    return [(f"PC {k}", code, k - 1) for k in range(first, min(first + n, max(dim, first) + 1))]


def warp_along(
    subject: Subject, code: int, component: int, deviations: NDArray[Any]
) -> NDArray[Any]:
    """Warp a typical sample of a class along a component of that class, counted from 0."""
    theta = along_component(subject.model, subject.labels[code], component, deviations)
    return subject.warp(theta, int(subject.typical(code)[0]))


def along_component(
    model: WarpModel, label: Any, component: int, deviations: NDArray[Any]
) -> NDArray[np.float64]:
    """θ (n, d) at n standard deviations along a component of a class, counted from 0."""
    found = model.components(label)
    if not 0 <= component < found.directions.shape[1]:
        raise ValueError(
            f"`component` must be from 1 to {found.directions.shape[1]}, the dimension of "
            f"{model.space!r}, got {component + 1}."
        )
    return np.outer(
        deviations, found.standard_deviations[component] * found.directions[:, component]
    )


def shown_classes(subject: Subject) -> list[int]:
    """Choose up to ``MAX_ROWS`` classes, evenly spaced."""
    return spaced(len(subject.labels), MAX_ROWS).tolist()


def shown_strength(model: WarpModel, strength: float | None) -> float:
    """Choose the strength of warps to draw: by default the model's, or 1 if that is 0."""
    if strength is None:
        return model.strength or 1.0
    return resolve_strength(model, strength)


def box_height(subject: Subject) -> float:
    """Height of a sample in a gallery, in inches; wide boxes are lower, to fit on a page."""
    return {1: 0.62, 2: 0.8, 3: 0.75}[subject.model.space.ndim]


def show(subject: Subject, values: NDArray[Any]) -> Cell:
    """Make a gallery cell of a sample (channels, *spatial)."""
    return partial(draw_sample, values=values, look=subject.look)
