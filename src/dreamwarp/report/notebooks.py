"""Summaries and plots of the library's objects for notebooks.

The objects call these functions from ``_repr_html_`` and ``plot``.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from dreamwarp.align import Alignments
from dreamwarp.core.samples import pixel_centers, spaced
from dreamwarp.core.validation import check_choice
from dreamwarp.model import WarpModel
from dreamwarp.report import aligned, figures, model_plots, sheets
from dreamwarp.report.catalog import OF_MODELS, draw_figure
from dreamwarp.report.page import encode_figure
from dreamwarp.report.study import study_of
from dreamwarp.report.subject import Layout, Look, as_sample, join_labels
from dreamwarp.report.warped import draw_samples
from dreamwarp.space.warp import Warp

if TYPE_CHECKING:
    from dreamwarp.augment.augmenter import Augmenter

# Points per axis and largest number of warps at which displacements are evaluated; warps drawn.
N_PROBES, MAX_PROBED, MAX_DRAWN = 17, 64, 4
DPI = 110


# -- summaries


def summarize_model(model: WarpModel) -> str:
    """Summarize a WarpModel: classes, pairs, spectrum."""
    fits = model.fits.values()
    facts = [
        ("space", repr(model.space)),
        ("kind", model.kind),
        ("classes", join_labels(model.classes)),
        ("pairs", f"{sum(fit.n_pairs for fit in fits):,}"),
        ("recommended strength", f"{model.strength:g}"),
        ("strength for networks", f"{model.network_strength:.3g}"),
    ]
    if model.fallbacks:
        facts.append(("classes with too few pairs", join_labels(model.fallbacks)))
    return _summary("WarpModel", facts, model_plots.draw_spectrum(model), "Spectrum of each class")


def summarize_warp(warp: Warp) -> str:
    """Summarize a Warp: displacements and grid."""
    points = pixel_centers(warp.space.ndim * (N_PROBES,))
    theta = np.atleast_2d(warp.theta)
    some = theta[spaced(len(theta), MAX_PROBED)]
    moved = np.linalg.norm(warp.space.flow(some, points) - points, axis=-1)
    facts = [
        ("space", repr(warp.space)),
        ("warps", f"{len(warp):,}"),
        ("mean displacement", f"{moved.mean():.1%} of the domain"),
        ("largest", f"{moved.max(initial=0.0):.1%}"),
    ]
    return _summary("Warp", facts, plot_warp(warp), "Grids of the warps")


def summarize_alignments(alignments: Alignments) -> str:
    """Summarize Alignments: remaining difference, convergence, losses."""
    n = len(alignments)
    facts = [("pairs", f"{n:,}"), ("similarity", type(alignments.similarity).__name__)]
    if alignments.sigma is not None:
        facts.append(("noise σ", f"{alignments.sigma:.3g}"))
        left = f"{alignments.median_left_over:.0%}, median pair"
        facts.append(("squared difference remaining", left))
    facts.append(("not converged", f"{int((~alignments.converged).sum()):,}"))
    facts.append(("not usable", f"{int((~alignments.usable).sum()):,}"))
    picture = plot_alignments(alignments) if n else None
    return _summary("Alignments", facts, picture, "Losses before and after")


def summarize_augmenter(augmenter: Augmenter) -> str:
    """Summarize a fitted Augmenter: verdict and new samples."""
    facts = [
        ("samples", f"{len(augmenter.source_.codes):,}"),
        ("classes", join_labels(augmenter.classes_)),
        ("pairs aligned", f"{len(augmenter.edges_):,}"),
        ("strength", f"{augmenter.strength_:g}"),
        ("strength for networks", f"{augmenter.model_.network_strength:.3g}"),
        ("verdict", str(augmenter.verdict_)),
    ]
    figure = draw_samples(augmenter.model_, augmenter.source_.data, n_versions=5)
    return _summary("Augmenter, fitted", facts, figure, "Samples and random warps of them")


def _summary(
    title: str, facts: Sequence[tuple[str, str]], figure: Figure | None, alternative: str
) -> str:
    rows = "".join(
        '<tr><th style="text-align:left;font-weight:500;padding-right:1.5em;vertical-align:top">'
        f'{html.escape(name)}</th><td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in facts
    )
    picture = ""
    if figure is not None:
        width = round(84 * figure.get_size_inches()[0])
        words = html.escape(alternative, quote=True)
        picture = (
            f'<img src="{encode_figure(figure, DPI)}" alt="{words}" width="{width}" '
            'style="max-width:100%;height:auto;background:white;border-radius:4px">'
        )
    return (
        f'<div style="max-width:52em"><b>{html.escape(title)}</b>'
        f'<table style="margin:0.4em 0">{rows}</table>{picture}</div>'
    )


# -- pictures


def plot_model(model: WarpModel, name: str) -> Figure:
    """Draw the "spectrum" or "similarity" of a model."""
    return OF_MODELS[check_choice("name", name, list(OF_MODELS))](model)


def plot_augmenter(augmenter: Augmenter, name: str, options: dict[str, Any]) -> Figure:
    """Draw a figure of ``dreamwarp figure`` for a fitted augmenter, without aligning again."""
    data, study = augmenter.source_.data, study_of(augmenter)
    return draw_figure(name, augmenter.model_, data, study=study, **options)


def plot_warp(warp: Warp, x: ArrayLike | None = None) -> Figure:
    """Draw how up to four warps move a grid and, if given, a sample."""
    space, layout = warp.space, Layout(warp.space.ndim * (1.0,))
    thetas = np.atleast_2d(warp.theta)[:MAX_DRAWN]
    panels: dict[str, Any] = {}
    if x is not None:
        sample = as_sample(space, np.asarray(x), "x")
        look = Look.of(sample[None], space.ndim)
        layout, show = look.layout(sample.shape[1:]), partial(sheets.draw_sample, look=look)
        panels["sample"] = partial(show, values=sample)
    for number, theta in enumerate(thetas, 1):
        mark = f" {number}" if len(thetas) > 1 else ""
        if x is not None:
            panels[f"warped{mark}"] = partial(show, values=Warp(space, theta).image(sample))
        field = {"space": space, "theta": -theta, "layout": layout}
        panels[f"{aligned.GRID[space.ndim]}{mark}"] = partial(sheets.draw_grid, **field)
        if len(thetas) == 1:
            panels["velocity"] = partial(sheets.draw_velocity, **field)
    height, n_columns = 1.4 if space.ndim == 2 else 1.1, 2 if space.ndim == 3 else len(panels)
    return sheets.draw_panels(panels, layout, height, n_columns)


def plot_alignments(alignments: Alignments) -> Figure:
    """Draw losses before and after alignment, or traces of chains if they were kept."""
    if alignments.chains:
        return aligned.draw_traces(alignments)
    figure = figures.new_figure(3.6, 3.3)
    axes = figure.subplots()
    before, after = alignments.loss_before, alignments.loss_after
    ends = [float(min(before.min(), after.min())), float(max(before.max(), after.max()))]
    axes.plot(ends, ends, color=figures.FAINT, linewidth=1.0)
    groups = (alignments.converged, figures.GRID), (~alignments.converged, figures.MARKS[0])
    for kept, color in groups:
        axes.scatter(before[kept], after[kept], s=9, color=color, linewidths=0, alpha=0.6)
    figures.style_axes(axes, "loss before", "loss after")
    return figure
