"""Figures of aligned pairs: the parts of one warp, a gallery of pairs, traces of chains."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from dreamwarp.align import Alignments
from dreamwarp.augment.subject import Look, as_sample
from dreamwarp.core.validation import check_integer
from dreamwarp.report import figures, sheets
from dreamwarp.report.galleries import Cell, draw_panels, draw_table
from dreamwarp.report.sheets import draw_difference, draw_sample
from dreamwarp.report.study import Study
from dreamwarp.space import WarpSpace
from dreamwarp.space.warp import Warp

Array = NDArray[Any]
Integers = NDArray[np.int64]


def draw_field(
    space: WarpSpace,
    source: ArrayLike,
    target: ArrayLike,
    theta: ArrayLike,
    *,
    look: Look | None = None,
) -> Figure:
    """Draw the parts of a warp: the paper's figure 2.

    The source with the cells of the space, the target, the velocity field, the moved grid, and the
    warped source. Velocity and grid show how the content moves, by T^{-θ}.

    Parameters
    ----------
    space : WarpSpace
    source, target : (*spatial) or (channels, *spatial)
    theta : (d,)
        Aligns the source to the target.
    look : Look, optional
        Shades and proportions. Default: from source and target.
    """
    first = as_sample(space, np.asarray(source), "source")
    second = as_sample(space, np.asarray(target), "target")
    if first.shape != second.shape:
        raise ValueError(
            f"`source` and `target` must have the same shape, got {np.shape(source)} and "
            f"{np.shape(target)}."
        )
    values = np.asarray(theta, dtype=np.float64)
    warped = Warp(space, values).image(first)
    look = Look.of(np.stack([first, second])) if look is None else look
    extent = look.extent(first.shape[1:])

    def draw_cells(axes: Axes, box: sheets.Area) -> None:
        draw_sample(axes, box, first, look)
        sheets.draw_tessellation(axes, box, space, extent)

    field: dict[str, Any] = {"space": space, "theta": -values, "extent": extent}
    panels: dict[str, Cell] = {
        "source, cells": draw_cells,
        "target": partial(draw_sample, values=second, look=look),
        "velocity": partial(sheets.draw_velocity, **field),
        "grid": partial(sheets.draw_grid, **field),
        "source, warped": partial(draw_sample, values=warped, look=look, behind=second),
    }
    height, n_columns = 1.55 if space.ndim == 2 else 1.2, 2 if space.ndim == 3 else 5
    return draw_panels(panels, extent, height, n_columns)


def draw_best(study: Study, *, label: Any = None) -> Figure:
    """Draw the warp of the pair with the largest decrease in loss, of a class or of all."""
    gain = study.alignments.loss_before - study.alignments.loss_after
    gain = np.where(study.alignments.usable, gain, -np.inf)
    if label is not None:
        gain = np.where(study.pair_codes == study.subject.code_of(label), gain, -np.inf)
    pair = int(np.argmax(gain))
    source, target = (study.subject.X[end] for end in study.edges[pair])
    theta, look = study.alignments.theta[pair], study.subject.look
    return draw_field(study.model.space, source, target, theta, look=look)


# -- many pairs


def draw_gallery(study: Study, *, label: Any = None, n: int = 8) -> Figure:
    """Draw pairs before and after alignment, worst first: the paper's figure 3.

    Half of the pairs have the largest remaining differences; the others range from typical to best.

    Parameters
    ----------
    study : Study
        See :func:`dreamwarp.report.make_study`.
    label : optional
        A class. Default: all.
    n : int
        Number of pairs.
    """
    worst, typical = choose_pairs(study, label, check_integer("n", n, 1))
    subject, rows, notes = study.subject, [], []
    for index in map(int, [*worst, *typical]):
        source, target = (subject.sample(int(end)) for end in study.edges[index])
        warped = subject.warp(study.alignments.theta[index], int(study.edges[index, 0]))
        look = subject.look
        cells = [partial(draw_sample, values=values, look=look) for values in (source, target)]
        cells.append(partial(draw_sample, values=warped, look=look, behind=target))
        for values in (source, warped):
            cells.append(partial(draw_difference, first=values, second=target, look=look))
        name = str(subject.labels[study.pair_codes[index]])
        rows.append((f"worst {name}" if index in worst else name, cells))
        size = f"warp size {study.sizes[index]:.1f}"
        if not study.alignments.usable[index]:
            notes.append("can't be aligned")
        elif study.alignments.sigma is None:
            notes.append(size)
        else:
            notes.append(f"{study.left_over[index]:.0%} remaining\n{size}")
    titles = ("source", "target", "warped", "before", "after")
    return draw_table(
        subject.extent, rows, list(enumerate(titles)), gaps=(3,),
        height={1: 0.62, 2: 0.8, 3: 0.7}[study.model.space.ndim], notes=notes,
    )  # fmt: skip


def choose_pairs(study: Study, label: Any, n: int) -> tuple[Integers, Integers]:
    """Choose the worst pairs, of a class or of all, and as many from typical to best."""
    left = np.where(study.alignments.usable, study.left_over, np.nan)
    candidates = np.flatnonzero(np.isfinite(left))
    if label is not None:
        candidates = candidates[study.pair_codes[candidates] == study.subject.code_of(label)]
    if not len(candidates):
        raise ValueError("`study` must have pairs that can be aligned, got none.")
    order = candidates[np.argsort(-left[candidates], kind="stable")]
    n_worst = min(-(-n // 2), len(order))
    rest = order[n_worst:]
    places = np.linspace(0.0, 1.0, n - n_worst + 2)[1:-1] * max(0, len(rest) - 1)
    return order[:n_worst], rest[np.unique(places.round().astype(np.int64))] if len(rest) else rest


# -- chains


def draw_traces(alignments: Alignments, *, titles: Sequence[str] | None = None) -> Figure:
    """Draw traces and histograms of the log-posterior along the chains of each pair.

    Chains that have mixed look alike and show no trend.

    Parameters
    ----------
    alignments : Alignments
        Made with ``method="metropolis"`` or ``"hmc"`` and ``keep_chains=True``. The first six pairs
        are drawn.
    titles : sequence of str, optional
        One for each pair.
    """
    if not alignments.chains:
        raise ValueError(
            "`alignments` must have chains, got none. Align with method='metropolis' or 'hmc' and "
            "keep_chains=True."
        )
    n = min(6, len(alignments.log_posteriors))
    figure = figures.new_figure(7.6, 1.75 * n + 0.2)
    panels = figure.subplots(n, 2, squeeze=False, width_ratios=(4, 1))
    for index, (left, right) in enumerate(panels):
        name = f"pair {index + 1}" if titles is None else titles[index]
        r_hat, ess = (alignments.diagnostics[key][index] for key in ("r_hat", "ess"))
        left.set_title(
            f"{name}: R-hat {r_hat:.3f}, {ess:.0f} effective draws", fontsize=9.5, loc="left",
            color=figures.INK,
        )  # fmt: skip
        _draw_chains(left, right, alignments.log_posteriors[index])
    for axes, name in zip(panels[-1], ("draw", "fraction of draws"), strict=True):
        axes.set_xlabel(name, fontsize=9, color=figures.INK)
    return figure


def _draw_chains(left: Axes, right: Axes, traces: Array) -> None:
    bins = np.histogram_bin_edges(traces, 24).tolist()
    figures.plot_traces(left, traces)
    for line, trace in zip(left.lines, traces, strict=True):
        weights = np.full(len(trace), 1.0 / len(trace))
        right.hist(
            trace, bins=bins, weights=weights, orientation="horizontal", histtype="step",
            color=line.get_color(), linewidth=1.2,
        )  # fmt: skip
    right.set_ylim(left.get_ylim())
    right.set_yticklabels([])
    figures.style_axes(left, y_label="log-posterior")
    figures.style_axes(right)
    left.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    right.xaxis.set_major_locator(MaxNLocator(2))
