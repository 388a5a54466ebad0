"""Figures of aligned pairs: one pair and its warp, a gallery of pairs, traces of chains."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from dreamwarp.align import Alignments
from dreamwarp.core.samples import as_array, check_finite, pixel_centers, spaced
from dreamwarp.core.validation import check_integer
from dreamwarp.report import figures, sheets, warped
from dreamwarp.report.sheets import Cell, draw_panels, draw_table
from dreamwarp.report.study import Study
from dreamwarp.report.subject import Look, as_sample
from dreamwarp.space import WarpSpace
from dreamwarp.space.warp import Warp

Array = NDArray[Any]
Integers = NDArray[np.int64]

# What the panel of the moved grid shows, by the number of axes.
GRID = {1: "where each time goes", 2: "moved grid", 3: "moved grid"}
# Pairs in a gallery.
N_PAIRS = 8
# Posterior draws used for the spread: its standard error is then below 4 %.
MAX_DRAWS = 400
SPREAD = LinearSegmentedColormap.from_list("spread", ["white", figures.MARKS[3]])
INCHES_PER_LETTER = 0.062


# -- one pair


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
        Volumes are drawn as slices through their middle.
    source, target : (*spatial) or (channels, *spatial)
        See :func:`~dreamwarp.report.sheets.draw_sample`.
    theta : (d,)
        Aligns the source to the target.
    look : Look, optional
        Shades and proportions. Default: from source and target.
    """
    pair = _check_pair(space, source, target)
    look = Look.of(np.stack(pair), space.ndim) if look is None else look
    panels = _list_panels(space, *pair, np.asarray(theta, dtype=np.float64), look)
    height, n_columns = 1.55 if space.ndim == 2 else 1.2, 2 if space.ndim == 3 else 5
    shown = ("source, cells", "target", "velocity", GRID[space.ndim], "source, warped")
    chosen = {name: panels[name] for name in shown}
    return draw_panels(chosen, look.layout(pair[0].shape[1:]), height, n_columns)


def draw_alignment(
    space: WarpSpace,
    source: ArrayLike,
    target: ArrayLike,
    alignments: Alignments,
    index: int = 0,
    *,
    look: Look | None = None,
) -> Figure:
    """Draw one pair, its warp, the differences before and after, and a summary in words.

    If the chains of a sampler were kept, the figure also shows them and the posterior spread: how
    uncertain it is which point of the source belongs to each pixel of the target.

    Parameters
    ----------
    space, source, target, look
        As for :func:`draw_field`.
    alignments : Alignments
        Result of ``align_pairs``.
    index : int
        Number of the pair in ``alignments``.
    """
    if not 0 <= index < len(alignments):
        raise IndexError(
            f"`index` must be from 0 to {len(alignments) - 1} for {len(alignments)} pairs, got "
            f"{index}."
        )
    pair = _check_pair(space, source, target)
    look = Look.of(np.stack(pair), space.ndim) if look is None else look
    shape = pair[0].shape[1:]
    panels = _list_panels(space, *pair, alignments.theta[index], look)
    if alignments.chains:
        spread = displacement_spread(space, alignments.chains[index].reshape(-1, space.dim), shape)
        unit = ("time steps", "pixels", "voxels")[space.ndim - 1]
        title = f"spread, up to {spread.max():.2g} {unit}"
        limits = 0.0, float(spread.max()) or 1.0
        panels[title] = partial(
            sheets.draw_shades, values=spread, colors=SPREAD, limits=limits, look=look
        )
        traces = alignments.log_posteriors[index]
        span = Look(float(traces.min()), float(traces.max()) + 1e-9, is_ink=False)
        panels["log-posterior of chains"] = partial(sheets.draw_sample, values=traces, look=span)
    panels["summary"] = partial(_write_lines, lines=list(describe_alignment(alignments, index)))
    height = {1: 1.5, 2: 2.0, 3: 1.3}[space.ndim]
    n_columns = 2 if space.ndim == 3 else len(panels) // 2
    return draw_panels(panels, look.layout(shape), height, n_columns)


def _check_pair(space: WarpSpace, source: ArrayLike, target: ArrayLike) -> tuple[Array, Array]:
    """Both samples as (channels, *spatial)."""
    first = as_sample(space, as_array("source", source), "source")
    second = as_sample(space, as_array("target", target), "target")
    if first.shape != second.shape:
        raise ValueError(
            f"`source` and `target` must have the same shape, got {np.shape(source)} and "
            f"{np.shape(target)}."
        )
    check_finite("source", first)
    check_finite("target", second)
    return first, second


def _list_panels(
    space: WarpSpace, source: Array, target: Array, theta: Array, look: Look
) -> dict[str, Cell]:
    """All views of a pair, by title."""
    layout = look.layout(source.shape[1:])
    # Content moves by the inverse.
    field: dict[str, Any] = {"space": space, "theta": -theta, "layout": layout}
    warped = Warp(space, theta).image(source)

    def draw_cells(axes: Axes, box: sheets.Area) -> None:
        sheets.draw_sample(axes, box, source, look)
        sheets.draw_tessellation(axes, box, space, layout)

    compare = partial(sheets.draw_difference, second=target, look=look)
    return {
        "source, cells": draw_cells,
        "target": partial(sheets.draw_sample, values=target, look=look),
        "source, warped": partial(sheets.draw_sample, values=warped, look=look, behind=target),
        "difference before": partial(compare, first=source),
        "difference after": partial(compare, first=warped),
        "velocity": partial(sheets.draw_velocity, **field),
        GRID[space.ndim]: partial(sheets.draw_grid, **field),
    }


def _write_lines(axes: Axes, box: sheets.Area, lines: Sequence[str]) -> None:
    """Write text into a box, from its top."""
    n_letters = int(box.width / INCHES_PER_LETTER)
    words = "\n".join(part for line in lines for part in textwrap.wrap(line, n_letters))
    sheets.write(axes, box.x, box.y, words, size=8.5, va="top")


def describe_alignment(alignments: Alignments, index: int = 0) -> Iterator[str]:
    """Yield losses and diagnostics of a pair, line by line."""
    before, after = float(alignments.loss_before[index]), float(alignments.loss_after[index])
    if alignments.sigma is not None:
        share = f", {after / before:.1%} of it" if before > 0 else ""
        yield f"squared difference before {before:.4g}, after {after:.4g}{share}"
        yield f"noise sigma {alignments.sigma:.3g}"
    else:
        yield f"minus log-likelihood before {before:.4g}, after {after:.4g}"
    found = {name: values[index] for name, values in alignments.diagnostics.items()}
    if "r_hat" in found:
        yield (
            f"R-hat {found['r_hat']:.3f}, {found['ess']:.0f} effective draws, acceptance "
            f"{found['acceptance']:.2f}, {found['n_sweeps']} sweeps of each chain"
        )
    yield f"log-posterior {found['log_posterior']:.4g}, {found['n_steps']} steps of the search"
    remedy = "max_draws" if "r_hat" in found else "max_steps"
    yield (
        "converged" if alignments.converged[index] else
        f"not converged: a larger `{remedy}` may help"
    )  # fmt: skip
    if not alignments.usable[index]:
        yield "not usable: the pair can't be aligned"


def displacement_spread(space: WarpSpace, draws: Array, shape: tuple[int, ...]) -> Array:
    """Standard deviation of T^θ at each pixel, over draws of θ (n, d): (*shape).

    In pixels: the root of the sum of the variances along the axes.
    """
    moved = space.flow(draws[spaced(len(draws), MAX_DRAWS)], pixel_centers(shape)) * shape
    return np.sqrt(moved.var(axis=0).sum(axis=-1)).reshape(shape)


# -- pairs of a study


def draw_best(study: Study, *, label: Any = None) -> Figure:
    """Draw the warp of the pair with the largest decrease in loss, of a class or of all."""
    pairs = find_pairs(study, label)
    gain = study.alignments.loss_before - study.alignments.loss_after
    pair = int(pairs[np.argmax(gain[pairs])])
    source, target = (study.subject.X[end] for end in study.edges[pair])
    theta, look = study.alignments.theta[pair], study.subject.look
    return draw_field(study.model.space, source, target, theta, look=look)


def draw_gallery(study: Study, *, label: Any = None, n: int = N_PAIRS) -> Figure:
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
    subject, notes = study.subject, []
    rows: list[tuple[str, list[Cell]]] = []
    for index in map(int, [*worst, *typical]):
        source, target = (subject.sample(int(end)) for end in study.edges[index])
        theta = study.alignments.theta[index]
        panels = _list_panels(study.model.space, source, target, theta, subject.look)
        others = ("target", "source, warped", "difference before", "difference after")
        cells = [warped.show(subject, source), *(panels[name] for name in others)]
        name = str(subject.labels[study.pair_codes[index]])
        rows.append((name, cells))
        lines = [f"warp size {study.sizes[index]:.1f}"]
        if study.alignments.sigma is not None:
            lines.insert(0, f"{study.left_over[index]:.0%} remaining")
        if len(typical) and index in (worst[0], typical[0]):
            lines.insert(0, "the worst:" if index == worst[0] else "typical to good:")
        notes.append("\n".join(lines))
    titles = ("source", "target", "warped", "difference\nbefore", "difference\nafter")
    return draw_table(
        subject.layout, rows, list(enumerate(titles)), gaps=(3,),
        height={1: 0.62, 2: 0.8, 3: 0.7}[study.model.space.ndim], notes=notes,
    )  # fmt: skip


def choose_pairs(study: Study, label: Any, n: int) -> tuple[Integers, Integers]:
    """Choose the worst pairs, of a class or of all, and as many from typical to best."""
    pairs = find_pairs(study, label)
    order = pairs[np.argsort(-study.left_over[pairs], kind="stable")]
    n_worst = min(-(-n // 2), len(order))
    rest = order[n_worst:]
    places = np.linspace(0.0, 1.0, n - n_worst + 2)[1:-1] * max(0, len(rest) - 1)
    return order[:n_worst], rest[np.unique(places.round().astype(np.int64))] if len(rest) else rest


def find_pairs(study: Study, label: Any = None) -> Integers:
    """Find usable pairs that had a difference, of a class or of all; raise if there are none."""
    pairs = np.flatnonzero(study.alignments.usable & np.isfinite(study.left_over))
    if label is not None:
        pairs = pairs[study.pair_codes[pairs] == study.subject.code_of(label)]
    if not len(pairs):
        raise ValueError("`study` must have pairs that can be aligned, got none.")
    return pairs


# -- chains


def draw_chains(study: Study, *, label: Any = None) -> Figure:
    """Sample the posteriors of the worst, a typical and a good pair, and draw their traces."""
    worst, typical = choose_pairs(study, label, 4)
    pairs = np.concatenate([worst[:1], typical[-2:]])
    chains = study.sample_chains(pairs)
    names = ("worst pair", "typical pair", "good pair")
    titles = [
        f"{name}, class {study.subject.labels[study.pair_codes[pair]]}"
        for name, pair in zip(names, pairs, strict=False)
    ]
    return draw_traces(chains, titles=titles)


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
        title = f"{name}: R-hat {r_hat:.3f}, {ess:.0f} effective draws"
        left.set_title(title, fontsize=9.5, loc="left", color=figures.INK)
        _draw_chains(left, right, alignments.log_posteriors[index])
        is_last = index == n - 1
        figures.style_axes(left, "draw" if is_last else "", "log-posterior")
        figures.style_axes(right, "fraction of draws" if is_last else "")
    return figure


def _draw_chains(left: Axes, right: Axes, traces: Array) -> None:
    """Draw values along chains (n_chains, n_draws) and their histograms, in a colour per chain."""
    bins = np.histogram_bin_edges(traces, 24).tolist()
    colors = (figures.GRID, *figures.MARKS)
    for chain, trace in enumerate(traces):
        color = colors[chain % len(colors)]
        left.plot(np.arange(1, len(trace) + 1), trace, color=color, linewidth=0.7)
        right.hist(
            trace, bins=bins, weights=np.full(len(trace), 1.0 / len(trace)), color=color,
            orientation="horizontal", histtype="step", linewidth=1.2,
        )  # fmt: skip
    right.set_ylim(left.get_ylim())
    right.set_yticklabels([])
    left.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    right.xaxis.set_major_locator(MaxNLocator(2))
