"""How well a pair of samples was aligned, as a picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap
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
# Title and drawing.
Panel = tuple[str, Callable[[Axes, "Pair"], None]]

# Inches.
PANEL, PANEL_1D = (2.2, 2.4), (2.8, 2.2)
MAX_RATIO = 2.0
# Height of the slices of a volume.
SLICES = 1.3
# Posterior draws that the spread is computed from: its standard error is then below 4 %.
MAX_DRAWS = 400
# Too little where the source has less than the target, too much where it has more.
DIFFERENCE = LinearSegmentedColormap.from_list(
    "difference", [figures.MARKS[0], "white", figures.GRID]
)
SPREAD = LinearSegmentedColormap.from_list("spread", ["white", figures.MARKS[3]])


@dataclass(frozen=True)
class Pair:
    """What is drawn of a pair.

    Parameters
    ----------
    space : WarpSpace
    theta : (d,)
    source, target, warped : (channels, *spatial)
        Their values, from 0, the lowest of source and target, to 1, the highest.
    draws : (n, d)
        Of the posterior; none if there are no chains.
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


def draw_alignment(
    space: WarpSpace,
    source: ArrayLike,
    target: ArrayLike,
    alignments: Alignments,
    index: int = 0,
) -> Figure:
    """One pair and its warp: both samples, the source warped, what differs before and after.

    Velocity and grid are drawn as the content of the source moves, by T^{-θ}. Where the draws of a
    sampler were kept there are also the posterior spread (how uncertain it is, at each pixel of the
    target, which point of the source belongs there) and traces of the chains.

    Parameters
    ----------
    space : WarpSpace
        The one that was aligned in. Volumes are drawn as slices through their middle.
    source, target : (*spatial) or (channels, *spatial)
        The pair. Three channels are shown as red, green and blue, other numbers by their mean.
    alignments : Alignments
        Of ``align_pairs``.
    index : int
        Which of its pairs this is.

    Returns
    -------
    matplotlib.figure.Figure
    """
    pair = _collect(space, source, target, alignments, index)
    panels_fn = {1: _line_panels, 2: _plane_panels, 3: _volume_panels}[space.ndim]
    panels = list(panels_fn(pair))
    n_columns = math.ceil(len(panels) / 2)
    width, height = _panel_size(pair.shape)
    figure = figures.new_figure(width * n_columns, 2 * height)
    for axes, (title, draw_fn) in zip(figure.subplots(2, n_columns).flat, panels, strict=True):
        draw_fn(axes, pair)
        axes.set_title(title, fontsize=10, color=figures.INK)
    return figure


def _panel_size(shape: tuple[int, ...]) -> tuple[float, float]:
    """Width and height in inches: longer for long images, within what is still a picture."""
    if len(shape) == 1:
        return PANEL_1D
    if len(shape) == 3:
        return sheets.box_width(shape, SLICES) + 0.15, SLICES + 0.4
    ratio = min(max(shape[0] / shape[1], 1 / MAX_RATIO), MAX_RATIO)
    return PANEL[0] * max(1.0, 1.0 / ratio), PANEL[1] * max(1.0, ratio)


def _plane_panels(pair: Pair) -> Iterator[Panel]:
    """Titles and drawings of an image's panels, row by row; as many in each of two rows."""
    yield "source", lambda axes, p: _draw_image(axes, p.source)
    yield "target", lambda axes, p: _draw_image(axes, p.target)
    yield "source, warped", lambda axes, p: _draw_image(axes, p.warped)
    yield "velocity", _draw_velocity
    if len(pair.draws):
        yield "posterior spread, pixels", _draw_spread
    yield "difference before", lambda axes, p: _draw_difference(axes, p, p.source)
    yield "difference after", lambda axes, p: _draw_difference(axes, p, p.warped)
    yield "grid", _draw_grid
    if len(pair.draws):
        yield "log-posterior of chains", _draw_traces
    yield "summary", _draw_summary


def _line_panels(pair: Pair) -> Iterator[Panel]:
    """The same of a signal's panels."""
    yield "source", lambda axes, p: _draw_signals(axes, p.source)
    yield "target", lambda axes, p: _draw_signals(axes, p.target)
    yield "source, warped, on target", lambda axes, p: _draw_signals(axes, p.warped, p.target)
    yield "velocity", _draw_velocity_line
    if len(pair.draws):
        yield "posterior spread, samples", _draw_spread_line
    yield "difference before", lambda axes, p: _draw_difference_line(axes, p, p.source)
    yield "difference after", lambda axes, p: _draw_difference_line(axes, p, p.warped)
    yield "where points go", _draw_map
    if len(pair.draws):
        yield "log-posterior of chains", _draw_traces
    yield "summary", _draw_summary


def _volume_panels(pair: Pair) -> Iterator[Panel]:
    """The same of a volume's panels: slices through the middle."""
    yield "source", lambda axes, p: _draw_slices(axes, p.source)
    yield "target", lambda axes, p: _draw_slices(axes, p.target)
    yield "source, warped", lambda axes, p: _draw_slices(axes, p.warped)
    yield "velocity", _draw_velocity_slices
    if len(pair.draws):
        yield "posterior spread, voxels", _draw_spread_slices
    yield "difference before", lambda axes, p: _draw_difference_slices(axes, p, p.source)
    yield "difference after", lambda axes, p: _draw_difference_slices(axes, p, p.warped)
    yield "grid", _draw_grid_slices
    if len(pair.draws):
        yield "log-posterior of chains", _draw_traces
    yield "summary", _draw_summary


# -- what is drawn


def _collect(
    space: WarpSpace, source: ArrayLike, target: ArrayLike, alignments: Alignments, index: int
) -> Pair:
    if not 0 <= index < len(alignments):
        raise IndexError(
            f"`index` must be that of one of {len(alignments)} pairs, 0 to "
            f"{len(alignments) - 1}, got {index}."
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
    """A sample as (channels, *spatial), integers scaled as ``align_pairs`` scales them."""
    values = as_array(name, sample)
    if values.ndim not in (space.ndim, space.ndim + 1) or values.size == 0:
        raise ValueError(
            f"`{name}` must be one sample, (*spatial) or (channels, *spatial) with {space.ndim} "
            f"spatial {'axis' if space.ndim == 1 else 'axes'}, as many as the space has, got shape "
            f"{values.shape}."
        )
    scale = np.iinfo(values.dtype).max if values.dtype.kind in "iu" else 1.0
    values = values.astype(np.float64) / scale
    if not np.isfinite(values).all():
        raise ValueError(f"`{name}` must be finite, got NaN or infinity.")
    return values if values.ndim == space.ndim + 1 else values[None]


def _summarize(alignments: Alignments, index: int) -> str:
    """What the result says of a pair, line by line."""
    before, after = alignments.loss_before[index], alignments.loss_after[index]
    found = {name: values[index] for name, values in alignments.diagnostics.items()}
    lines = [f"loss before  {before:.4g}", f"loss after  {after:.4g}"]
    if alignments.sigma is not None:
        if before > 0:
            lines.append(f"left over  {after / before:.0%}")
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
    """Standard deviation of where T^θ carries each pixel, over draws of θ (n, d): (*shape).

    In pixels: the root of the sum of the variances along the axes.
    """
    axes = [(np.arange(size) + 0.5) / size for size in shape]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(shape))
    spaced = np.linspace(0, len(draws) - 1, min(MAX_DRAWS, len(draws))).round().astype(np.int64)
    moved = space.flow(draws[spaced], points) * np.asarray(shape, dtype=np.float64)
    return np.sqrt(moved.var(axis=0).sum(axis=-1)).reshape(shape)


def _largest_difference(pair: Pair) -> float:
    """Of both difference panels, so that they have one scale."""
    differences = (_difference(pair, values) for values in (pair.source, pair.warped))
    return max(float(np.abs(each).max()) for each in differences) or 1.0


def _difference(pair: Pair, values: Array) -> Array:
    """To the target, (*spatial); of several channels their root mean square, without a sign."""
    by_channel = values - pair.target
    if len(by_channel) == 1:
        return by_channel[0]
    return np.sqrt((by_channel**2).mean(axis=0))


# -- panels of images


def _prepare(axes: Axes, shape: tuple[int, ...]) -> None:
    figures.prepare_axes(axes)
    axes.set_aspect(shape[0] / shape[1])


def _draw_image(axes: Axes, values: Array) -> None:
    figures.draw_image(axes, np.moveaxis(values, 0, -1) if len(values) == 3 else values.mean(0))
    _prepare(axes, values.shape[1:])


def _draw_difference(axes: Axes, pair: Pair, values: Array) -> None:
    largest = _largest_difference(pair)
    _show(axes, _difference(pair, values), DIFFERENCE, -largest, largest)


def _draw_spread(axes: Axes, pair: Pair) -> None:
    spread = displacement_spread(pair.space, pair.draws, pair.shape)
    shown = _show(axes, spread, SPREAD, 0.0, float(spread.max()) or 1.0)
    bar = axes.figure.colorbar(shown, ax=axes, fraction=0.05, pad=0.03)
    bar.ax.tick_params(labelsize=7, colors=figures.INK)
    bar.ax.yaxis.set_major_locator(MaxNLocator(4))
    bar.outline.set_edgecolor(figures.FAINT)


def _show(axes: Axes, values: Array, colors: Colormap, low: float, high: float) -> Any:
    _prepare(axes, values.shape)
    return axes.imshow(
        values, cmap=colors, vmin=low, vmax=high, extent=(0.0, 1.0, 1.0, 0.0),
        interpolation="antialiased", aspect=values.shape[0] / values.shape[1],
    )  # fmt: skip


def _draw_velocity(axes: Axes, pair: Pair) -> None:
    _prepare(axes, pair.shape)
    figures.draw_tessellation(axes, pair.space)
    figures.draw_velocity(axes, pair.space, -pair.theta)


def _draw_grid(axes: Axes, pair: Pair) -> None:
    _prepare(axes, pair.shape)
    figures.draw_grid(axes, pair.space, -pair.theta)
    # Where the border is free, the grid reaches past the unit square.
    axes.margins(0.0)
    axes.autoscale(True)


# -- panels of volumes


def _prepare_slices(axes: Axes, shape: tuple[int, ...]) -> sheets.Box:
    width = sheets.box_width(shape, SLICES)
    sheets.prepare_sheet(axes, width, SLICES)
    axes.set_aspect("equal")
    return sheets.Box(0.0, 0.0, width, SLICES)


def _draw_slices(axes: Axes, values: Array) -> None:
    box = _prepare_slices(axes, values.shape[1:])
    sheets.draw_sample(axes, box, values, Look(0.0, 1.0, True))


def _draw_difference_slices(axes: Axes, pair: Pair, values: Array) -> None:
    box, largest = _prepare_slices(axes, pair.shape), _largest_difference(pair)
    sheets.draw_difference(axes, box, values, pair.target, Look(0.0, 1.0, True), largest)


def _draw_velocity_slices(axes: Axes, pair: Pair) -> None:
    box = _prepare_slices(axes, pair.shape)
    sheets.draw_velocity(axes, box, pair.space, -pair.theta, pair.shape)


def _draw_grid_slices(axes: Axes, pair: Pair) -> None:
    box = _prepare_slices(axes, pair.shape)
    sheets.draw_grid(axes, box, pair.space, -pair.theta, pair.shape)


def _draw_spread_slices(axes: Axes, pair: Pair) -> None:
    box = _prepare_slices(axes, pair.shape)
    spread = displacement_spread(pair.space, pair.draws, pair.shape)
    sheets.draw_shades(axes, box, spread, SPREAD, float(spread.max()) or 1.0)


# -- panels of signals


def _prepare_interval(axes: Axes) -> None:
    axes.set_xlim(0.0, 1.0)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(figures.FAINT)


def _draw_signals(axes: Axes, values: Array, behind: Array | None = None) -> None:
    """A line per channel, and those of another signal behind them."""
    _prepare_interval(axes)
    axes.set_ylim(-0.05, 1.05)
    centers = (np.arange(values.shape[1]) + 0.5) / values.shape[1]
    if behind is not None:
        axes.plot(centers, behind.T, color=figures.FAINT, linewidth=2.5)
    colors = (figures.INK, *figures.MARKS)
    for channel, line in enumerate(values):
        axes.plot(centers, line, color=colors[channel % len(colors)], linewidth=1.0)


def _draw_difference_line(axes: Axes, pair: Pair, values: Array) -> None:
    largest, length = 1.05 * _largest_difference(pair), pair.shape[0]
    _prepare_interval(axes)
    axes.set_ylim(-largest, largest)
    axes.axhline(0.0, color=figures.FAINT, linewidth=0.8)
    axes.fill_between(
        (np.arange(length) + 0.5) / length, _difference(pair, values), color=figures.MARKS[0],
        linewidth=0.0, alpha=0.7,
    )  # fmt: skip


def _draw_velocity_line(axes: Axes, pair: Pair) -> None:
    points = np.linspace(0.0, 1.0, figures.POINTS_PER_LINE)
    velocity = pair.space.velocity(-pair.theta, points[:, None])[:, 0]
    largest = 1.05 * (float(np.abs(velocity).max()) or 1.0)
    _prepare_interval(axes)
    axes.set_ylim(-largest, largest)
    axes.axhline(0.0, color=figures.FAINT, linewidth=0.8)
    axes.plot(points, velocity, color=figures.GRID, linewidth=1.2)


def _draw_map(axes: Axes, pair: Pair) -> None:
    points = np.linspace(0.0, 1.0, figures.POINTS_PER_LINE)
    _prepare_interval(axes)
    axes.plot(points, points, color=figures.FAINT, linewidth=0.8)
    moved = pair.space.flow(-pair.theta, points[:, None])[:, 0]
    axes.plot(points, moved, color=figures.GRID, linewidth=1.2)


def _draw_spread_line(axes: Axes, pair: Pair) -> None:
    spread = displacement_spread(pair.space, pair.draws, pair.shape)
    _prepare_interval(axes)
    axes.fill_between(
        (np.arange(len(spread)) + 0.5) / len(spread), spread, color=figures.MARKS[3],
        linewidth=0.0, alpha=0.7,
    )  # fmt: skip
    axes.set_ylim(0.0, 1.05 * (float(spread.max()) or 1.0))
    _label_heights(axes)


# -- panels of both


def _draw_traces(axes: Axes, pair: Pair) -> None:
    for chain, trace in enumerate(pair.traces):
        color = figures.MARKS[chain % len(figures.MARKS)]
        axes.plot(np.arange(1, len(trace) + 1), trace, color=color, linewidth=0.6)
    axes.set_xlabel("draw", fontsize=8, color=figures.INK)
    axes.tick_params(labelsize=7, colors=figures.INK)
    axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    _label_heights(axes)
    for spine in axes.spines.values():
        spine.set_color(figures.FAINT)


def _label_heights(axes: Axes) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.tick_params(axis="y", labelsize=7, colors=figures.INK)


def _draw_summary(axes: Axes, pair: Pair) -> None:
    axes.set_axis_off()
    axes.text(
        0.05, 0.97, pair.summary, transform=axes.transAxes, fontsize=9, color=figures.INK,
        verticalalignment="top", linespacing=1.5,
    )  # fmt: skip
