"""Question: how fast is a volume warped, next to MONAI's and TorchIO's elastic transforms.

One volume of 64 x 64 x 64, float32. Each contestant draws its random warp within the time measured.
What they do to space is seen by warping coordinates: folds are voxels whose Jacobian, by finite
differences, has no positive determinant; the inverse error is how far coordinates are from where
they were after warp and inverse. MONAI's transform has no inverse.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.flows import build_peer, times_ours
from benchmarks.measure import Contestant, measure
from benchmarks.peers import PeerMissing
from benchmarks.report import ErrorRow, Report, Target
from benchmarks.settings import Settings
from dreamwarp import SmoothPrior, Warp, WarpSpace

Array = NDArray[Any]

CELLS = (3, 3, 3)
SPEED_BOUND, INVERSE_BOUND = 5.0, 0.1
# Root mean square displacement, in voxels of 64: about what TorchIO's defaults make.
DISPLACEMENT = 2.5


@dataclass(frozen=True)
class VolumeTask:
    """A contestant: ``warp`` draws and applies, ``apply(seed, channels)`` and ``undo`` repeat."""

    name: str
    warp: Callable[[], object]
    apply: Callable[[int, Array], Array]
    undo: Callable[[int, Array], Array] | None


def run(settings: Settings) -> Report:
    report = Report("volumes", "how fast is a volume warped, next to MONAI and TorchIO?")
    n, n_rounds, n_drawn = settings.pick(64, 16), settings.pick(7, 2), settings.pick(5, 1)
    report.details = {"cells": CELLS, "volume": (n, n, n), "n_drawn": n_drawn}
    volume = np.random.default_rng(settings.seed).random((1, n, n, n), np.float32)
    tasks = [dreamwarp_volume(volume, settings)]
    for build in (monai_volume, torchio_volume):
        peer = build_peer(report, settings, lambda build=build: build(volume, settings))  # type: ignore[misc]
        tasks += [] if peer is None else [peer]
    timings = measure([Contestant(t.name, t.warp) for t in tasks], n_rounds=n_rounds)
    report.add(f"One volume of {n}³, float32", "volume", timings)
    for name in ("MONAI Rand3DElastic", "TorchIO RandomElasticDeformation"):
        claim = f"volumes against {name}"
        report.targets.append(Target(claim, SPEED_BOUND, times_ours(timings, name)))
    for task in tasks:
        _judge(report, task, n, n_drawn)
    return report


def _judge(report: Report, task: VolumeTask, n: int, n_drawn: int) -> None:
    """Folds, displacements and inverse errors of some draws."""
    still = np.indices((n, n, n)).astype(np.float32)
    folds, moves, errors = [], [], []
    for seed in range(n_drawn):
        moved = task.apply(seed, still)
        moves.append(np.sqrt(((moved - still) ** 2).sum(axis=0)))
        folds.append(float((_determinants(moved) <= 0.0).mean()))
        if task.undo is not None:
            back = _inside(task.undo(seed, moved) - still, n)
            errors.append(np.sqrt((back**2).sum(axis=0)))
    row = ErrorRow.of(task.name, "how far voxels move", "voxels", np.stack(moves))
    report.errors.append(row)
    report.errors.append(
        ErrorRow.of(task.name, "folded", "share of voxels", np.array(folds, np.float64))
    )
    ours = task.name == "dreamwarp"
    if errors:
        row = ErrorRow.of(task.name, "warp and inverse", "voxels", np.stack(errors))
        report.errors.append(row)
    if ours:
        report.targets.append(
            Target("folded voxels of volumes", 0.0, tuple(folds), "share", at_least=False)
        )
        largest = tuple(float(error.max()) for error in errors)
        report.targets.append(
            Target("inverse error of volumes", INVERSE_BOUND, largest, "voxels", at_least=False)
        )


def _determinants(moved: Array) -> Array:
    """Of the Jacobian of coordinates (3, n, n, n), away from the border."""
    slopes = np.stack([np.stack(np.gradient(axis)) for axis in moved])
    return _inside(np.linalg.det(np.moveaxis(slopes, (0, 1), (-2, -1))), len(moved[0]))


def _inside(values: Array, n: int) -> Array:
    """Without the voxels near the border, where contestants fill in what lies outside."""
    edge = max(1, n // 8)
    return values[..., edge:-edge, edge:-edge, edge:-edge]


# -- contestants


def dreamwarp_volume(volume: Array, settings: Settings) -> VolumeTask:
    space, n = WarpSpace(CELLS), volume.shape[-1]
    prior = SmoothPrior(space, displacement=DISPLACEMENT / 64.0)
    rng = np.random.default_rng(settings.seed)

    def draw(generator: np.random.Generator) -> Array:
        return prior.root @ generator.standard_normal(prior.rank)

    def apply(seed: int, channels: Array, sign: float = 1.0) -> Array:
        """Coordinates are moved as points are: no interpolation blurs what is measured."""
        theta = sign * draw(np.random.default_rng(seed))
        points = (np.moveaxis(channels, 0, -1).reshape(-1, 3) + 0.5) / n
        moved = space.flow(theta, points, n_threads=settings.n_threads) * n - 0.5
        return np.moveaxis(moved.reshape(n, n, n, 3), -1, 0)

    return VolumeTask(
        "dreamwarp",
        lambda: Warp(space, draw(rng)).image(volume, n_threads=settings.n_threads),
        apply,
        lambda seed, channels: apply(seed, channels, -1.0),
    )


def monai_volume(volume: Array, settings: Settings) -> VolumeTask:
    """Settings of MONAI's own tutorials."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch
            from monai.transforms import Rand3DElastic
    except ImportError as error:
        raise PeerMissing(f"MONAI is not installed: {error}") from error
    torch.set_num_threads(settings.n_threads)

    def build() -> Any:
        return Rand3DElastic(
            sigma_range=(5, 8), magnitude_range=(100, 200), prob=1.0, padding_mode="border"
        )

    transform = build().set_random_state(settings.seed)
    tensor = torch.from_numpy(volume)
    return VolumeTask(
        "MONAI Rand3DElastic",
        lambda: transform(tensor),
        lambda seed, x: np.asarray(build().set_random_state(seed)(torch.from_numpy(x))),
        None,
    )


def torchio_volume(volume: Array, settings: Settings) -> VolumeTask:
    """Default settings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import torch
            import torchio
    except ImportError as error:
        raise PeerMissing(f"TorchIO is not installed: {error}") from error
    import SimpleITK

    SimpleITK.ProcessObject.SetGlobalDefaultNumberOfThreads(settings.n_threads)
    transform, tensor = torchio.RandomElasticDeformation(), torch.from_numpy(volume)

    def apply(seed: int, channels: Array) -> Array:
        torch.manual_seed(seed)
        return np.asarray(torchio.RandomElasticDeformation()(torch.from_numpy(channels)))

    def undo(seed: int, channels: Array) -> Array:
        """The package's own inverse of the deformation that ``apply`` drew."""
        torch.manual_seed(seed)
        image = torchio.ScalarImage(tensor=torch.from_numpy(np.zeros_like(channels)))
        subject = torchio.RandomElasticDeformation()(torchio.Subject(image=image))
        (deformation,) = subject.history
        return np.asarray(deformation.inverse()(torch.from_numpy(np.ascontiguousarray(channels))))

    return VolumeTask("TorchIO RandomElasticDeformation", lambda: transform(tensor), apply, undo)
