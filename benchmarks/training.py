"""Question: what learned augmentation costs in a training loop.

256 images of 28 x 28 at a time, ten classes, a warp drawn for each image from the model of its
class: as a module on batches, next to kornia's random elastic transform; and inside a DataLoader,
next to the same loader without warps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import STRENGTHS, draw_theta, pixel_centers
from benchmarks.flows import build_peer, times_ours
from benchmarks.measure import Contestant, measure
from benchmarks.peers import PeerMissing, _import, kornia_images
from benchmarks.report import Report, Target
from benchmarks.settings import Settings
from dreamwarp import WarpSpace
from dreamwarp.model import WarpModel

Array = NDArray[Any]

CELLS, SHAPE, BATCH, N_CLASSES = (4, 4), (28, 28), 256, 10
KORNIA_BOUND = 1.0


def run(settings: Settings) -> Report:
    report = Report("training", "what does learned augmentation cost in a training loop?")
    n = settings.pick(16 * BATCH, BATCH)
    report.details = {
        "cells": CELLS, "images": SHAPE, "batch": BATCH, "classes": N_CLASSES, "n_images": n,
    }  # fmt: skip
    try:
        torch = _import("torch")
    except PeerMissing as missing:
        report.notes.append(str(missing))
        return report
    torch.set_num_threads(settings.n_threads)
    model = make_model(settings)
    # Noise: what an image shows changes no contestant's cost.
    images = np.random.default_rng(settings.seed).random((n, *SHAPE), np.float32)
    _contest_batches(report, settings, model, images[:BATCH])
    for n_workers in settings.pick((0, settings.n_threads), (0,)):
        _contest_loaders(report, settings, model, images, n_workers)
    return report


def make_model(settings: Settings) -> WarpModel:
    """Ten classes, each with natural warps of its own."""
    space, points = WarpSpace(CELLS), pixel_centers(SHAPE)
    theta = {
        label: draw_theta(
            space, 100, STRENGTHS["natural"], points, seed=settings.seed + label
        ).astype(np.float64)
        for label in range(N_CLASSES)
    }
    return WarpModel.fit(space, theta, shrinkage=0.1, pooling=0.1)


def _contest_batches(report: Report, settings: Settings, model: WarpModel, images: Array) -> None:
    """One batch again and again: θ drawn, images warped."""
    import torch

    from dreamwarp.torch import LearnedWarp

    batch, labels = torch.tensor(images[:, None]), torch.arange(len(images)) % N_CLASSES
    warp = LearnedWarp(model, seed=settings.seed)
    contestants = [Contestant("dreamwarp", lambda: warp(batch, labels), len(images))]
    build = partial(kornia_images, images, n_threads=settings.n_threads, seed=settings.seed)
    peer = build_peer(report, settings, build)
    if peer is not None:
        contestants.append(Contestant(peer.name, peer.warp, peer.n_images))
    timings = measure(contestants, n_rounds=settings.pick(9, 2))
    report.add("A batch, θ drawn by class and images warped", "image", timings)
    claim = "LearnedWarp, θ drawn, against kornia"
    report.targets.append(Target(claim, KORNIA_BOUND, times_ours(timings, "kornia")))


def _contest_loaders(
    report: Report, settings: Settings, model: WarpModel, images: Array, n_workers: int
) -> None:
    """All of a data set, batch by batch; workers go on from pass to pass."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from dreamwarp.torch import LearnedWarp, WarpCollate, WarpedDataset, WithIndex

    data = TensorDataset(torch.tensor(images[:, None]), torch.arange(len(images)) % N_CLASSES)
    load = partial(
        DataLoader, batch_size=BATCH, num_workers=n_workers, persistent_workers=n_workers > 0,
        multiprocessing_context="spawn" if n_workers else None,
    )  # fmt: skip
    warp, plain = LearnedWarp(model, seed=settings.seed), load(data)
    dataset, collate = WarpedDataset(data, model), WarpCollate(model)
    passes: dict[str, Callable[[], object]] = {
        "no warps": lambda: _exhaust(plain),
        "LearnedWarp on its batches": lambda: _exhaust(warp(*batch) for batch in plain),
        "WarpedDataset": _epochs(dataset, load(dataset)),
        "WarpCollate": _epochs(collate, load(WithIndex(data), collate_fn=collate)),
    }
    contestants = [Contestant(name, call, len(images)) for name, call in passes.items()]
    timings = measure(contestants, n_rounds=settings.pick(5, 1))
    report.add(f"A DataLoader with {n_workers} workers", "image", timings)


def _epochs(warps: Any, loader: Iterable[Any]) -> Callable[[], None]:
    """A pass for the next epoch with every call."""
    epochs = count()

    def run() -> None:
        warps.set_epoch(next(epochs))
        _exhaust(loader)

    return run


def _exhaust(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass
