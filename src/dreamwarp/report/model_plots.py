"""Plots of a model: component spectra, similarity of classes, error by strength."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter
from numpy.typing import NDArray
from sklearn.metrics.pairwise import cosine_similarity

from dreamwarp.augment.verdict import Judgement
from dreamwarp.core.labels import Label
from dreamwarp.model import WarpModel
from dreamwarp.report import figures
from dreamwarp.report.sheets import shorten

Array = NDArray[np.float64]

# Largest number of components in a spectrum: the rest have little variance.
MAX_COMPONENTS = 60
# Smallest upper end of an axis of errors.
LEAST_ERROR = 0.01
# Largest number of classes with similarities as numbers, and with lines in a legend; classes named
# at either end if there are more.
MAX_WRITTEN, MAX_LINES, N_EXTREMES = 12, 10, 3


def draw_spectrum(model: WarpModel) -> Figure:
    """Plot the principal components of each class: standard deviations and explained variance.

    Left: standard deviation by component. Right: cumulative fraction of the variance. The dotted
    line is all classes pooled. Of many classes, those that vary most and least are named.
    """
    figure = figures.new_figure(8.2, 3.3)
    left, right = figure.subplots(1, 2)
    n = min(model.space.dim, MAX_COMPONENTS)
    numbers = np.arange(1, n + 1)

    def plot(label: Label | None, name: str, **style: Any) -> None:
        found = model.components(label)
        left.plot(numbers, found.standard_deviations[:n], label=name, **style)
        right.plot(numbers, found.share.cumsum()[:n], **style)

    named = choose_named(model)
    others = [label for label in model.classes if label not in named]
    for k, label in enumerate(others):
        plot(label, "_" if k else f"{len(others)} others", color=figures.FAINT, linewidth=1.0)
    for label, style in zip(named, figures.CLASS_STYLES, strict=False):
        plot(label, shorten(label, 18), linewidth=1.5, **style)
    if len(model.classes) > 1:
        plot(None, "all pooled", color=figures.INK, linewidth=1.6, linestyle=":")
    left.set_yscale("log")
    for axes in (left, right):
        axes.set_xscale("log")  # classes differ in the first components
    for scale in (left.yaxis, left.xaxis, right.xaxis):
        scale.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        scale.set_major_formatter("{x:g}")
        scale.set_minor_locator(NullLocator())
    right.set_ylim(0.0, 1.02)
    right.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    for axes, name in ((left, "standard deviation"), (right, "fraction of variance, cumulative")):
        figures.style_axes(axes, "principal component", name)
    figure.legend(
        loc="outside right upper", fontsize=8, frameon=False, labelcolor=figures.INK,
        title="class", title_fontsize=8, handlelength=3.0,
    )  # fmt: skip
    return figure


def choose_named(model: WarpModel) -> list[Label]:
    """Classes to name in a legend: all or, of many, those that vary most and least."""
    if len(model.classes) <= MAX_LINES:
        return list(model.classes)
    variances = [
        np.square(model.components(label).standard_deviations).sum() for label in model.classes
    ]
    order = np.argsort(variances, kind="stable")[::-1]
    return [model.classes[k] for k in (*order[:N_EXTREMES], *order[-N_EXTREMES:])]


def class_similarities(model: WarpModel) -> Array:
    """Cosine similarity of the covariances of classes: (n_classes, n_classes), from 0 to 1.

    ⟨Σ_a, Σ_b⟩ / (‖Σ_a‖ ‖Σ_b‖), with the Frobenius inner product.
    """
    return cosine_similarity([model.covariance(label).ravel() for label in model.classes])


def draw_class_similarity(model: WarpModel) -> Figure:
    """Plot the similarity of the learned warps of classes: the cosine of their covariances."""
    values = class_similarities(model)
    n = len(values)
    side = min(max(2.6, 0.44 * n + 1.0), 7.0)
    figure = figures.new_figure(side + 1.2, side)
    axes = figure.subplots()
    others = values[~np.eye(n, dtype=bool)]
    low = min(float(np.floor(20 * others.min()) / 20) if n > 1 else 0.0, 0.95)
    shown = axes.imshow(values, cmap=figures.SPEED_FROM_WHITE, vmin=low, vmax=1.0)
    names = [shorten(label, 12) for label in model.classes]
    long = max(map(len, names)) > 3
    size = 9 if n <= 2 * MAX_WRITTEN else 6
    axes.set_xticks(range(n), names, fontsize=size, rotation=90 if long else 0)
    axes.set_yticks(range(n), names, fontsize=size)
    if n <= MAX_WRITTEN:
        for (row, column), value in np.ndenumerate(values):
            if row != column:
                share = (value - low) / (1.0 - low)
                color = "white" if share > 0.4 else figures.INK
                words = f"{value:.2f}".removeprefix("0")
                axes.text(column, row, words, ha="center", va="center", fontsize=7.5, color=color)
    bar = figure.colorbar(shown, ax=axes, fraction=0.045, pad=0.03)
    bar.set_label("similarity of learned warps", fontsize=9, color=figures.INK)
    bar.ax.tick_params(labelsize=8, colors=figures.INK)
    bar.outline.set_edgecolor(figures.FAINT)
    figures.style_axes(axes)
    axes.tick_params(length=0, labelsize=size)
    return figure


def draw_strength(judgement: Judgement, *, with_verdict: bool = True) -> Figure:
    """Plot held-out errors by strength of the warps, the chosen strength, and the verdict.

    Parameters
    ----------
    judgement : Judgement
        Result of ``Augmenter.judge`` or ``dreamwarp.torch.choose_strength``.
    with_verdict : bool
        Whether to print the verdict above the plot.
    """
    if not judgement.errors:
        raise ValueError(f"`judgement` must have errors by strength, got none: {judgement.verdict}")
    figure = figures.new_figure(7.2, 3.6)
    axes = figure.subplots()
    if with_verdict:
        words = "\n".join(textwrap.wrap(str(judgement.verdict), 86))
        axes.set_title(words, fontsize=9.5, color=figures.INK, loc="left")
    strengths = sorted(judgement.errors)
    errors = [judgement.errors[strength] for strength in strengths]
    spreads = [judgement.spreads.get(strength, 0.0) for strength in strengths]
    axes.errorbar(
        strengths, errors, yerr=spreads if any(spreads) else None, color=figures.GRID, marker="o",
        markersize=5, linewidth=1.4, capsize=3, elinewidth=0.9,
    )  # fmt: skip
    chosen = judgement.strength
    if math.isfinite(judgement.errors.get(chosen, math.nan)):
        axes.plot(
            chosen, judgement.errors[chosen], marker="o", markersize=11, markerfacecolor="none",
            markeredgecolor=figures.MARKS[0], markeredgewidth=1.8,
        )  # fmt: skip
        top = judgement.errors[chosen] + judgement.spreads.get(chosen, 0.0)
        axes.annotate(
            f"chosen: {chosen:g}", (chosen, top), xytext=(0, 9), textcoords="offset points",
            ha="center", fontsize=9, color=figures.MARKS[0],
        )  # fmt: skip
    # A network that returned NaN has no error.
    highest = float(np.nanmax(np.add(errors, spreads)))
    axes.set_ylim(0.0, max(1.12 * highest, LEAST_ERROR))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    how = "smoothed error" if judgement.is_smooth else "error"
    figures.style_axes(axes, "strength of warps (0: none)", how)
    return figure
