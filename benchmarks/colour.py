"""Question: what do colour images of 128 x 128 cost, per aligned pair and per new sample.

Crops of a photograph that ships with scikit-learn, and the same crops warped, with noise. Pairs are
aligned with the noise estimated from them, the default, and with the noise given. Samples are uint8
images warped by θ drawn from a smooth prior. Times are processor time divided by the number of
threads: what an idle machine takes, measured on a busy one too.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Contestant, Timing, measure
from benchmarks.report import ErrorRow, Report, Target
from benchmarks.settings import Settings
from dreamwarp import SmoothPrior, Warp, WarpSpace, align_pairs

Array = NDArray[Any]

CELLS, SIZE = (4, 4), 128
NOISE, DISPLACEMENT = 0.02, 0.03
PAIR_BOUND, SAMPLE_BOUND = 0.060, 0.0005


def run(settings: Settings) -> Report:
    report = Report("colour", "what do colour images of 128 x 128 cost, per pair and per sample?")
    n_pairs, n_samples = settings.pick(64, 4), settings.pick(64, 8)
    size = settings.pick(SIZE, 32)
    report.details = {
        "cells": CELLS, "size": size, "n_pairs": n_pairs, "n_samples": n_samples,
        "displacement": DISPLACEMENT, "noise": NOISE,
    }  # fmt: skip
    space = WarpSpace(CELLS)
    prior = SmoothPrior(space, displacement=DISPLACEMENT)
    sources, targets = draw_pairs(space, prior, n_pairs, size, settings.seed)

    def align(sigma: Any) -> Any:
        return align_pairs(
            space, sources, targets, sigma=sigma, progress=False, n_threads=settings.n_threads
        )

    contestants = [
        Contestant("noise estimated", lambda: align("auto"), n_pairs),
        Contestant("noise given", lambda: align(0.1), n_pairs),
    ]
    timings = per_thread(contestants, settings, settings.pick(3, 2))
    report.add(f"Align colour images of {size} x {size}", "pair", timings)
    report.targets.append(
        Target("colour images, a pair", PAIR_BOUND, timings[0].seconds, "s", at_least=False)
    )
    found = align("auto")
    share = found.loss_after / found.loss_before
    report.errors.append(ErrorRow.of("noise estimated", "left over", "share of the squares", share))
    images = (255 * sources[np.arange(n_samples) % n_pairs]).astype(np.uint8)
    theta = prior.sample(n_samples, seed=settings.seed)

    def warp() -> Array:
        return Warp(space, theta).image(images, n_threads=settings.n_threads)

    (timing,) = per_thread([Contestant("Warp.image", warp, n_samples)], settings, 5)
    report.add(f"Warp colour images of {size} x {size}, uint8", "sample", [timing])
    report.targets.append(
        Target("colour images, a sample", SAMPLE_BOUND, timing.seconds, "s", at_least=False)
    )
    return report


def per_thread(
    contestants: Sequence[Contestant], settings: Settings, n_rounds: int
) -> list[Timing]:
    """Processor time divided by the number of threads."""
    timings = measure(contestants, n_rounds=n_rounds, timer=time.process_time)
    return [
        replace(timing, seconds=tuple(s / settings.n_threads for s in timing.seconds))
        for timing in timings
    ]


def draw_pairs(
    space: WarpSpace, prior: SmoothPrior, n: int, size: int, seed: int
) -> tuple[Array, Array]:
    """Crops (n, 3, size, size) of a photograph, in [0, 1], and the same warped, with noise."""
    from sklearn.datasets import load_sample_image

    photo = load_sample_image("flower.jpg").astype(np.float32) / 255.0
    rng = np.random.default_rng(seed)
    corners = rng.integers((photo.shape[0] - size, photo.shape[1] - size), size=(n, 2))
    sources = np.stack([photo[r : r + size, c : c + size].transpose(2, 0, 1) for r, c in corners])
    warped = Warp(space, prior.sample(n, seed=seed + 1)).image(sources)
    targets = np.clip(warped + NOISE * rng.normal(size=warped.shape), 0.0, 1.0)
    return sources, targets.astype(np.float32)
