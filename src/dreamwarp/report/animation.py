"""Moving pictures: samples swaying along the principal components of their classes."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from dreamwarp.augment.subject import Data, Subject, component_theta
from dreamwarp.core.files import write_beside
from dreamwarp.core.progress import ProgressOption, track
from dreamwarp.core.validation import check_whole
from dreamwarp.model import WarpModel
from dreamwarp.report.galleries import GAP, MARGIN
from dreamwarp.report.sheets import Box, box_width, draw_sample, new_sheet, write
from dreamwarp.report.warped import box_height, check_index, choose_rows

Frames = NDArray[np.uint8]

SUFFIXES = (".gif", ".mp4", ".webp")
# From one end to the other in two seconds; GIFs count in hundredths of a second.
N_FRAMES, FRAME_SECONDS = 25, 0.08
DEVIATION = 3.0
# Boxes side by side; wide samples have fewer.
WIDTH = 5.6
DPI = 120


def component_frames(
    model: WarpModel,
    data: Data,
    *,
    label: Any = None,
    component: int = 1,
    n_components: int = 5,
    index: int | None = None,
    n_frames: int = N_FRAMES,
    dpi: int = DPI,
    progress: ProgressOption = None,
) -> Frames:
    """Samples from -3 to 3 standard deviations along components: (n_frames, rows, columns, 3).

    Options as for :func:`~dreamwarp.report.draw_components`; played forth and back, this is its
    animation.
    """
    subject = Subject.of(model, data)
    check_whole("component", component, 1)
    chosen = choose_rows(subject, label, component, check_whole("n_components", n_components, 1))
    # Slower at the ends, where it turns.
    times = np.linspace(-0.5, 0.5, check_whole("n_frames", n_frames, 2))
    deviations = DEVIATION * np.sin(math.pi * times)
    moving = []
    for _, code, number in chosen:
        sample = int(subject.typical(code)[0]) if index is None else check_index(subject, index)
        theta = component_theta(model, subject.labels[code], number, deviations)
        moving.append(subject.warp(theta, sample))
    names = [name for name, _, _ in chosen]
    frames = []
    with track(len(deviations), "drawing", progress) as advance:
        for frame in range(len(deviations)):
            shown = [samples[frame] for samples in moving]
            frames.append(_render(_draw_frame(subject, shown, names), dpi))
            advance(1)
    return np.stack(frames)


def _draw_frame(subject: Subject, samples: list[NDArray[Any]], names: list[str]) -> Figure:
    height = box_height(subject)
    width = box_width(subject.spatial, height)
    step_x = width + (GAP if len(subject.spatial) < 3 else 3 * GAP)
    n_columns = min(len(samples), max(1, int(WIDTH / step_x)))
    n_rows = -(-len(samples) // n_columns)
    step = height + 0.27
    figure, axes = new_sheet(2 * MARGIN + (n_columns - 1) * step_x + width, MARGIN + n_rows * step)
    for number, (values, name) in enumerate(zip(samples, names, strict=True)):
        row, column = divmod(number, n_columns)
        box = Box(MARGIN + column * step_x, MARGIN / 2 + 0.2 + row * step, width, height)
        write(axes, box.x + width / 2, box.y - 0.1, name, size=8.5)
        draw_sample(axes, box, values, subject.look)
    return figure


def _render(figure: Figure, dpi: int) -> Frames:
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def check_animation_path(path: str | os.PathLike[str]) -> Path:
    """``path``, if a moving picture can have that name and be written here."""
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(
            f"`{target}` must end in one of {', '.join(SUFFIXES)}, which says the format of the "
            "moving picture."
        )
    if suffix == ".mp4" and shutil.which("ffmpeg") is None:
        raise ValueError(
            f"`{target}` can't be written: MP4 needs the program ffmpeg, which is not on the path. "
            "Install it, or write .webp or .gif."
        )
    return target


def save_animation(frames: Frames, path: str | os.PathLike[str]) -> Path:
    """Write frames, played forth and back without end; whole or not at all.

    The suffix of ``path`` says the format: .gif, .webp, or .mp4 where ffmpeg is installed.
    """
    target = check_animation_path(path)
    loop = np.concatenate([frames, frames[-2:0:-1]])
    with write_beside(target) as temporary:
        if target.suffix.lower() == ".mp4":
            _write_video(loop, temporary)
        else:
            _write_pictures(loop, temporary)
    return target


def _write_pictures(frames: Frames, path: Path) -> None:
    pictures = [Image.fromarray(frame) for frame in frames]
    if path.suffix.lower() == ".gif":
        # One palette for all frames: with one each, shades would flicker.
        palette = Image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 4)])).quantize(128)
        pictures = [
            picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures
        ]
    options: dict[str, Any] = {"duration": round(1000 * FRAME_SECONDS), "loop": 0}
    if path.suffix.lower() == ".webp":
        options |= {"quality": 85, "method": 4}
    pictures[0].save(path, save_all=True, append_images=pictures[1:], **options)


def _write_video(frames: Frames, path: Path) -> None:
    # The usual encoding halves colours, and so needs even sizes.
    odd_rows, odd_columns = frames.shape[1] % 2, frames.shape[2] % 2
    even = np.pad(frames, ((0, 0), (0, odd_rows), (0, odd_columns), (0, 0)), mode="edge")
    # Short loops look like nothing in players that don't repeat: three rounds.
    content = np.concatenate([even, even, even]).tobytes()
    size = f"{even.shape[2]}x{even.shape[1]}"
    done = subprocess.run(
        ["ffmpeg", "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24",
         "-s", size, "-r", f"{1 / FRAME_SECONDS:g}", "-i", "-", "-pix_fmt", "yuv420p",
         "-movflags", "+faststart", os.fspath(path)],
        input=content, capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise OSError(f"ffmpeg could not write the video: {words[-1]}. Write .webp or .gif.")
