"""Figures of warped samples, at random and along principal components; animations of the latter."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from dreamwarp.core.files import check_suffix, write_beside
from dreamwarp.core.progress import ProgressOption, tracked
from dreamwarp.core.samples import spaced
from dreamwarp.core.validation import check_integer
from dreamwarp.model import WarpModel
from dreamwarp.model.strength import resolve_strength
from dreamwarp.report.sheets import GAP, Cell, box_width, draw_panels, draw_sample, draw_table
from dreamwarp.report.subject import Data, Subject

Frames = NDArray[np.uint8]

DEVIATIONS = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
# Largest number of classes in a figure.
MAX_ROWS = 12

SUFFIXES = (".gif", ".webp")
# Two seconds from one end to the other; GIFs count in hundredths of a second.
N_FRAMES, FRAME_SECONDS = 25, 0.08
# Largest width of an animation in inches, and its resolution.
WIDTH, DPI = 5.6, 120


def draw_samples(
    model: WarpModel,
    data: Data,
    *,
    label: Any = None,
    n_versions: int = 8,
    strength: float | None = None,
    seed: int = 0,
) -> Figure:
    """Draw originals and random warps of each: the paper's figure 1.

    Parameters
    ----------
    model : WarpModel
    data : DataSet, or pair (X, y)
        Signals, images or volumes of the model's classes.
    label : optional
        Show eight originals of this class. Default: one of each class, up to twelve.
    n_versions : int
        Warps of each original.
    strength : float, optional
        Factor on the learned warps. Default: the strength of the model or, if that is 0, 1.
    seed : int
    """
    subject = Subject.of(model, data)
    check_integer("n_versions", n_versions, 1)
    used = shown_strength(model, strength)
    if label is None:
        originals = [int(subject.typical(code)[0]) for code in shown_classes(subject)]
    else:
        originals = subject.typical(subject.code_of(label), 400)[::50][:8].tolist()
    rows = []
    for index in originals:
        name = str(subject.labels[subject.codes[index]]) if label is None else ""
        theta = subject.draw_theta(index, n_versions, strength=used, seed=seed)
        versions = [subject.sample(index), *subject.warp(theta, index)]
        rows.append((name, [show(subject, values) for values in versions]))
    titles = [(0, "original"), (1, f"random warps, strength {used:g}")]
    return draw_table(subject.layout, rows, titles, gaps=(1,), height=box_height(subject))


def draw_components(
    model: WarpModel,
    data: Data,
    *,
    label: Any = None,
    component: int = 1,
    n_components: int = 5,
) -> Figure:
    """Draw typical samples, warped along components of their class: the paper's figure 4.

    From left to right, -3 to 3 standard deviations.

    Parameters
    ----------
    model : WarpModel
    data : DataSet, or pair (X, y)
    label : optional
        Show several components of this class, one per row. Default: one component of each class.
    component : int
        Component, from 1, the largest; with ``label``, the first one shown.
    n_components : int
        Components shown of ``label``.
    """
    subject = Subject.of(model, data)
    rows, notes = [], []
    for name, code, k in choose_rows(subject, label, component, n_components):
        moved = warp_along(subject, code, k, np.array(DEVIATIONS))
        rows.append((name, [show(subject, values) for values in moved]))
        notes.append(f"{model.components(subject.labels[code]).share[k]:.0%} of variance")
    titles = list(enumerate(name_deviations(DEVIATIONS)))
    return draw_table(subject.layout, rows, titles, height=box_height(subject), notes=notes)


# -- animations


def component_frames(
    model: WarpModel,
    data: Data,
    *,
    label: Any = None,
    component: int = 1,
    n_components: int = 5,
    n_frames: int = N_FRAMES,
    dpi: int = DPI,
    progress: ProgressOption = None,
) -> Frames:
    """Render samples from -3 to 3 standard deviations along components.

    Returns (n_frames, rows, columns, 3), to be played back and forth. Options as for
    :func:`~dreamwarp.report.draw_components`.
    """
    subject = Subject.of(model, data)
    chosen = choose_rows(subject, label, component, n_components)
    # Slower at the ends, where the motion turns.
    times = np.linspace(-0.5, 0.5, check_integer("n_frames", n_frames, 2))
    deviations = DEVIATIONS[-1] * np.sin(math.pi * times)
    moving = [warp_along(subject, code, k, deviations) for _, code, k in chosen]
    names = [name for name, _, _ in chosen]
    height = box_height(subject)
    n_columns = max(1, int(WIDTH / (box_width(subject.layout, height) + 3 * GAP)))
    frames = []
    for samples in tracked(zip(*moving, strict=True), n_frames, "drawing", progress):
        cells = [show(subject, values) for values in samples]
        panels = dict(zip(names, cells, strict=True))
        figure = draw_panels(panels, subject.layout, height, min(len(panels), n_columns))
        figure.set_dpi(dpi)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        frames.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
    return np.stack(frames)


def save_animation(frames: Frames, path: str | os.PathLike[str]) -> Path:
    """Write frames, played back and forth in a loop; the file appears when complete.

    The suffix of ``path`` sets the format: .gif or .webp.
    """
    target = check_suffix(path, SUFFIXES, "animations")
    pictures = [Image.fromarray(frame) for frame in (*frames, *frames[-2:0:-1])]
    options: dict[str, Any] = {"quality": 85, "method": 4}
    if target.suffix.lower() == ".gif":
        # One palette for all frames: separate ones would make colours flicker.
        palette = Image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 4)])).quantize(128)
        pictures = [
            picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures
        ]
        options = {}
    with write_beside(target) as temporary:
        pictures[0].save(
            temporary, save_all=True, append_images=pictures[1:], loop=0,
            duration=round(1000 * FRAME_SECONDS), **options,
        )  # fmt: skip
    return target


# -- parts


def name_deviations(deviations: Sequence[float]) -> list[str]:
    """Titles of columns that show deviations, with a typographic minus sign."""
    return [f"{value:+g} σ".replace("-", "−") if value else "0" for value in deviations]


def choose_rows(
    subject: Subject, label: Any, component: int, n_components: int
) -> list[tuple[str, int, int]]:
    """Return name, class and component (from 0) of each row."""
    first = check_integer("component", component, 1)
    n = check_integer("n_components", n_components, 1)
    if label is None:
        return [(str(subject.labels[k]), k, first - 1) for k in shown_classes(subject)]
    code, dim = subject.code_of(label), subject.model.space.dim
    return [(f"PC {k}", code, k - 1) for k in range(first, min(first + n, max(dim, first) + 1))]


def warp_along(
    subject: Subject, code: int, component: int, deviations: NDArray[Any]
) -> NDArray[Any]:
    """Warp a typical sample of a class along a component of that class, counted from 0."""
    theta = along_component(subject.model, subject.labels[code], component, deviations)
    return subject.warp(theta, int(subject.typical(code)[0]))


def along_component(
    model: WarpModel, label: Any, component: int, deviations: NDArray[Any]
) -> NDArray[np.float64]:
    """θ (n, d) at n standard deviations along a component of a class, counted from 0."""
    found = model.components(label)
    if not 0 <= component < found.directions.shape[1]:
        raise ValueError(
            f"`component` must be from 1 to {found.directions.shape[1]}, the dimension of "
            f"{model.space!r}, got {component + 1}."
        )
    return np.outer(
        deviations, found.standard_deviations[component] * found.directions[:, component]
    )


def shown_classes(subject: Subject) -> list[int]:
    """Choose up to ``MAX_ROWS`` classes, evenly spaced."""
    return spaced(len(subject.labels), MAX_ROWS).tolist()


def shown_strength(model: WarpModel, strength: float | None) -> float:
    """Choose the strength of warps to draw: by default the model's, or 1 if that is 0."""
    if strength is None:
        return model.strength or 1.0
    return resolve_strength(model, strength)


def box_height(subject: Subject) -> float:
    """Height of a sample in a gallery, in inches; wide boxes are lower, to fit on a page."""
    return {1: 0.62, 2: 0.8, 3: 0.75}[subject.model.space.ndim]


def show(subject: Subject, values: NDArray[Any]) -> Cell:
    """Make a gallery cell of a sample (channels, *spatial)."""
    return partial(draw_sample, values=values, look=subject.look)
