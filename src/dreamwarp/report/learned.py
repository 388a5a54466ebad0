"""What a model has learned, without samples: spectra of classes, and how alike classes are."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, PercentFormatter
from numpy.typing import NDArray

from dreamwarp.model import WarpModel
from dreamwarp.report import figures
from dreamwarp.report.sheets import shorten

Array = NDArray[np.float64]

# Components that a spectrum shows at most: the rest add up to little.
MAX_COMPONENTS = 60
# Classes whose similarities are written into the squares, and whose lines are told apart.
MAX_WRITTEN, MAX_LINES = 12, 10


def draw_spectrum(model: WarpModel) -> Figure:
    """Principal components of each class: their standard deviations, and the variance they share.

    Left: how long a step of one standard deviation is, by component. Right: the share of the
    variance that the first components have together. All classes together are the dashed line.

    Parameters
    ----------
    model : WarpModel

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = figures.new_figure(8.2, 3.3)
    left, right = figure.subplots(1, 2)
    n = min(model.space.dim, MAX_COMPONENTS)
    numbers = np.arange(1, n + 1)
    many = len(model.classes) > MAX_LINES
    for place, label in enumerate(model.classes):
        found = model.components(label)
        style = {"color": figures.shade(place, len(model.classes)), "linewidth": 1.3}
        name = "_" if many else shorten(label, 18)
        left.plot(numbers, found.standard_deviations[:n], label=name, **style)
        right.plot(numbers, found.share.cumsum()[:n], **style)
    pooled = model.components(None)
    style = {"color": figures.INK, "linewidth": 1.4, "linestyle": (0, (4, 2))}
    left.plot(numbers, pooled.standard_deviations[:n], label="all", **style)
    right.plot(numbers, pooled.share.cumsum()[:n], **style)
    left.set_yscale("log")
    left.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    left.yaxis.set_major_formatter("{x:g}")
    left.yaxis.set_minor_locator(NullLocator())
    left.set_ylabel("standard deviation", fontsize=9, color=figures.INK)
    right.set_ylabel("share of variance, cumulative", fontsize=9, color=figures.INK)
    right.set_ylim(0.0, 1.02)
    right.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    for axes in (left, right):
        axes.set_xlabel("principal component", fontsize=9, color=figures.INK)
        figures.plain_axes(axes)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    figure.legend(
        loc="outside right upper", fontsize=8, frameon=False, labelcolor=figures.INK,
        title="class" if not many else None, title_fontsize=8,
    )  # fmt: skip
    return figure


def class_similarities(model: WarpModel) -> Array:
    """How alike the warps of classes are (n_classes, n_classes), from 0 to 1.

    The cosine between their covariances: Σ_a · Σ_b / (‖Σ_a‖ ‖Σ_b‖), with the sum over all entries
    of the product.
    """
    rows = np.stack([model.covariance(label).ravel() for label in model.classes])
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    return rows @ rows.T


def draw_class_similarity(model: WarpModel) -> Figure:
    """How alike the warps of any two classes are: the cosine between their covariances.

    Parameters
    ----------
    model : WarpModel

    Returns
    -------
    matplotlib.figure.Figure
    """
    values = class_similarities(model)
    n = len(values)
    side = min(max(2.6, 0.44 * n + 1.0), 7.0)
    figure = figures.new_figure(side + 1.2, side)
    axes = figure.subplots()
    others = values[~np.eye(n, dtype=bool)]
    low = float(np.floor(20 * others.min()) / 20) if n > 1 else 0.0
    shown = axes.imshow(values, cmap=figures.SPEED_FROM_WHITE, vmin=min(low, 0.95), vmax=1.0)
    names = [shorten(label, 12) for label in model.classes]
    long = max(map(len, names)) > 3
    size = 9 if n <= 2 * MAX_WRITTEN else 6
    axes.set_xticks(range(n), names, fontsize=size, rotation=90 if long else 0)
    axes.set_yticks(range(n), names, fontsize=size)
    if n <= MAX_WRITTEN:
        _write_values(axes, values, min(low, 0.95))
    bar = figure.colorbar(shown, ax=axes, fraction=0.045, pad=0.03)
    bar.set_label("similarity of learned warps", fontsize=9, color=figures.INK)
    bar.ax.tick_params(labelsize=8, colors=figures.INK)
    bar.outline.set_edgecolor(figures.FAINT)
    figures.plain_axes(axes)
    axes.tick_params(length=0, labelsize=size)
    return figure


def _write_values(axes: Any, values: Array, low: float) -> None:
    for (row, column), value in np.ndenumerate(values):
        if row != column:
            share = (value - low) / (1.0 - low)
            color = "white" if share > 0.4 else figures.INK
            words = f"{value:.2f}".removeprefix("0")
            axes.text(column, row, words, ha="center", va="center", fontsize=7.5, color=color)
