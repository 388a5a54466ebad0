"""Compile kernels ahead of time, by running them on small inputs.

``python -m dreamwarp.augment.precompile CELLS PART`` compiles one part.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import numpy as np

from dreamwarp.align import SmoothPrior, align_pairs, neighbor_pairs
from dreamwarp.align.evidence import EvidenceFinder
from dreamwarp.align.image_kernels import trace
from dreamwarp.augment.source import SampleSource
from dreamwarp.core.compiled import mark_of, thread_count
from dreamwarp.core.draws import normals
from dreamwarp.core.progress import Meter, silenced
from dreamwarp.model import WarpModel
from dreamwarp.space import WarpSpace

# The most common dtypes of samples.
TYPES = (np.uint8, np.float32, np.float64)
SIZE, N = 12, 8


def compile_ahead(cells: tuple[int, ...] = (4, 4)) -> None:
    """Compile the kernels for spaces with ``len(cells)`` axes, and cache them on disk.

    The parts are compiled in parallel, each in its own process.
    """
    WarpSpace(cells)  # raises here, not in another process
    mark = mark_of(trace, f"compiled-{len(cells)}")
    command = [sys.executable, "-m", "dreamwarp.augment.precompile", ",".join(map(str, cells))]
    with Meter("compiling (half a minute to a minute, once)", None):
        # New sessions: Ctrl-C should reach this process only.
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
        raise ValueError("compiling failed; see the error above")
    if mark is not None:
        mark.touch()


def ensure_compiled(space: WarpSpace) -> None:
    """Before the first fit, compile its kernels in parallel.

    If that fails, kernels compile one after the other at their first call.
    """
    mark = mark_of(trace, f"compiled-{space.ndim}")
    if mark is None or mark.exists() or thread_count() == 1:
        return
    with suppress(OSError, ValueError):
        compile_ahead(space.ndim * (2,))


def _align(cells: tuple[int, ...]) -> None:
    """Align random samples, and find their evidence."""
    sizes = [max(SIZE, k) for k in cells]  # a pixel per cell at least
    samples = np.random.default_rng(0).random((2 * N, *sizes), np.float32)
    align_pairs(WarpSpace(cells), samples[:N], samples[N:], progress=False)
    edges, prior = np.arange(2 * N).reshape(-1, 2), SmoothPrior(WarpSpace(cells))
    finder = EvidenceFinder.for_images(
        prior, samples, edges, similarity="ssd", sigma=1.0, max_steps=5, progress=False
    )
    unit = np.eye(finder.frame.rank)
    finder.find(edges, unit).condition(unit)


def _warp(cells: tuple[int, ...]) -> None:
    """Find neighbours, fit a model, and warp samples of every dtype."""
    space, rng = WarpSpace(cells), np.random.default_rng(0)
    samples = rng.random((N, *len(cells) * (SIZE,)))
    neighbor_pairs(samples.astype(np.float32))
    edges = neighbor_pairs(samples)
    theta = 0.01 * normals(0, np.arange(len(edges)), space.dim)
    model = WarpModel.fit(space, {0: theta}, kind="template", edges={0: edges})
    for dtype in TYPES:
        SampleSource(model, (samples.astype(dtype), np.zeros(N, int))).make(0, N)


PARTS = {"align": _align, "warp": _warp}


if __name__ == "__main__":
    with silenced():  # the parent process shows progress
        PARTS[sys.argv[2]](tuple(map(int, sys.argv[1].split(","))))
