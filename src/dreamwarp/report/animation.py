"""Animations of samples warped along principal components."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
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

SUFFIXES = (".gif", ".mp4", ".webp")
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


def check_animation_path(path: str | os.PathLike[str]) -> Path:
    """Return ``path``, or raise if it is no animation that can be written here."""
    target = check_suffix(path, SUFFIXES, "animations")
    if target.suffix.lower() == ".mp4" and shutil.which("ffmpeg") is None:
        raise ValueError(
            f"`{target}` can't be written: MP4 needs ffmpeg, which is not on the PATH. Install it, "
            "or write .webp or .gif."
        )
    return target


def save_animation(frames: Frames, path: str | os.PathLike[str]) -> Path:
    """Write frames, played back and forth in a loop; the file appears when complete.

    The suffix of ``path`` sets the format: .gif, .webp, or .mp4 if ffmpeg is installed.
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
        # One palette for all frames: separate ones would make colours flicker.
        palette = Image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 4)])).quantize(128)
        pictures = [
            picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures
        ]
    options: dict[str, Any] = {"duration": round(1000 * FRAME_SECONDS), "loop": 0}
    if path.suffix.lower() == ".webp":
        options |= {"quality": 85, "method": 4}
    pictures[0].save(path, save_all=True, append_images=pictures[1:], **options)


def _write_video(frames: Frames, path: Path) -> None:
    # yuv420p halves the resolution of colours, so sizes must be even.
    odd_rows, odd_columns = frames.shape[1] % 2, frames.shape[2] % 2
    even = np.pad(frames, ((0, 0), (0, odd_rows), (0, odd_columns), (0, 0)), mode="edge")
    # Three rounds, for players that don't repeat.
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
