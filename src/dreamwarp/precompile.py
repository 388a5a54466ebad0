"""Compiling ahead of time, by doing a little of what is usually done."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable

import numpy as np

from dreamwarp.align import align_pairs, neighbor_pairs
from dreamwarp.augment import SampleSource
from dreamwarp.draws import normals
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
    context = multiprocessing.get_context("spawn")
    parts: tuple[Callable[[tuple[int, ...]], None], ...] = (_align, _warp)
    processes = [context.Process(target=part, args=(cells,), daemon=True) for part in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise ValueError("compiling failed; what went wrong is above")


def _align(cells: tuple[int, ...]) -> None:
    """The most plausible warps between random samples."""
    samples = np.random.default_rng(0).random((2 * N, *len(cells) * (SIZE,)), np.float32)
    align_pairs(WarpSpace(cells), samples[:N], samples[N:], progress=False)


def _warp(cells: tuple[int, ...]) -> None:
    """Neighbours among random samples, a model of random warps, and samples of every type by it."""
    space, rng = WarpSpace(cells), np.random.default_rng(0)
    samples = rng.random((N, *len(cells) * (SIZE,)))
    neighbor_pairs(samples)
    theta = 0.01 * normals(0, np.arange(8 * N), space.dim)
    model = WarpModel.fit(space, {0: theta})
    for kind in TYPES:
        SampleSource(model, (samples.astype(kind), np.zeros(N, int))).make(0, N)
