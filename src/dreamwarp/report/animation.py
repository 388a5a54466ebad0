"""Animations of samples warped along principal components."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from numpy.typing import NDArray
from PIL import Image

from dreamwarp.augment.subject import Data, Subject
from dreamwarp.core.files import check_suffix, write_beside
from dreamwarp.core.progress import ProgressOption, track
from dreamwarp.core.validation import check_integer
from dreamwarp.model import WarpModel
from dreamwarp.report.galleries import GAP, draw_panels
from dreamwarp.report.sheets import box_width
from dreamwarp.report.warped import box_height, choose_rows, show, warp_along

Frames = NDArray[np.uint8]

SUFFIXES = (".gif", ".webp")
# Two seconds from one end to the other; GIFs count in hundredths of a second.
N_FRAMES, FRAME_SECONDS = 25, 0.08
DEVIATION = 3.0
# Largest width in inches.
WIDTH = 5.6
DPI = 120


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
    deviations = DEVIATION * np.sin(math.pi * times)
    moving = [warp_along(subject, code, k, deviations) for _, code, k in chosen]
    names = [name for name, _, _ in chosen]
    height = box_height(subject)
    n_columns = max(1, int(WIDTH / (box_width(subject.extent, height) + 3 * GAP)))
    frames = []
    with track(len(deviations), "drawing", progress) as advance:
        for samples in zip(*moving, strict=True):
            cells = [show(subject, values) for values in samples]
            panels = dict(zip(names, cells, strict=True))
            figure = draw_panels(panels, subject.extent, height, min(len(panels), n_columns))
            figure.set_dpi(dpi)
            canvas = FigureCanvasAgg(figure)
            canvas.draw()
            frames.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
            advance(1)
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
