"""Figures without matplotlib's global state: colours, style, saving."""

from __future__ import annotations

import os
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.rcsetup import cycler

from dreamwarp.core.files import check_suffix, write_beside

INK = "#22283a"
FAINT = "#d5d9e0"
GRID = "#2f6f9f"
MARKS = ("#d1495b", "#e09f3e", "#2a9d8f", "#8053a0")

INK_ON_PAPER = LinearSegmentedColormap.from_list("ink on paper", ["white", INK])
SPEED = LinearSegmentedColormap.from_list("speed", ["#a9cbe3", GRID, "#14304a"])

SPEED_FROM_WHITE = LinearSegmentedColormap.from_list("from white", ["#f2f6fa", GRID, "#14304a"])
# Colours and dashes of up to ten classes: neighbours differ in hue and lightness, and the second
# five also by their dashes.
CLASS_STYLES = cycler(linestyle=["-", (0, (5, 1.5, 1, 1.5))]) * cycler(
    color=["#2f6f9f", "#e07a3e", "#2a9d8f", "#d1495b", "#8053a0"]
)

SUFFIXES = (".pdf", ".png", ".svg")


def new_figure(width: float, height: float) -> Figure:
    """Make a figure of a size in inches, without a window."""
    margins = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
    return Figure(figsize=(width, height), facecolor="white", layout=margins)


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 150) -> Path:
    """Write a figure atomically; the suffix of ``path`` sets the format."""
    target = check_picture_path(path)
    with write_beside(target) as temporary:
        figure.savefig(temporary, dpi=dpi)
    return target


def check_picture_path(path: str | os.PathLike[str]) -> Path:
    """Return ``path``, or raise if its suffix is not a picture format."""
    return check_suffix(path, SUFFIXES, "pictures")


def style_axes(axes: Axes, x_label: str = "", y_label: str = "") -> None:
    """Label axes with numbers; faint spines left and below, small dark tick labels."""
    axes.set_xlabel(x_label, fontsize=9, color=INK)
    axes.set_ylabel(y_label, fontsize=9, color=INK)
    for side, spine in axes.spines.items():
        spine.set_color(FAINT)
        spine.set_visible(side in ("left", "bottom"))
    axes.tick_params(labelsize=8.5, colors=INK, length=3, color=FAINT, labelcolor=INK)
