"""Tables of samples: rows and columns of boxes with labels, on a sheet just large enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dreamwarp.report.sheets import Box, box_width, new_sheet, shorten, write

# Draws into a box.
Cell = Callable[[Axes, Box], None]

# Inches.
MARGIN, GAP, ROOM_FOR_TITLES, ROOM_FOR_LABELS = 0.12, 0.07, 0.3, 0.3
INCHES_PER_LETTER = 0.078


@dataclass(frozen=True)
class Gallery:
    """A table of boxes.

    Parameters
    ----------
    spatial : tuple of int
        Shape of the samples, which gives the boxes their proportions.
    rows : list of (label, cells)
        A cell that is None stays empty.
    titles : sequence of (first column, words)
        Over the columns; a title reaches up to the next.
    gaps : sequence of int
        Columns before which there is more room.
    height : float
        Of a box, in inches.
    notes : sequence of str
        To the right of each row, if any.
    are_centered : bool
        Whether titles stand over the middle of their column.
    """

    spatial: tuple[int, ...]
    rows: Sequence[tuple[str, Sequence[Cell | None]]]
    titles: Sequence[tuple[int, str]] = ()
    gaps: Sequence[int] = ()
    height: float = 0.8
    notes: Sequence[str] = ()
    are_centered: bool = False

    def draw(self) -> Figure:
        """The table as a figure."""
        labels = [shorten(label) for label, _ in self.rows]
        left = MARGIN + (ROOM_FOR_LABELS if any(labels) else 0.0)
        left += INCHES_PER_LETTER * max(0, max(map(len, labels)) - 2)
        top = MARGIN + (ROOM_FOR_TITLES if self.titles else 0.0)
        width = box_width(self.spatial, self.height)
        # The slices of a volume stand close together, and volumes apart.
        between = GAP if len(self.spatial) < 3 else 3 * GAP
        n_columns = max(len(cells) for _, cells in self.rows)
        starts = [
            left + column * (width + between) + 2.5 * GAP * sum(gap <= column for gap in self.gaps)
            for column in range(n_columns)
        ]
        lines = [line for note in self.notes for line in note.splitlines()]
        note_width = INCHES_PER_LETTER * 0.95 * max(map(len, lines), default=0)
        full = starts[-1] + width + MARGIN + (note_width + GAP if self.notes else 0.0)
        # A title over the last columns may be wider than they are.
        full = max([full, *(starts[c] + 0.074 * len(words) + MARGIN for c, words in self.titles)])
        bottom = top + len(self.rows) * (self.height + GAP) - GAP + MARGIN
        figure, axes = new_sheet(full, bottom)
        for column, words in self.titles:
            if self.are_centered:
                write(axes, starts[column] + width / 2, top - 0.15, words)
            else:
                write(axes, starts[column], top - 0.15, words, align="left")
        for number, (label, (_, cells)) in enumerate(zip(labels, self.rows, strict=True)):
            y = top + number * (self.height + GAP)
            write(axes, left - 0.1, y + self.height / 2, label, size=10, align="right")
            for x, cell in zip(starts, cells, strict=False):
                if cell is not None:
                    cell(axes, Box(x, y, width, self.height))
            if self.notes:
                x = starts[-1] + width + 2 * GAP
                write(axes, x, y + self.height / 2, self.notes[number], size=8.5, align="left")
        return figure
