"""Tables of samples: labelled rows and columns of boxes, on a sheet that fits them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dreamwarp.report.sheets import Area, box_width, new_sheet, shorten, write

# Draws into a box.
Cell = Callable[[Axes, Area], None]

# Inches.
MARGIN, GAP, ROOM_FOR_TITLES, ROOM_FOR_LABELS = 0.12, 0.07, 0.3, 0.3
INCHES_PER_LETTER = 0.078


def draw_table(
    extent: tuple[float, ...],
    rows: Sequence[tuple[str, Sequence[Cell]]],
    titles: Sequence[tuple[int, str]] = (),
    *,
    gaps: Sequence[int] = (),
    height: float = 0.8,
    notes: Sequence[str] = (),
) -> Figure:
    """Draw a table of boxes.

    Parameters
    ----------
    extent : tuple of float
        Size of the samples along each axis; sets the proportions of the boxes.
    rows : list of (label, cells)
    titles : sequence of (column, text)
        Titles, and the columns above which they start.
    gaps : sequence of int
        Columns preceded by a wider gap.
    height : float
        Height of a box in inches.
    notes : sequence of str
        Text to the right of each row.
    """
    labels = [shorten(label) for label, _ in rows]
    left = MARGIN + (ROOM_FOR_LABELS if any(labels) else 0.0)
    left += INCHES_PER_LETTER * max(0, max(map(len, labels)) - 2)
    top = MARGIN + (ROOM_FOR_TITLES if titles else 0.0)
    width = box_width(extent, height)
    # Volumes need wider gaps than those between their slices.
    between = GAP if len(extent) < 3 else 3 * GAP
    n_columns = max(len(cells) for _, cells in rows)
    starts = [
        left + column * (width + between) + 2.5 * GAP * sum(gap <= column for gap in gaps)
        for column in range(n_columns)
    ]
    lines = [line for note in notes for line in note.splitlines()]
    note_width = INCHES_PER_LETTER * 0.95 * max(map(len, lines), default=0)
    full = starts[-1] + width + MARGIN + (note_width + GAP if notes else 0.0)
    # A title over the last columns may be wider than they are.
    full = max([full, *(starts[c] + 0.074 * len(words) + MARGIN for c, words in titles)])
    bottom = top + len(rows) * (height + GAP) - GAP + MARGIN
    figure, axes = new_sheet(full, bottom)
    for column, words in titles:
        write(axes, starts[column], top - 0.15, words, align="left")
    for number, (label, (_, cells)) in enumerate(zip(labels, rows, strict=True)):
        y = top + number * (height + GAP)
        write(axes, left - 0.1, y + height / 2, label, size=10, align="right")
        for x, cell in zip(starts, cells, strict=False):
            cell(axes, Area(x, y, width, height))
        if notes:
            x = starts[-1] + width + 2 * GAP
            write(axes, x, y + height / 2, notes[number], size=8.5, align="left")
    return figure


def draw_panels(
    panels: Mapping[str, Cell], extent: tuple[float, ...], height: float, n_columns: int
) -> Figure:
    """Draw boxes with titles, row by row; boxes are at least as wide as the titles."""
    width = max(box_width(extent, height), INCHES_PER_LETTER * max(map(len, panels)))
    n_rows = -(-len(panels) // n_columns)
    step_x, step_y, top = width + 3 * GAP, height + 0.32, MARGIN + 0.22
    figure, axes = new_sheet(
        2 * MARGIN + n_columns * step_x - 3 * GAP, top + n_rows * step_y - 0.32 + MARGIN
    )
    for number, (title, cell) in enumerate(panels.items()):
        row, column = divmod(number, n_columns)
        box = Area(MARGIN + column * step_x, top + row * step_y, width, height)
        write(axes, box.x, box.y - 0.12, title, align="left")
        cell(axes, box)
    return figure
