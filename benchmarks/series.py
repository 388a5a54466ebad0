"""Question: what does it cost to align two series, next to libcpab and to dynamic time warping.

Smooth random series and themselves warped, with noise. libcpab gets 100 steps of Adam on the same
sum of squares, all pairs in one batch; ours the search of `warp_distance`. Dynamic time warping
fills its whole matrix, compiled by numba as ours is: its cost grows with the square of the length,
ours with the length. All times are processor time, so that neither threads nor what else the
machine does count for or against anyone.
"""

from __future__ import annotations

import math
import time
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.flows import build_peer, times_ours
from benchmarks.measure import Contestant, measure
from benchmarks.peers import _Libcpab
from benchmarks.report import Curve, ErrorRow, Report, Target
from benchmarks.settings import Settings
from dreamwarp import SmoothPrior, Warp, WarpSpace, align_pairs

Array = NDArray[Any]

CELLS, SIGMA, DISPLACEMENT = (10,), 0.1, 0.05
LIBCPAB_BOUND = 10.0
LIBCPAB_STEPS, LIBCPAB_RATE, LIBCPAB_START = 100, 0.03, 1e-3
LENGTH = 200


def run(settings: Settings) -> Report:
    report = Report("series", "what does it cost to align two series, next to libcpab and DTW?")
    n, n_rounds = settings.pick(16, 8), settings.pick(3, 2)
    report.details = {"cells": CELLS, "length": LENGTH, "n_pairs": n, "sigma": SIGMA}
    sources, targets = draw_pairs(n, LENGTH, settings.seed)
    space = WarpSpace(CELLS)

    def ours() -> Array:
        return align(space, sources, targets, settings).theta

    contestants = [Contestant("dreamwarp", ours, n)]
    peer = build_peer(report, settings, lambda: libcpab_series(sources, targets))
    contestants += [] if peer is None else [Contestant("libcpab with Adam", peer, n)]
    timings = measure(contestants, n_rounds=n_rounds, timer=time.process_time)
    report.add(f"Series of {LENGTH} values, {CELLS[0]} cells", "pair", timings)
    values = times_ours(timings, "libcpab with Adam")
    report.targets.append(Target("1-D alignment against libcpab with Adam", LIBCPAB_BOUND, values))
    left = align(space, sources, targets, settings)
    share = left.loss_after / left.loss_before
    report.errors.append(ErrorRow.of("dreamwarp", "left over", "share of the squares", share))
    if peer is not None:
        report.errors.append(ErrorRow.of("libcpab with Adam", "left over", "share of the squares",
                                         peer() / left.loss_before))  # fmt: skip
    _grow(report, settings, space, n_rounds)
    return report


def align(space: WarpSpace, sources: Array, targets: Array, settings: Settings) -> Any:
    return align_pairs(
        space, sources, targets, sigma=SIGMA, prior=build_prior(space), progress=False,
        n_threads=settings.n_threads,
    )  # fmt: skip


@cache
def build_prior(space: WarpSpace) -> SmoothPrior:
    return SmoothPrior(space, displacement=2 * DISPLACEMENT)


def draw_pairs(n: int, length: int, seed: int) -> tuple[Array, Array]:
    """Series of a few waves (n, length), and themselves warped, with noise."""
    rng = np.random.default_rng(seed)
    time = (np.arange(length) + 0.5) / length
    waves = np.sin(2 * np.pi * (np.arange(1, 5)[:, None] * time + rng.random((n, 4, 1))))
    sources = (rng.normal(size=(n, 4, 1)) * waves).sum(axis=1)
    sources /= sources.std(axis=1, keepdims=True)
    space = WarpSpace(CELLS)
    theta = SmoothPrior(space, displacement=DISPLACEMENT).sample(n, seed=seed)
    targets = Warp(space, theta).image(sources)
    return sources, targets + SIGMA * rng.normal(size=targets.shape)


def _grow(report: Report, settings: Settings, space: WarpSpace, n_rounds: int) -> None:
    """Cost of a pair against the length of its series; where ours crosses DTW's."""
    lengths = settings.pick((100, 200, 500, 1000, 2000, 5000), (100, 200))
    runs: list[tuple[str, int, Contestant]] = []
    for length in lengths:
        n = settings.pick(64, 8) if length < 2000 else 16  # enough that overheads do not count
        sources, targets = draw_pairs(n, length, settings.seed)
        runs.append(("dreamwarp", length, Contestant(
            "dreamwarp", lambda s=sources, t=targets: align(space, s, t, settings), n)))  # type: ignore[misc]  # fmt: skip
        runs.append(("DTW", length, Contestant(
            "DTW", lambda s=sources, t=targets: all_dtw(s, t), n)))  # type: ignore[misc]  # fmt: skip
    contestants = [contestant for _, _, contestant in runs]
    timings = measure(contestants, n_rounds=n_rounds, timer=time.process_time)
    curves = {}
    for name in ("dreamwarp", "DTW"):
        chosen = [i for i, run in enumerate(runs) if run[0] == name]
        curves[name] = Curve("length", name, tuple(runs[i][1] for i in chosen),
                             tuple(timings[i] for i in chosen))  # fmt: skip
        report.curves.append(curves[name])
    crossing = _crossing(*curves.values())
    report.notes.append(
        "Alignment and DTW do not cross at these lengths." if crossing is None else
        f"Alignment costs less than DTW from a length of about {crossing:,.0f} on."
    )  # fmt: skip


def _crossing(ours: Curve, theirs: Curve) -> float | None:
    """Length at which two curves, straight between sizes on logarithmic axes, cross."""
    gaps = [
        math.log(a.median / b.median) for a, b in zip(ours.timings, theirs.timings, strict=True)
    ]
    for k in range(len(gaps) - 1):
        if gaps[k] > 0.0 >= gaps[k + 1]:
            share = gaps[k] / (gaps[k] - gaps[k + 1])
            low, high = map(math.log, ours.sizes[k : k + 2])
            return math.exp(low + share * (high - low))
    return None


# -- contestants


def libcpab_series(sources: Array, targets: Array) -> Any:
    """A function that aligns all pairs in one batch, and returns the residuals (n,)."""
    mapped = _Libcpab(CELLS, 1)
    torch, transformer = mapped.torch, mapped.transformer
    length = sources.shape[1]
    points = torch.linspace(0.5 / length, 1 - 0.5 / length, length)[None]
    images, wanted = (torch.tensor(x, dtype=torch.float32) for x in (sources, targets))

    def see(moved: Any) -> Any:
        """Linear interpolation at places (n, length) of the unit interval."""
        places = (moved * length - 0.5).clamp(0, length - 1)
        left = places.floor().clamp(max=length - 2).long()
        share = places - left
        return images.gather(1, left) * (1 - share) + images.gather(1, left + 1) * share

    def run() -> Array:
        generator = torch.Generator().manual_seed(0)
        size = (len(sources), transformer.get_theta_dim())
        theta = (LIBCPAB_START * torch.randn(size, generator=generator)).requires_grad_(True)
        optimizer = torch.optim.Adam([theta], lr=LIBCPAB_RATE)
        for _ in range(LIBCPAB_STEPS):
            optimizer.zero_grad()
            seen = see(transformer.transform_grid(points, theta)[:, 0])
            (seen - wanted).square().sum().backward()
            optimizer.step()
        with torch.no_grad():
            seen = see(transformer.transform_grid(points, theta)[:, 0])
        return ((seen - wanted) ** 2).sum(dim=1).numpy()

    return run


def all_dtw(sources: Array, targets: Array) -> Array:
    return np.array([dtw(s, t) for s, t in zip(sources, targets, strict=True)])


@njit(cache=True)  # type: ignore[untyped-decorator]
def dtw(a: Array, b: Array) -> float:
    """Least sum of squares over monotone paths, no window."""
    before = np.full(len(b) + 1, np.inf)
    before[0] = 0.0
    for i in range(len(a)):
        row = np.full(len(b) + 1, np.inf)
        for j in range(len(b)):
            least = min(before[j], before[j + 1], row[j])
            row[j + 1] = (a[i] - b[j]) ** 2 + least
        before = row
    return math.sqrt(before[-1])
