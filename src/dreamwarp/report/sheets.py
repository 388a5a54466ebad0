"""Sheets: axes that cover a figure, and boxes on them with samples and warps of 1, 2 or 3 axes.

Positions are in inches from the top left corner. Signals are drawn as lines, with a lane for each
channel, volumes as three slices through their middle. ``draw_grid`` and ``draw_velocity`` show T^θ,
which moves points; the content of a warped sample moves by the inverse, so pass -θ to draw that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dreamwarp.core.samples import pixel_centers, spaced
from dreamwarp.report import figures
from dreamwarp.report.subject import COLORS, Layout, Look, Section
from dreamwarp.space import WarpSpace

Array = NDArray[Any]

GREY = LinearSegmentedColormap.from_list("grey", ["black", "white"])
# Colours of a difference, from negative to positive.
DIFFERENCE = LinearSegmentedColormap.from_list(
    "difference", [figures.MARKS[0], "white", figures.GRID]
)
# Width of a signal's box, as a multiple of its height.
SIGNAL_RATIO = 1.6
# Largest aspect ratio of an image's box.
MAX_RATIO = 3.0
# Gap between the slices of a volume, as a fraction of the height of the box.
SLICE_GAP = 0.06
# Longer lines are thinned: no screen shows more points.
MAX_POINTS = 1000
# Lines of a grid, points along each, and arrows per axis. A grid line bends smoothly inside a cell:
# with this many points it looks smooth.
N_LINES, POINTS_PER_LINE, N_ARROWS = 17, 200, 14
# Layout of tables, in inches.
MARGIN, GAP, ROOM_FOR_TITLES, ROOM_FOR_LABELS = 0.12, 0.07, 0.3, 0.3
INCHES_PER_LETTER, LINE_HEIGHT = 0.078, 0.17


class Area(NamedTuple):
    """A rectangle on a sheet: left, top, width, height."""

    x: float
    y: float
    width: float
    height: float


# Draws into a box.
Cell = Callable[[Axes, Area], None]


def new_sheet(width: float, height: float) -> tuple[Figure, Axes]:
    """Make a figure of a size in inches, and axes that cover it."""
    figure = Figure(figsize=(width, height), facecolor="white")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0.0, width), ylim=(height, 0.0))
    axes.set_axis_off()
    return figure, axes


def box_width(layout: Layout, height: float) -> float:
    """Width of a box of a given height, before it is stretched."""
    extent = layout.extent
    if len(extent) == 1:
        return SIGNAL_RATIO * height
    if len(extent) == 2:
        return height * min(max(extent[1] / extent[0], 1 / MAX_RATIO), MAX_RATIO)
    _, last = planes(layout, Area(0, 0, 0, height))[-1]
    return last.x + last.width


def planes(layout: Layout, box: Area) -> list[tuple[Section, Area]]:
    """The sections drawn of a domain, and their boxes.

    They have true proportions. Of slices, the tallest has the height of the box.
    """
    extent = layout.extent
    scale = box.height / max(extent[section.rows] for section in layout.sections)
    if len(extent) == 2:
        scale = min(scale, box.width / extent[1])
    found, x = [], box.x
    for section in layout.sections:
        width = scale * extent[section.columns]
        found.append((section, Area(x, box.y, width, scale * extent[section.rows])))
        x += width + SLICE_GAP * box.height
    return found


# -- samples


def draw_sample(
    axes: Axes, box: Area, values: Array, look: Look, *, behind: Array | None = None
) -> None:
    """Draw a sample (channels, *spatial). ``behind``: another signal, drawn faintly behind it.

    Of images with 3 or 4 channels, the first three are shown as red, green and blue; of those with
    other channels, the mean. Of volumes, the first channel is shown.
    """
    if values.ndim == 2:
        frame(axes, box)
        if behind is not None:
            _draw_lines(axes, box, behind, look, [figures.FAINT], 2.2)
        _draw_lines(axes, box, values, look, [figures.INK, *figures.MARKS], 1.0)
        return
    colors = figures.INK_ON_PAPER if look.is_ink else GREY
    is_color = values.ndim == 3 and len(values) in COLORS
    if is_color or values.ndim == 4:
        channels = values[: 3 if is_color else 1]
    else:
        channels = values.mean(axis=0, keepdims=True)
    shades = np.clip(look.scale(channels), 0.0, 1.0)
    for section, area in planes(look.layout(values.shape[1:]), box):
        shown = section.cut(shades)
        image = np.moveaxis(shown, 0, -1) if is_color else shown[0]
        _show(axes, area, image, colors, 0.0, 1.0)


def draw_difference(axes: Axes, box: Area, first: Array, second: Array, look: Look) -> None:
    """Draw the difference of two samples.

    Of signals the area between it and 0, a lane for each channel. Of images with several channels
    the root mean square, unsigned; of volumes the first channel.
    """
    if first.ndim == 2:
        difference = look.scale_lanes(first) - look.scale_lanes(second)
        frame(axes, box)
        x = box.x + box.width * (np.arange(difference.shape[1]) + 0.5) / difference.shape[1]
        for lane, row in zip(lanes_of(box, len(difference)), difference, strict=True):
            middle = lane.y + lane.height / 2
            y = middle - 0.5 * lane.height * np.clip(row, -1.0, 1.0)
            axes.fill_between(x, middle, y, color=figures.MARKS[0], linewidth=0.0, alpha=0.75)
        return
    difference = look.scale(first) - look.scale(second)
    if first.ndim == 3 and len(difference) > 1:
        difference = np.sqrt((difference**2).mean(axis=0, keepdims=True))
    draw_shades(axes, box, difference[0], DIFFERENCE, (-1.0, 1.0), look)


def draw_shades(
    axes: Axes, box: Area, values: Array, colors: Colormap, limits: tuple[float, float], look: Look
) -> None:
    """Draw values (*spatial) as shades of the lowest to the highest colour; signals as a graph."""
    if values.ndim == 1:
        draw_sample(axes, box, values[None], Look(*limits, is_ink=False))
        return
    for section, area in planes(look.layout(values.shape), box):
        _show(axes, area, section.cut(values[None])[0], colors, *limits)


def lanes_of(box: Area, n: int) -> list[Area]:
    """Split a box into ``n`` lanes, one below the other."""
    height = box.height / n
    return [Area(box.x, box.y + k * height, box.width, height) for k in range(n)]


def _draw_lines(
    axes: Axes, box: Area, values: Array, look: Look, colors: list[str], linewidth: float
) -> None:
    """Draw signals (channels, times): in lanes if the look has them, else over one another."""
    heights = look.scale_lanes(values)
    lanes = lanes_of(box, len(heights)) if look.lanes else len(heights) * [box]
    colors = colors[:1] if look.lanes else colors
    chosen = spaced(heights.shape[1], MAX_POINTS)
    x = box.x + box.width * (chosen + 0.5) / heights.shape[1]
    lines = []
    for lane, row in zip(lanes, np.clip(heights[:, chosen], -0.05, 1.05), strict=True):
        lines.append(np.stack([x, lane.y + lane.height * (0.95 - 0.9 * row)], axis=1))
    axes.add_collection(LineCollection(lines, colors=colors, linewidths=linewidth))


def _show(axes: Axes, box: Area, image: Array, colors: Colormap, low: float, high: float) -> None:
    axes.imshow(
        image, cmap=colors, vmin=low, vmax=high, interpolation="antialiased", zorder=1,
        extent=(box.x, box.x + box.width, box.y + box.height, box.y), aspect="auto",
    )  # fmt: skip
    frame(axes, box)


def frame(axes: Axes, box: Area) -> None:
    """Outline a box."""
    left, right, top, bottom = box.x, box.x + box.width, box.y, box.y + box.height
    x, y = [left, right, right, left, left], [top, top, bottom, bottom, top]
    axes.plot(x, y, color=figures.FAINT, linewidth=0.6, zorder=2, solid_joinstyle="miter")


# -- warps


def draw_grid(axes: Axes, box: Area, space: WarpSpace, theta: Array, layout: Layout) -> None:
    """Draw a regular grid moved by T^θ; for signals, the graph of T^θ.

    With a free boundary points leave the domain, whose frame then shrinks to make room for them.
    """
    along = np.linspace(0.0, 1.0, POINTS_PER_LINE)
    if space.ndim == 1:
        moved = space.flow(theta, along[:, None])[:, 0]
        _draw_graphs(axes, box, along, [1.0 - along, 1.0 - moved])
        return
    lines = np.stack(np.meshgrid(np.linspace(0.0, 1.0, N_LINES), along, indexing="ij"), axis=-1)
    both = np.concatenate([lines, lines[..., ::-1]])
    for section, area in planes(layout, box):
        points = section.embed(both.reshape(-1, 2), space.ndim)
        moved = section.project(space.flow(theta, points)).reshape(both.shape)
        domain = _shrink(area, moved)
        frame(axes, domain)
        _add_lines(axes, domain, moved, figures.GRID, 0.7)


def draw_velocity(axes: Axes, box: Area, space: WarpSpace, theta: Array, layout: Layout) -> None:
    """Draw the velocity field v^θ as arrows, darker where faster; for signals, its graph."""
    if space.ndim == 1:
        points = np.linspace(0.0, 1.0, POINTS_PER_LINE)
        velocity = space.velocity(theta, points[:, None])[:, 0]
        largest = 1.1 * (float(np.abs(velocity).max()) or 1.0)
        _draw_graphs(axes, box, points, [np.full_like(points, 0.5), 0.5 - 0.5 * velocity / largest])
        return
    grid = pixel_centers((N_ARROWS, N_ARROWS))
    for section, area in planes(layout, box):
        frame(axes, area)
        velocity = space.velocity(theta, section.embed(grid, space.ndim))
        velocity = section.project_vectors(velocity)
        speed = np.linalg.norm(velocity, axis=1)
        fastest = max(float(speed.max()), np.finfo(float).tiny)
        size = np.array([area.height, area.width])
        start = grid * size + (area.y, area.x)
        # The longest arrow spans one and a half gaps between arrows: long enough to read, and
        # neighbours in a smooth field point alike, so that they don't cross.
        length = velocity * size * (1.5 / (N_ARROWS * fastest))
        axes.quiver(
            *start.T[::-1], *length.T[::-1], speed, cmap=figures.SPEED, clim=(0.0, fastest),
            pivot="middle", angles="xy", scale_units="xy", scale=1.0, units="inches", width=0.012,
            headwidth=3.6, minlength=0.3, zorder=2,
        )  # fmt: skip


def _draw_graphs(axes: Axes, box: Area, points: Array, rows: list[Array]) -> None:
    """Draw a faint reference and a graph; ``rows`` are their heights, from 0 on top to 1."""
    lines = np.stack([np.stack([values, points], axis=1) for values in rows])
    domain = _shrink(box, lines)
    frame(axes, domain)
    for line, color in zip(lines, (figures.FAINT, figures.GRID), strict=True):
        _add_lines(axes, domain, line[None], color, 1.0)


def _shrink(box: Area, points: Array) -> Area:
    """Shrink a box until it holds points (..., 2) that may lie outside of the unit square."""
    flat = points.reshape(-1, 2)
    low, high = np.minimum(flat.min(axis=0), 0.0), np.maximum(flat.max(axis=0), 1.0)
    scale = 1.0 / float((high - low).max())
    top, left = -low * scale * (box.height, box.width)
    return Area(box.x + left, box.y + top, scale * box.width, scale * box.height)


def draw_tessellation(axes: Axes, box: Area, space: WarpSpace, layout: Layout) -> None:
    """Draw the cells on which velocities are affine; in volumes, the boxes that hold them."""
    if space.ndim == 1:
        _add_lines(axes, box, _cuts(1, space.cells[0]), figures.GRID, 0.5)
        return
    for section, area in planes(layout, box):
        lines = _cuts(*(space.cells[axis] for axis in section.axes))
        if space.ndim == 2:
            corners = space.tessellation.simplices[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
            edges = np.unique(np.sort(corners, axis=1), axis=0)
            lines = space.tessellation.vertices[edges]
        _add_lines(axes, area, lines, figures.GRID, 0.6)


def _cuts(n_rows: int, n_columns: int) -> Array:
    """Lines (n, 2, 2) that cut the unit square into rows and columns."""
    across = [[[k / n_rows, 0.0], [k / n_rows, 1.0]] for k in range(1, n_rows)]
    down = [[[0.0, k / n_columns], [1.0, k / n_columns]] for k in range(1, n_columns)]
    return np.array(across + down).reshape(-1, 2, 2)


def _add_lines(axes: Axes, box: Area, lines: Array, color: str, linewidth: float) -> None:
    """Draw lines (n, points, 2) of row, column positions in the unit square."""
    places = lines[..., ::-1] * (box.width, box.height) + (box.x, box.y)
    axes.add_collection(LineCollection(list(places), colors=color, linewidths=linewidth, zorder=2))


# -- tables


def draw_table(
    layout: Layout,
    rows: Sequence[tuple[str, Sequence[Cell]]],
    titles: Sequence[tuple[int, str]] = (),
    *,
    gaps: Sequence[int] = (),
    height: float = 0.8,
    notes: Sequence[str] = (),
) -> Figure:
    """Draw rows of boxes, each a label and its cells, on a sheet that fits them.

    Boxes have this ``height``, stretched as the layout of the samples needs. ``titles`` are columns
    and the text that starts above them, ``gaps`` the columns preceded by a wider gap, and ``notes``
    the text to the right of each row.
    """
    labels = [shorten(label) for label, _ in rows]
    left = MARGIN + (ROOM_FOR_LABELS if any(labels) else 0.0)
    left += INCHES_PER_LETTER * max(0, max(map(len, labels)) - 2)
    n_lines = max((words.count("\n") + 1 for _, words in titles), default=0)
    top = MARGIN + (ROOM_FOR_TITLES + LINE_HEIGHT * (n_lines - 1) if titles else 0.0)
    width, height = box_width(layout, height), height * layout.stretch
    # Volumes need wider gaps than those between their slices.
    between = GAP if len(layout.extent) < 3 else 3 * GAP
    n_columns = max(len(cells) for _, cells in rows)
    starts = [
        left + column * (width + between) + 2.5 * GAP * sum(gap <= column for gap in gaps)
        for column in range(n_columns)
    ]
    lines = [line for note in notes for line in note.splitlines()]
    note_width = INCHES_PER_LETTER * 0.95 * max(map(len, lines), default=0)
    full = starts[-1] + width + MARGIN + (note_width + GAP if notes else 0.0)
    # A title over the last columns may be wider than they are.
    longest = [(c, max(map(len, words.splitlines()))) for c, words in titles]
    full = max([full, *(starts[c] + 0.074 * length + MARGIN for c, length in longest)])
    bottom = top + len(rows) * (height + GAP) - GAP + MARGIN
    figure, axes = new_sheet(full, bottom)
    for column, words in titles:
        write(axes, starts[column], top - 0.07, words, va="bottom")
    for number, (label, (_, cells)) in enumerate(zip(labels, rows, strict=True)):
        y = top + number * (height + GAP)
        write(axes, left - 0.1, y + height / 2, label, size=10, ha="right")
        for x, cell in zip(starts, cells, strict=False):
            cell(axes, Area(x, y, width, height))
        if notes:
            x = starts[-1] + width + 2 * GAP
            write(axes, x, y + height / 2, notes[number], size=8.5)
    return figure


def draw_panels(
    panels: Mapping[str, Cell], layout: Layout, height: float, n_columns: int
) -> Figure:
    """Draw boxes with titles, row by row; boxes are at least as wide as the titles."""
    width = max(box_width(layout, height), INCHES_PER_LETTER * max(map(len, panels)))
    height *= layout.stretch
    n_rows = -(-len(panels) // n_columns)
    step_x, step_y, top = width + 3 * GAP, height + 0.32, MARGIN + 0.22
    figure, axes = new_sheet(
        2 * MARGIN + n_columns * step_x - 3 * GAP, top + n_rows * step_y - 0.32 + MARGIN
    )
    for number, (title, cell) in enumerate(panels.items()):
        row, column = divmod(number, n_columns)
        box = Area(MARGIN + column * step_x, top + row * step_y, width, height)
        write(axes, box.x, box.y - 0.12, title)
        cell(axes, box)
    return figure


# -- text


def write(
    axes: Axes, x: float, y: float, words: str, *, size: float = 9.0, **alignment: Any
) -> None:
    """Write text at a position of a sheet: by default to the right of it, and centred in height."""
    style = {"fontsize": size, "color": figures.INK, "linespacing": 1.4, "va": "center"}
    axes.text(x, y, words, **{**style, **alignment})


def shorten(label: object, length: int = 14) -> str:
    """Cut a label to a length."""
    words = str(label)
    return words if len(words) <= length else f"{words[: length - 1]}…"
