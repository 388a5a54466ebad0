"""Question: how many images are warped per second, next to the elastic transforms in use.

256 images of 28 x 28, each with a warp of its own. kornia takes them as a batch of float32; the
others take one uint8 image at a time, ours either. The peers draw their random displacements within
the time measured, so ours is shown with θ given and with θ drawn.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates

from benchmarks.data import STRENGTHS, draw_theta, pixel_centers
from benchmarks.flows import build_peer, times_ours
from benchmarks.measure import Contestant, measure
from benchmarks.peers import (
    ImageTask,
    albumentations_images,
    dreamwarp_images,
    kornia_images,
    torchvision_images,
)
from benchmarks.report import ErrorRow, Report, Target
from benchmarks.settings import Settings
from dreamwarp import Warp, WarpSpace

Array = NDArray[Any]

CELLS, SHAPE = (4, 4), (28, 28)
KORNIA_BOUND, ALBUMENTATIONS_BOUND = 1.0, 4.0


def run(settings: Settings) -> Report:
    report = Report("images", "how many images are warped per second, next to elastic transforms?")
    space, points = WarpSpace(CELLS), pixel_centers(SHAPE)
    n, n_rounds = settings.pick(256, 32), settings.pick(9, 2)
    report.details = {"cells": CELLS, "boundary": "zero", "images": SHAPE, "n_images": n}
    theta = draw_theta(space, n, STRENGTHS["natural"], points, seed=settings.seed)
    # Noise: what an image shows changes no contestant's cost.
    integers = np.random.default_rng(settings.seed).integers(0, 256, (n, *SHAPE), np.uint8)
    floats = (integers / 255).astype(np.float32)
    _contest_floats(report, settings, space, theta, floats, n_rounds)
    _contest_integers(report, settings, space, theta, integers, n_rounds)
    report.errors.append(_pull_back_error(space, theta, floats))
    return report


def _contest_floats(
    report: Report, settings: Settings, space: WarpSpace, theta: Array, images: Array, n_rounds: int
) -> None:
    """Whole batches of float32."""
    ours = partial(dreamwarp_images, space, theta, images, n_threads=settings.n_threads)
    tasks = [ours(name="dreamwarp, θ given"), _drawing_task(space, theta, images, settings)]
    peer = build_peer(
        report,
        settings,
        partial(kornia_images, images, n_threads=settings.n_threads, seed=settings.seed),
    )
    timings = _time(tasks + ([] if peer is None else [peer]), n_rounds)
    report.add("All images in one call, float32", "image", timings)
    values = times_ours(timings, "kornia")
    report.targets.append(Target("images, θ given, against kornia", KORNIA_BOUND, values))


def _contest_integers(
    report: Report, settings: Settings, space: WarpSpace, theta: Array, images: Array, n_rounds: int
) -> None:
    """uint8, one image per call where a peer can do no other."""
    ours = partial(dreamwarp_images, space, theta, images, n_threads=settings.n_threads)
    tasks = [
        ours(name="dreamwarp, all in one call"),
        ours(name="dreamwarp, one by one", one_by_one=True),
    ]
    for build in (albumentations_images, torchvision_images):
        peer = build_peer(
            report,
            settings,
            partial(build, images, n_threads=settings.n_threads, seed=settings.seed),
        )
        tasks += [] if peer is None else [peer]
    timings = _time(tasks, n_rounds)
    report.add("Images of uint8, peers one by one", "image", timings)
    values = times_ours(timings, "albumentations")
    claim = "images, θ given, against albumentations"
    report.targets.append(Target(claim, ALBUMENTATIONS_BOUND, values))


def _drawing_task(space: WarpSpace, theta: Array, images: Array, settings: Settings) -> ImageTask:
    """Draw θ from the Gaussian with the second moments of the given ones, then warp."""
    factor = np.linalg.qr(theta.astype(np.float64), mode="r") / np.sqrt(len(theta))
    rng = np.random.default_rng(settings.seed)

    def warp() -> Array:
        drawn = rng.standard_normal((len(images), len(factor))) @ factor
        return Warp(space, drawn).image(images, n_threads=settings.n_threads)

    return ImageTask("dreamwarp, θ drawn", warp, len(images))


def _time(tasks: list[ImageTask], n_rounds: int) -> Any:
    return measure([Contestant(t.name, t.warp, t.n_images) for t in tasks], n_rounds=n_rounds)


def _pull_back_error(space: WarpSpace, theta: Array, images: Array) -> ErrorRow:
    """Our images against linear interpolation at exactly moved pixel centres, by scipy."""
    warped = Warp(space, theta).image(images)
    moved = space.flow(theta, pixel_centers(SHAPE), method="exact")
    expected = np.empty_like(warped)
    for i, (image, places) in enumerate(zip(images, moved, strict=True)):
        indices = (places * SHAPE - 0.5).T
        expected[i] = map_coordinates(image, indices, order=1, mode="nearest").reshape(SHAPE)
    errors = np.abs(warped - expected)
    return ErrorRow.of("dreamwarp", "noise", "intensity, black to white is 1", errors)
