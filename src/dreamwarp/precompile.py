"""Compiling ahead of time, by doing a little of what is usually done."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from dreamwarp.align import align_pairs, neighbor_pairs
from dreamwarp.augment import SampleSource
from dreamwarp.draws import normals
from dreamwarp.model import WarpModel
from dreamwarp.progress import Meter, silenced
from dreamwarp.space import WarpSpace
from dreamwarp.space.compiled import TELL_SECONDS

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
    with Meter("compiling (a minute or two)", None, patience=TELL_SECONDS):
        try:
            with _holding_signals():
                for process in processes:
                    process.start()
            for process in processes:
                process.join()
        finally:
            for process in processes:
                if process.is_alive():
                    process.terminate()
    if any(process.exitcode for process in processes):
        raise ValueError("compiling failed; what went wrong is above")


@contextmanager
def _holding_signals() -> Iterator[None]:
    """Processes started within the block never see Ctrl-C, which is for this one to act on."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _align(cells: tuple[int, ...]) -> None:
    """The most plausible warps between random samples."""
    samples = np.random.default_rng(0).random((2 * N, *len(cells) * (SIZE,)), np.float32)
    align_pairs(WarpSpace(cells), samples[:N], samples[N:], progress=False)


def _warp(cells: tuple[int, ...]) -> None:
    """Neighbours among random samples, a model of random warps, and samples of every type by it."""
    space, rng = WarpSpace(cells), np.random.default_rng(0)
    samples = rng.random((N, *len(cells) * (SIZE,)))
    with silenced():
        neighbor_pairs(samples)
        theta = 0.01 * normals(0, np.arange(8 * N), space.dim)
        model = WarpModel.fit(space, {0: theta})
        for kind in TYPES:
            SampleSource(model, (samples.astype(kind), np.zeros(N, int))).make(0, N)
