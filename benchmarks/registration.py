"""Registration of pairs of images by dreamwarp and its peers, all brought to one form.

A contestant takes sources and targets (n, rows, columns), float32 in [0, 1], and gives their maps:
a function that says, for the points of a grid over the targets, where in the sources they lie. What
is left of the difference, and where maps fold, is then computed in one way for all.

Settings of all contestants were chosen on pairs that are not measured: ``python -m
benchmarks.registration`` tries those in ``CANDIDATES`` and shows what each leaves over. ``CHOSEN``
are those that are measured.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates

from benchmarks.data import pixel_centers
from benchmarks.peers import _import, _Libcpab, _silence
from dreamwarp import SmoothPrior, WarpSpace, align_pairs

Array = NDArray[Any]
# Of a grid (rows, columns, 2) to (n, rows, columns, 2): rows and columns of images, in pixels.
Maps = Callable[[Array], Array]
RegisterFn = Callable[[Array, Array], Maps]

# Folds are looked for on a grid this many times as fine as the pixels, by differences over this
# part of a pixel. Over whole pixels they turn negative where a map that does not fold has a crease.
REFINEMENT, STEP = 2, 0.005
# Rounds of a contestant, and seconds in all after which there are no more.
N_ROUNDS, LONG = 5, 10.0
# Adam's, as the measurement is defined.
LIBCPAB_STEPS = 200
# libcpab's gradient is not a number at θ = 0 exactly.
LIBCPAB_START = 1e-3


@dataclass(frozen=True)
class Registration:
    """One contestant with its settings."""

    name: str
    options: dict[str, Any]
    register: RegisterFn

    @property
    def label(self) -> str:
        """Name and settings, in words."""
        return f"{self.name} ({', '.join(f'{k} {v:g}' for k, v in self.options.items())})"


@dataclass(frozen=True)
class Outcome:
    """Result of a contestant on some pairs.

    Parameters
    ----------
    seconds : float
        Wall time of all pairs, the median of several rounds.
    before, after : (n,)
        Sums of squared differences.
    folded : (n,)
        Share of the image in which the map folds.
    """

    seconds: float
    before: Array
    after: Array
    folded: Array

    def as_dict(self) -> dict[str, float]:
        return {
            "seconds per pair": self.seconds / len(self.before),
            "SSD left": float(self.after.sum() / self.before.sum()),
            "SSD left, mean over pairs": float(np.mean(self.after / self.before)),
            "pairs worse than begun": float(np.mean(self.after > self.before)),
            "pairs with folds": float(np.mean(self.folded > 0)),
            "area with folds": float(self.folded.mean()),
        }


def judge(contestant: Registration, sources: Array, targets: Array) -> Outcome:
    """Time a contestant and compute its residuals."""
    rounds: list[float] = []
    while len(rounds) < N_ROUNDS and sum(rounds) < LONG:  # one round of a slow one says enough
        start = time.perf_counter()
        maps = contestant.register(sources, targets)
        rounds.append(time.perf_counter() - start)
    seconds = float(np.median(rounds))
    shape = sources.shape[1:]
    before = squared_differences(sources, targets)
    after = squared_differences(pull_back(sources, maps(grid_points(shape))), targets)
    folded = jacobian_determinants(maps, grid_points(shape, REFINEMENT)) <= 0
    folded = folded.mean(axis=(1, 2))
    return Outcome(seconds, before, after, folded)


def squared_differences(images: Array, others: Array) -> Array:
    """Sum over the pixels of each pair: (n,)."""
    return ((images.astype(np.float64) - others) ** 2).sum(axis=(1, 2))


def pull_back(images: Array, moved: Array) -> Array:
    """Images (n, rows, columns) at (n, rows, columns, 2), by scipy's linear interpolation."""
    places = np.moveaxis(moved, -1, 1)
    pairs = zip(images, places, strict=True)
    return np.stack([map_coordinates(image, at, order=1, mode="nearest") for image, at in pairs])


def grid_points(shape: tuple[int, ...], refinement: int = 1) -> Array:
    """Points of a grid that is so many times as fine as an image's pixels, in pixels."""
    fine = tuple(refinement * size for size in shape)
    return pixel_centers(fine).reshape(*fine, 2) * shape - 0.5


def jacobian_determinants(maps: Maps, points: Array) -> Array:
    """Of maps at a grid (rows, columns, 2), by finite differences: (n, rows, columns).

    Differences are taken both ways along both axes, and the largest of the four determinants
    counts: beside a crease three of them may mix the maps of its two sides, which says nothing.
    """
    here = maps(points)
    by_row, by_column = (
        [(maps(points + step) - here) / size for size, step in ((STEP, along), (-STEP, -along))]
        for along in STEP * np.eye(2)
    )
    found = [
        rows[..., 0] * columns[..., 1] - rows[..., 1] * columns[..., 0]
        for rows in by_row
        for columns in by_column
    ]
    return np.maximum.reduce(found)


# -- contestants


def dreamwarp_map(
    *,
    n_threads: int,
    cells: int,
    sigma: float,
    displacement: float,
    length: float,
    max_steps: int,
) -> Registration:
    """Our search on ``cells`` by ``cells`` squares, sliding along the boundary.

    It takes at most ``max_steps`` steps at every resolution and level of noise.
    """
    space = WarpSpace((cells, cells), "slip")
    prior = SmoothPrior(space, displacement=displacement, length=length)

    def register(sources: Array, targets: Array) -> Maps:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # what they leave over is measured
            found = align_pairs(
                space, sources, targets, prior=prior, sigma=sigma, max_steps=max_steps,
                n_threads=n_threads, progress=False,
            )  # fmt: skip
        return partial(
            _flow_maps, partial(space.flow, found.theta, method="exact"), sources.shape[1:]
        )

    options = {
        "cells": cells, "sigma": sigma, "displacement": displacement, "length": length,
        "steps": max_steps,
    }  # fmt: skip
    return Registration("dreamwarp map", options, register)


def _flow_maps(flow: Callable[[Array], Array], shape: tuple[int, ...], points: Array) -> Array:
    """Maps of images of a shape by a flow of points of the unit square."""
    moved = flow((points.reshape(-1, 2) + 0.5) / shape)
    return moved.reshape(len(moved), *points.shape) * np.asarray(shape) - 0.5


def demons(*, n_threads: int, smoothing: float, n_iterations: int) -> Registration:
    """SimpleITK's diffeomorphic demons, on ``n_threads`` pairs at a time."""
    sitk = _simpleitk()

    def register(fixed: Any, moving: Any) -> Any:
        method = sitk.DiffeomorphicDemonsRegistrationFilter()
        method.SetNumberOfIterations(n_iterations)
        method.SetStandardDeviations(smoothing)
        field = method.Execute(fixed, moving)
        return sitk.DisplacementFieldTransform(sitk.Cast(field, sitk.sitkVectorFloat64))

    options = {"smoothing": smoothing, "iterations": n_iterations}
    return Registration("SimpleITK demons", options, _for_each(sitk, register, n_threads))


def bspline(*, n_threads: int, mesh: int, n_iterations: int) -> Registration:
    """SimpleITK's cubic B-splines on ``mesh`` by ``mesh`` squares: mean squares, L-BFGS-B."""
    sitk = _simpleitk()

    def register(fixed: Any, moving: Any) -> Any:
        method = sitk.ImageRegistrationMethod()
        method.SetMetricAsMeanSquares()
        method.SetInterpolator(sitk.sitkLinear)
        method.SetOptimizerAsLBFGSB(numberOfIterations=n_iterations)
        method.SetInitialTransform(sitk.BSplineTransformInitializer(fixed, [mesh, mesh], 3), True)
        return method.Execute(fixed, moving)

    options = {"mesh": mesh, "iterations": n_iterations}
    return Registration("SimpleITK B-spline", options, _for_each(sitk, register, n_threads))


def _simpleitk() -> Any:
    sitk = _import("SimpleITK")
    # Pairs are spread over threads instead, which is faster for images this small.
    sitk.ProcessObject.SetGlobalDefaultNumberOfThreads(1)
    return sitk


def _for_each(sitk: Any, register: Callable[[Any, Any], Any], n_threads: int) -> RegisterFn:
    """One pair per call, several calls at a time: SimpleITK lets go of Python's lock."""

    def register_all(sources: Array, targets: Array) -> Maps:
        fixed = [sitk.GetImageFromArray(target) for target in targets]
        moving = [sitk.GetImageFromArray(source) for source in sources]
        with ThreadPoolExecutor(n_threads) as pool:
            transforms = list(pool.map(register, fixed, moving))
        return partial(_transform_maps, sitk, transforms)

    return register_all


def _transform_maps(sitk: Any, transforms: list[Any], points: Array) -> Array:
    """Maps by SimpleITK's transforms, whose coordinates run column, row."""
    rows, columns = points.shape[:2]
    first, spacing = points[0, 0, ::-1], (points[1, 1] - points[0, 0])[::-1]
    options = (sitk.sitkVectorFloat64, (columns, rows), first.tolist(), spacing.tolist())
    fields = (sitk.TransformToDisplacementField(transform, *options) for transform in transforms)
    return np.stack([points + sitk.GetArrayFromImage(field)[..., ::-1] for field in fields])


def libcpab(
    *, n_threads: int, cells: int, rate: float, n_steps: int = LIBCPAB_STEPS
) -> Registration:
    """libcpab's warps under torch's Adam, in one batch per thread.

    That is faster than one batch in which torch spreads each of many small steps over threads.
    """
    mapped = _Libcpab((cells, cells), 1)
    torch = mapped.torch

    def see(images: Any, moved: Any) -> Any:
        """Images at (n, 2, pixels) of column and row; grid_sample has corners at -1 and 1."""
        places = (2 * moved - 1).transpose(1, 2).reshape(len(images), *images.shape[2:], 2)
        return torch.nn.functional.grid_sample(
            images, places, padding_mode="border", align_corners=False
        )

    def descend(sources: Array, targets: Array) -> Any:
        points = mapped.grid(pixel_centers(sources.shape[1:]))
        images, wanted = torch.tensor(sources[:, None]), torch.tensor(targets[:, None])
        generator = torch.Generator().manual_seed(0)
        size = (len(sources), mapped.transformer.get_theta_dim())
        theta = (LIBCPAB_START * torch.randn(size, generator=generator)).requires_grad_(True)
        optimizer = torch.optim.Adam([theta], lr=rate)
        for _ in range(n_steps):
            optimizer.zero_grad()
            seen = see(images, mapped.transformer.transform_grid(points, theta))
            (seen - wanted).square().sum().backward()
            optimizer.step()
        return theta.detach()

    def register(sources: Array, targets: Array) -> Maps:
        batches = (np.array_split(images, n_threads) for images in (sources, targets))
        with ThreadPoolExecutor(n_threads) as pool:
            theta = torch.cat(list(pool.map(descend, *batches)))
        return partial(_flow_maps, partial(flow, theta), sources.shape[1:])

    def flow(theta: Any, points: Array) -> Array:
        with torch.no_grad():
            moved = mapped.transformer.transform_grid(mapped.grid(points), theta)
        return np.asarray(moved.numpy().transpose(0, 2, 1)[..., ::-1])

    options = {"cells": cells, "rate": rate, "steps": n_steps}
    return Registration("libcpab, Adam", options, register)


# -- settings


CANDIDATES: dict[Callable[..., Registration], list[dict[str, Any]]] = {
    dreamwarp_map: [
        {"cells": cells, "sigma": sigma, "displacement": 0.3, "length": length, "max_steps": n}
        for cells, length in ((4, 0.2), (5, 0.1), (6, 0.1), (8, 0.1))
        for sigma in (0.05, 0.03, 0.02)
        for n in (4, 50)
    ],
    demons: [
        {"smoothing": smoothing, "n_iterations": n}
        for smoothing in (0.3, 0.5, 0.7, 1.0, 1.5)
        for n in (10, 20, 50, 200)
    ],
    bspline: [{"mesh": mesh, "n_iterations": n} for mesh in (4, 6, 8, 10) for n in (10, 30, 100)],
    libcpab: [{"cells": 4, "rate": rate} for rate in (0.01, 0.03, 0.1)],
}


# What is measured, ours first, which leave less the finer the cells are and the longer they take.
# Of a peer, the fastest settings that left no more over than ours or, if none did, those that left
# least; of demons, both, and the smoothing that SimpleITK sets by itself.
CHOSEN: dict[str, tuple[Callable[..., Registration], dict[str, Any]]] = {
    "dreamwarp": (
        dreamwarp_map,
        {"cells": 6, "sigma": 0.03, "displacement": 0.3, "length": 0.1, "max_steps": 4},
    ),
    "SimpleITK demons": (demons, {"smoothing": 0.3, "n_iterations": 20}),
    "SimpleITK demons, to the end": (demons, {"smoothing": 0.3, "n_iterations": 200}),
    "SimpleITK demons, default smoothing": (demons, {"smoothing": 1.0, "n_iterations": 200}),
    "SimpleITK B-spline": (bspline, {"mesh": 10, "n_iterations": 100}),
    "libcpab with Adam": (libcpab, {"cells": 4, "rate": 0.1}),
}  # fmt: skip


def main(n_pairs: int = 8) -> int:
    """Show the residuals of all candidates on pairs that are not measured."""
    from benchmarks.align import choose_pairs, load_pairs

    sources, targets = load_pairs()
    _, others = choose_pairs(len(sources), n_others=n_pairs)
    sources, targets = sources[others], targets[others]
    for build, candidates in CANDIDATES.items():
        for options in candidates:
            with _silence():
                contestant = build(n_threads=2, **options)
                contestant.register(sources[:2], targets[:2])  # compiles
                outcome = judge(contestant, sources, targets)
            figures = ", ".join(f"{key} {value:.4f}" for key, value in outcome.as_dict().items())
            print(f"{contestant.label}: {figures}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
