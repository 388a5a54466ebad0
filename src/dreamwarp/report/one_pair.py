"""A figure of one aligned pair: samples, warp, differences, posterior."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from dreamwarp.align import Alignments
from dreamwarp.augment.subject import Look, as_sample
from dreamwarp.core.samples import as_array, pixel_centers, spaced
from dreamwarp.report import figures, sheets
from dreamwarp.space import WarpSpace
from dreamwarp.space.warp import Warp

Array = NDArray[np.float64]
# Draws into axes.
Panel = Callable[[Axes], None]

# Size of a panel in inches, for images and for signals; height of the slices of a volume.
PANEL, PANEL_1D, SLICES = (2.2, 2.4), (2.8, 2.2), 1.3
MAX_RATIO = 2.0
# Posterior draws used for the spread: its standard error is then below 4 %.
MAX_DRAWS = 400
SPREAD = LinearSegmentedColormap.from_list("spread", ["white", figures.MARKS[3]])
UNIT = Look(0.0, 1.0, True)


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
        The pair. Of 3 or 4 channels, the first three are shown as red, green and blue. Otherwise
        the mean over channels is shown.
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
    pair = _scale_pair(space, source, target)
    shape, theta = pair[0].shape[1:], alignments.theta[index]
    top, bottom = _list_panels(space, -theta, *pair, Warp(space, theta).image(pair[0]))
    if alignments.chains:
        spread = displacement_spread(space, alignments.chains[index].reshape(-1, space.dim), shape)
        unit = ("samples", "pixels", "voxels")[space.ndim - 1]
        top[f"posterior spread, {unit}"] = partial(_draw_spread, spread=spread)
        traces = alignments.log_posteriors[index]
        bottom["log-posterior of chains"] = partial(_draw_traces, traces=traces)
    bottom["summary"] = partial(_write_summary, words=_summarize(alignments, index))
    width, height = _panel_size(shape)
    figure = figures.new_figure(width * len(top), 2 * height)
    panels = {**top, **bottom}.items()
    for axes, (title, draw_fn) in zip(figure.subplots(2, len(top)).flat, panels, strict=True):
        draw_fn(axes)
        axes.set_title(title, fontsize=10, color=figures.INK)
    return figure


def _scale_pair(space: WarpSpace, source: ArrayLike, target: ArrayLike) -> tuple[Array, Array]:
    """Samples as (channels, *spatial), scaled so that both together span 0 to 1."""
    pair = []
    for name, sample in (("source", source), ("target", target)):
        values = as_sample(space, as_array(name, sample), name)
        # As ``align_pairs`` scales integers.
        scale = np.iinfo(values.dtype).max if values.dtype.kind in "iu" else 1.0
        values = values.astype(np.float64) / scale
        if not np.isfinite(values).all():
            raise ValueError(f"`{name}` must be finite, got NaN or infinity.")
        pair.append(values)
    first, second = pair
    if first.shape != second.shape:
        raise ValueError(
            f"`source` and `target` must have the same shape, got {np.shape(source)} and "
            f"{np.shape(target)}."
        )
    low, high = min(first.min(), second.min()), max(first.max(), second.max())
    scale = (high - low) or 1.0
    return (first - low) / scale, (second - low) / scale


def _list_panels(
    space: WarpSpace, theta: Array, source: Array, target: Array, warped: Array
) -> tuple[dict[str, Panel], dict[str, Panel]]:
    """Two rows of panels by title; velocity and grid are those of ``theta``."""
    shape, is_signal, is_image = source.shape[1:], space.ndim == 1, space.ndim == 2
    differences = [sheets.subtract(values, target) for values in (source, warped)]
    largest = float(np.abs(differences).max()) or 1.0

    def show(values: Array, behind: Array | None = None) -> Panel:
        return lambda axes: sheets.draw_sample(
            axes, _prepare(axes, shape), values, UNIT, behind=behind
        )

    def compare(values: Array) -> Panel:
        return lambda axes: sheets.draw_difference(
            axes, _prepare(axes, shape), values, target, UNIT, largest
        )

    def draw_velocity(axes: Axes) -> None:
        box = _prepare(axes, shape)
        if is_image:
            sheets.draw_tessellation(axes, box, space, shape, color=figures.FAINT)
        sheets.draw_velocity(axes, box, space, theta, shape)

    def draw_grid(axes: Axes) -> None:
        sheets.draw_grid(axes, _prepare(axes, shape), space, theta, shape, clip=not is_image)
        if is_image:  # with a free boundary the grid leaves the unit square
            axes.margins(0.0)
            axes.autoscale(True)

    warped_title = "source, warped, on target" if is_signal else "source, warped"
    top = {
        "source": show(source),
        "target": show(target),
        warped_title: show(warped, target),
        "velocity": draw_velocity,
    }
    bottom = {
        "difference before": compare(source),
        "difference after": compare(warped),
        "where points go" if is_signal else "grid": draw_grid,
    }
    return top, bottom


def _prepare(axes: Axes, shape: tuple[int, ...]) -> sheets.Area:
    """Turn axes into a sheet with one box, and return the box. Images get square pixels."""
    width, height = 1.0, 1.0
    if len(shape) == 3:
        width, height = sheets.box_width(shape, SLICES), SLICES
    sheets.prepare_sheet(axes, width, height)
    if len(shape) == 2:
        axes.set_aspect(shape[0] / shape[1])
    return sheets.Area(0.0, 0.0, width, height)


def _draw_spread(axes: Axes, spread: Array) -> None:
    """Draw the posterior spread of each pixel's position."""
    largest = float(spread.max()) or 1.0
    if spread.ndim == 1:
        centers = pixel_centers(spread.shape)[:, 0]
        axes.fill_between(centers, spread, color=figures.MARKS[3], linewidth=0.0, alpha=0.7)
        axes.set_xlim(0.0, 1.0)
        axes.set_ylim(0.0, 1.05 * largest)
        axes.set_xticks([])
        figures.style_axes(axes)
        return
    sheets.draw_shades(axes, _prepare(axes, spread.shape), spread, SPREAD, largest)
    if spread.ndim == 2:
        bar = axes.figure.colorbar(axes.images[-1], ax=axes, fraction=0.05, pad=0.03)
        figures.style_axes(bar.ax)
        bar.ax.yaxis.set_major_locator(MaxNLocator(4))


def _draw_traces(axes: Axes, traces: Array) -> None:
    figures.plot_traces(axes, traces)
    figures.style_axes(axes, "draw")
    axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(4))


def _write_summary(axes: Axes, words: str) -> None:
    axes.set_axis_off()
    axes.text(
        0.05, 0.97, words, transform=axes.transAxes, fontsize=9, color=figures.INK,
        verticalalignment="top", linespacing=1.5,
    )  # fmt: skip


def _panel_size(shape: tuple[int, ...]) -> tuple[float, float]:
    """Width and height in inches, following the proportions of the sample up to MAX_RATIO."""
    if len(shape) == 1:
        return PANEL_1D
    if len(shape) == 3:
        return sheets.box_width(shape, SLICES) + 0.15, SLICES + 0.4
    ratio = min(max(shape[0] / shape[1], 1 / MAX_RATIO), MAX_RATIO)
    return PANEL[0] * max(1.0, 1.0 / ratio), PANEL[1] * max(1.0, ratio)


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
    moved = space.flow(draws[spaced(len(draws), MAX_DRAWS)], pixel_centers(shape)) * shape
    return np.sqrt(moved.var(axis=0).sum(axis=-1)).reshape(shape)
