"""Compiling ahead of time, by doing a little of what is usually done.

``python -m dreamwarp.augment.precompile CELLS PART`` compiles one part.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import numpy as np

from dreamwarp.align import SmoothPrior, align_pairs, neighbor_pairs
from dreamwarp.align.evidence import EvidenceFinder
from dreamwarp.align.image_kernels import trace
from dreamwarp.augment.source import SampleSource
from dreamwarp.core.compiled import TELL_SECONDS, mark_of, thread_count
from dreamwarp.core.draws import normals
from dreamwarp.core.progress import Meter, silenced
from dreamwarp.model import WarpModel
from dreamwarp.space import WarpSpace

# Kinds of numbers that samples most often come in.
TYPES = (np.uint8, np.float32, np.float64)
SIZE, N = 12, 8


def compile_ahead(cells: tuple[int, ...] = (4, 4)) -> None:
    """Compile what aligning, fitting and warping need in as many dimensions, and keep it on disk.

    The parts have little in common and are compiled side by side, each in its own process.
    """
    WarpSpace(cells)  # says what is wrong with them here, not in another process
    mark = mark_of(trace, f"compiled-{len(cells)}")
    command = [sys.executable, "-m", "dreamwarp.augment.precompile", ",".join(map(str, cells))]
    with Meter("compiling (half a minute to a minute, once)", None, patience=TELL_SECONDS):
        # Sessions of their own: Ctrl-C is for this process to act on.
        processes = [
            subprocess.Popen([*command, part], start_new_session=True, stdin=subprocess.DEVNULL)
            for part in PARTS
        ]
        try:
            failed = [process.wait() != 0 for process in processes]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
    if any(failed):
        raise ValueError("compiling failed; what went wrong is above")
    if mark is not None:
        mark.touch()


def ensure_compiled(space: WarpSpace) -> None:
    """Compile on several cores what a fit needs, the first time that there is one.

    Where that can't be done, kernels compile one after the other when they are first called.
    """
    mark = mark_of(trace, f"compiled-{space.ndim}")
    if mark is None or mark.exists() or thread_count() == 1:
        return
    try:
        compile_ahead(space.ndim * (2,))
    except (OSError, ValueError):
        return


def _align(cells: tuple[int, ...]) -> None:
    """The most plausible warps between random samples, and what these say of warps."""
    samples = np.random.default_rng(0).random((2 * N, *len(cells) * (SIZE,)), np.float32)
    align_pairs(WarpSpace(cells), samples[:N], samples[N:], progress=False)
    edges, prior = np.arange(2 * N).reshape(-1, 2), SmoothPrior(WarpSpace(cells))
    finder = EvidenceFinder.for_images(
        prior, samples, edges, similarity="ssd", sigma=1.0, max_steps=5, progress=False
    )
    unit = np.eye(finder.frame.rank)
    finder.find(edges, unit).condition(unit)


def _warp(cells: tuple[int, ...]) -> None:
    """Neighbours among random samples, a model of random warps, and samples of every type by it."""
    space, rng = WarpSpace(cells), np.random.default_rng(0)
    samples = rng.random((N, *len(cells) * (SIZE,)))
    neighbor_pairs(samples)
    theta = 0.01 * normals(0, np.arange(8 * N), space.dim)
    model = WarpModel.fit(space, {0: theta})
    for kind in TYPES:
        SampleSource(model, (samples.astype(kind), np.zeros(N, int))).make(0, N)


PARTS = {"align": _align, "warp": _warp}


def _main(arguments: Sequence[str]) -> None:
    cells, part = arguments
    with silenced():  # the process that started this one tells
        PARTS[part](tuple(map(int, cells.split(","))))


if __name__ == "__main__":
    _main(sys.argv[1:])
