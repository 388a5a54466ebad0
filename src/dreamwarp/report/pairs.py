"""A figure of one aligned pair: samples, warp, differences, posterior."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from dreamwarp.align import Alignments
from dreamwarp.core.samples import as_array
from dreamwarp.data.look import Look
from dreamwarp.report import figures, sheets
from dreamwarp.space import WarpSpace
from dreamwarp.space.warp import Warp

Array = NDArray[np.float64]

# Size of a panel in inches, for images and for signals; height of the slices of a volume.
PANEL, PANEL_1D, SLICES = (2.2, 2.4), (2.8, 2.2), 1.3
MAX_RATIO = 2.0
# Posterior draws used for the spread: its standard error is then below 4 %.
MAX_DRAWS = 400
SPREAD = LinearSegmentedColormap.from_list("spread", ["white", figures.MARKS[3]])
UNIT = Look(0.0, 1.0, True)


@dataclass(frozen=True)
class Pair:
    """One aligned pair, and how to draw each of its panels into axes.

    Parameters
    ----------
    space : WarpSpace
    theta : (d,)
    source, target, warped : (channels, *spatial)
        Scaled so that source and target together span 0 to 1.
    draws : (n, d)
        Posterior draws; empty without chains.
    traces : (n_chains, n_draws)
        Log-posterior along the chains.
    summary : str
    """

    space: WarpSpace
    theta: Array
    source: Array
    target: Array
    warped: Array
    draws: Array
    traces: Array
    summary: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Pixels per axis."""
        return self.source.shape[1:]

    @cached_property
    def largest_difference(self) -> float:
        """Common scale of both difference panels."""
        return max(
            float(np.abs(sheets.subtract(values, self.target)).max())
            for values in (self.source, self.warped)
        ) or 1.0  # fmt: skip

    def prepare(self, axes: Axes) -> sheets.Box:
        """Turn axes into a sheet with one box, and return the box. Images get square pixels."""
        width, height = 1.0, 1.0
        if len(self.shape) == 3:
            width, height = sheets.box_width(self.shape, SLICES), SLICES
        sheets.prepare_sheet(axes, width, height)
        if len(self.shape) == 2:
            axes.set_aspect(self.shape[0] / self.shape[1])
        return sheets.Box(0.0, 0.0, width, height)

    def draw_sample(self, axes: Axes, values: Array, behind: Array | None = None) -> None:
        """Draw a sample; behind a signal, another one."""
        sheets.draw_sample(axes, self.prepare(axes), values, UNIT, behind=behind)

    def draw_difference(self, axes: Axes, values: Array) -> None:
        """Draw the difference of a sample to the target."""
        box = self.prepare(axes)
        sheets.draw_difference(axes, box, values, self.target, UNIT, self.largest_difference)

    def draw_velocity(self, axes: Axes) -> None:
        """Draw the velocity field of -θ; for images, over the cells."""
        box = self.prepare(axes)
        if self.space.ndim == 2:
            sheets.draw_tessellation(axes, box, self.space, self.shape, color=figures.FAINT)
        sheets.draw_velocity(axes, box, self.space, -self.theta, self.shape)

    def draw_grid(self, axes: Axes) -> None:
        """Draw the grid moved by T^{-θ}."""
        box, is_image = self.prepare(axes), self.space.ndim == 2
        sheets.draw_grid(axes, box, self.space, -self.theta, self.shape, clip=not is_image)
        if is_image:  # with a free boundary the grid leaves the unit square
            axes.margins(0.0)
            axes.autoscale(True)

    def draw_spread(self, axes: Axes) -> None:
        """Draw the posterior spread of each pixel's position."""
        spread = displacement_spread(self.space, self.draws, self.shape)
        largest = float(spread.max()) or 1.0
        if spread.ndim == 1:
            centers = (np.arange(len(spread)) + 0.5) / len(spread)
            axes.fill_between(centers, spread, color=figures.MARKS[3], linewidth=0.0, alpha=0.7)
            axes.set_xlim(0.0, 1.0)
            axes.set_ylim(0.0, 1.05 * largest)
            axes.set_xticks([])
            _style(axes)
            return
        sheets.draw_shades(axes, self.prepare(axes), spread, SPREAD, largest)
        if spread.ndim == 2:
            bar = axes.figure.colorbar(axes.images[-1], ax=axes, fraction=0.05, pad=0.03)
            _style(bar.ax)

    def draw_traces(self, axes: Axes) -> None:
        """Draw the log-posterior along the chains."""
        for chain, trace in enumerate(self.traces):
            color = figures.MARKS[chain % len(figures.MARKS)]
            axes.plot(np.arange(1, len(trace) + 1), trace, color=color, linewidth=0.6)
        axes.set_xlabel("draw", fontsize=8, color=figures.INK)
        axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
        _style(axes)

    def draw_summary(self, axes: Axes) -> None:
        """Write the summary."""
        axes.set_axis_off()
        axes.text(
            0.05, 0.97, self.summary, transform=axes.transAxes, fontsize=9, color=figures.INK,
            verticalalignment="top", linespacing=1.5,
        )  # fmt: skip


def draw_alignment(
    space: WarpSpace,
    source: ArrayLike,
    target: ArrayLike,
    alignments: Alignments,
    index: int = 0,
) -> Figure:
    """Draw one pair and its warp: both samples, the warped source, differences before and after.

    Velocity and grid show how the content of the source moves, by T^{-θ}. If the chains of a
    sampler were kept, the figure also shows them and the posterior spread: how uncertain it is
    which point of the source belongs to each pixel of the target.

    Parameters
    ----------
    space : WarpSpace
        The space of the alignment. Volumes are drawn as slices through their middle.
    source, target : (*spatial) or (channels, *spatial)
        The pair. Three channels are shown as red, green and blue, other numbers by their mean.
    alignments : Alignments
        Result of ``align_pairs``.
    index : int
        Number of the pair in ``alignments``.

    Returns
    -------
    matplotlib.figure.Figure
    """
    pair = _collect(space, source, target, alignments, index)
    panels = _list_panels(pair)
    n_columns = math.ceil(len(panels) / 2)
    width, height = _panel_size(pair.shape)
    figure = figures.new_figure(width * n_columns, 2 * height)
    for axes, (title, draw_fn) in zip(figure.subplots(2, n_columns).flat, panels, strict=True):
        draw_fn(axes)
        axes.set_title(title, fontsize=10, color=figures.INK)
    return figure


def _list_panels(pair: Pair) -> list[tuple[str, Callable[[Axes], None]]]:
    """Titles and drawing functions of two rows of panels of equal length."""
    is_signal = len(pair.shape) == 1
    top: list[tuple[str, Callable[[Axes], None]]] = [
        ("source", lambda axes: pair.draw_sample(axes, pair.source)),
        ("target", lambda axes: pair.draw_sample(axes, pair.target)),
        ("source, warped, on target" if is_signal else "source, warped",
         lambda axes: pair.draw_sample(axes, pair.warped, pair.target)),
        ("velocity", pair.draw_velocity),
    ]  # fmt: skip
    bottom: list[tuple[str, Callable[[Axes], None]]] = [
        ("difference before", lambda axes: pair.draw_difference(axes, pair.source)),
        ("difference after", lambda axes: pair.draw_difference(axes, pair.warped)),
        ("where points go" if is_signal else "grid", pair.draw_grid),
    ]
    if len(pair.draws):
        unit = ("samples", "pixels", "voxels")[len(pair.shape) - 1]
        top.append((f"posterior spread, {unit}", pair.draw_spread))
        bottom.append(("log-posterior of chains", pair.draw_traces))
    return [*top, *bottom, ("summary", pair.draw_summary)]


def _panel_size(shape: tuple[int, ...]) -> tuple[float, float]:
    """Width and height in inches, following the proportions of the sample up to MAX_RATIO."""
    if len(shape) == 1:
        return PANEL_1D
    if len(shape) == 3:
        return sheets.box_width(shape, SLICES) + 0.15, SLICES + 0.4
    ratio = min(max(shape[0] / shape[1], 1 / MAX_RATIO), MAX_RATIO)
    return PANEL[0] * max(1.0, 1.0 / ratio), PANEL[1] * max(1.0, ratio)


def _collect(
    space: WarpSpace, source: ArrayLike, target: ArrayLike, alignments: Alignments, index: int
) -> Pair:
    if not 0 <= index < len(alignments):
        raise IndexError(
            f"`index` must be from 0 to {len(alignments) - 1} for {len(alignments)} pairs, got "
            f"{index}."
        )
    first, second = _check_sample(space, "source", source), _check_sample(space, "target", target)
    if first.shape != second.shape:
        raise ValueError(
            f"`source` and `target` must have the same shape, got {np.shape(source)} and "
            f"{np.shape(target)}."
        )
    theta = alignments.theta[index]
    low, high = min(first.min(), second.min()), max(first.max(), second.max())
    first, second = ((values - low) / ((high - low) or 1.0) for values in (first, second))
    warped = Warp(space, theta).image(first)
    draws, traces = np.empty((0, space.dim)), np.empty((0, 0))
    if alignments.chains:
        draws = alignments.chains[index].reshape(-1, space.dim)
        traces = alignments.log_posteriors[index]
    summary = _summarize(alignments, index)
    return Pair(space, theta, first, second, warped, draws, traces, summary)


def _check_sample(space: WarpSpace, name: str, sample: ArrayLike) -> Array:
    """Return a sample as (channels, *spatial), integers scaled as ``align_pairs`` scales them."""
    values = as_array(name, sample)
    if values.ndim not in (space.ndim, space.ndim + 1) or values.size == 0:
        raise ValueError(
            f"`{name}` must be one sample, (*spatial) or (channels, *spatial) with {space.ndim} "
            f"spatial {'axis' if space.ndim == 1 else 'axes'}, as the space has, got shape "
            f"{values.shape}."
        )
    scale = np.iinfo(values.dtype).max if values.dtype.kind in "iu" else 1.0
    values = values.astype(np.float64) / scale
    if not np.isfinite(values).all():
        raise ValueError(f"`{name}` must be finite, got NaN or infinity.")
    return values if values.ndim == space.ndim + 1 else values[None]


def _summarize(alignments: Alignments, index: int) -> str:
    """Losses and diagnostics of a pair, line by line."""
    before, after = alignments.loss_before[index], alignments.loss_after[index]
    found = {name: values[index] for name, values in alignments.diagnostics.items()}
    lines = [f"loss before  {before:.4g}", f"loss after  {after:.4g}"]
    if alignments.sigma is not None:
        if before > 0:
            lines.append(f"remaining  {after / before:.0%}")
        lines.append(f"noise σ  {alignments.sigma:.3g}")
    lines.append(f"steps  {found['n_steps']}")
    if "r_hat" in found:
        lines += [f"R-hat  {found['r_hat']:.3f}", f"effective draws  {found['ess']:.0f}"]
        lines += [f"acceptance  {found['acceptance']:.2f}", f"sweeps  {found['n_sweeps']}"]
    lines.append("converged" if alignments.converged[index] else "not converged")
    if not alignments.usable[index]:
        lines.append("not usable")
    return "\n".join(lines)


def displacement_spread(space: WarpSpace, draws: Array, shape: tuple[int, ...]) -> Array:
    """Standard deviation of T^θ at each pixel, over draws of θ (n, d): (*shape).

    In pixels: the root of the sum of the variances along the axes.
    """
    points = sheets.pixel_centers(shape)
    spaced = np.linspace(0, len(draws) - 1, min(MAX_DRAWS, len(draws))).round().astype(np.int64)
    moved = space.flow(draws[spaced], points) * np.asarray(shape, dtype=np.float64)
    return np.sqrt(moved.var(axis=0).sum(axis=-1)).reshape(shape)


def _style(axes: Any) -> None:
    """Few, small tick labels and faint spines."""
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.tick_params(labelsize=7, colors=figures.INK)
    for spine in axes.spines.values():
        spine.set_color(figures.FAINT)
