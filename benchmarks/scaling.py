"""Question: how does the cost of the flow grow with points, batch and cells.

Points and batch: (4, 4) cells, natural strength, libcpab beside ours as far as it is bearable.
Cells: the same smooth fields taken into ever finer spaces, each at the default tolerance.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import (
    STRENGTHS,
    SmoothFields,
    draw_theta,
    pixel_centers,
    scale_to,
    theta_of,
)
from benchmarks.flows import build_peer, distance_row
from benchmarks.measure import Contestant, measure, ratios
from benchmarks.peers import FlowTask, dreamwarp_flow, libcpab_flow
from benchmarks.report import Curve, Report, Target
from benchmarks.settings import Settings
from dreamwarp import WarpSpace
from dreamwarp.core.files import write_beside

Array = NDArray[Any]

CELLS, SHAPE = (4, 4), (28, 28)
# Squares of integers, as points are pixel centres of square images: about 10^2 to 10^6.
POINT_COUNTS = (100, 1024, 10_000, 99_856, 1_000_000)
BATCHES = (1, 4, 16, 64, 256, 1024, 4096)
# Past these a round of libcpab would last longer than all the rest.
PEER_POINTS, PEER_BATCH = 10_000, 64
CELL_COUNTS = ((4, 4), (8, 8), (16, 16))
IMAGES = {(28, 28): 64, (128, 128): 8}
# Cost is linear if its exponent is; the margin is for caches and noise.
EXPONENT_BOUND, CELLS_BOUND = 1.05, 1.5


def run(settings: Settings) -> Report:
    report = Report("scaling", "how does the cost of the flow grow with points, batch and cells?")
    n_rounds = settings.pick(7, 2)
    report.details = {"cells": CELLS, "points": SHAPE, "strength": "natural"}
    point_counts = settings.pick(POINT_COUNTS, POINT_COUNTS[:3])
    batches = settings.pick(BATCHES, BATCHES[:4])
    _grow(report, settings, "points", [(1, m) for m in point_counts], n_rounds)
    _grow(report, settings, "batch", [(n, SHAPE[0] * SHAPE[1]) for n in batches], n_rounds)
    for shape, n in IMAGES.items():
        _refine(report, settings, shape, settings.pick(n, 4), n_rounds)
    path = settings.folder / "scaling.png"
    plot(report, path)
    report.notes.append(f"Plot: {path.name}, beside the results.")
    return report


def _grow(
    report: Report, settings: Settings, variable: str, sizes: list[tuple[int, int]], n_rounds: int
) -> None:
    """Add curves of cost against points or batch; a size is (θ, points)."""
    space, n_most = WarpSpace(CELLS, "slip"), max(n for n, _ in sizes)
    drawn = draw_theta(
        space, n_most, STRENGTHS["natural"], pixel_centers(SHAPE), seed=settings.seed
    )
    runs: list[tuple[FlowTask, int]] = []
    for n, m in sizes:
        points = pixel_centers(2 * (math.isqrt(m),)).astype(np.float32)
        tasks = _tasks(report, settings, space, drawn[:n], points)
        runs += [(task, n if variable == "batch" else m) for task in tasks]
    timings = measure(
        [Contestant(task.name, task.flow) for task, _ in runs], n_rounds=n_rounds, shortest=0.03
    )
    for name in dict.fromkeys(task.name for task, _ in runs):
        chosen = [i for i, (task, _) in enumerate(runs) if task.name == name]
        counts, costs = tuple(runs[i][1] for i in chosen), tuple(timings[i] for i in chosen)
        report.curves.append(Curve(variable, name, counts, costs))
    claim, exponents = f"exponent of the cost against {variable}", _own_exponents(report, variable)
    report.targets.append(Target(claim, EXPONENT_BOUND, exponents, "", at_least=False))


def _tasks(
    report: Report, settings: Settings, space: WarpSpace, theta: Array, points: Array
) -> list[FlowTask]:
    """Ours, and libcpab's where it is not too slow."""
    n_threads = settings.n_threads
    ours = dreamwarp_flow(space, theta, points, n_threads=n_threads)
    if len(points) > PEER_POINTS or len(theta) > PEER_BATCH:
        return [ours]
    build = partial(libcpab_flow, space, theta, points, n_threads=n_threads)
    peer = build_peer(report, settings, build)
    return [ours] if peer is None else [ours, peer]


def _own_exponents(report: Report, variable: str) -> tuple[float, ...]:
    (own,) = (c for c in report.curves if (c.variable, c.contestant) == (variable, "dreamwarp"))
    return own.exponents()


def _refine(
    report: Report, settings: Settings, shape: tuple[int, int], n: int, n_rounds: int
) -> None:
    """Time the same smooth fields in ever finer spaces."""
    spaces = [WarpSpace(cells) for cells in CELL_COUNTS]
    points = pixel_centers(shape)
    fields = SmoothFields.draw(n, 2, slip=False, rng=np.random.default_rng(settings.seed))
    finest = theta_of(spaces[-1], fields)
    scale = scale_to(STRENGTHS["natural"], finest, spaces[-1], pixel_centers(SHAPE))
    contestants = []
    setting = f"{shape[0]} x {shape[1]} points"
    for space in spaces:
        theta = theta_of(space, fields) * scale[:, None]
        task = dreamwarp_flow(
            space, theta, points, n_threads=settings.n_threads, name=f"{space.cells} cells"
        )
        contestants.append(Contestant(task.name, task.flow, n))
        exact = space.flow(theta, points, method="exact")
        report.errors.append(distance_row(task.name, setting, task.moved(), exact))
    timings = measure(contestants, n_rounds=n_rounds)
    report.add(f"The same fields in finer spaces, {setting}", "θ", timings)
    coarsest, finest_cells = CELL_COUNTS[0], CELL_COUNTS[-1]
    claim = f"cost of {finest_cells} cells over {coarsest}, {setting}"
    values = ratios(timings[-1], timings[0])
    report.targets.append(Target(claim, CELLS_BOUND, values, at_least=False))


def plot(report: Report, path: Path) -> None:
    """Draw cost against points, batch and cells."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    by_points, by_batch, by_cells = figure.subplots(1, 3)
    for axes, variable, fixed in (
        (by_points, "points", "one θ"),
        (by_batch, "batch", f"{SHAPE[0]} x {SHAPE[1]} points"),
    ):
        for curve in report.curves:
            if curve.variable == variable:
                medians = [1e3 * timing.median for timing in curve.timings]
                axes.loglog(curve.sizes, medians, marker="o", label=curve.contestant)
        axes.set(xlabel=f"{variable} ({fixed}, {CELLS} cells)", ylabel="milliseconds per call")
        axes.legend()
    triangles = [4 * rows * columns for rows, columns in CELL_COUNTS]
    for group in report.groups:
        medians = [1e6 * timing.median for timing in group.timings]
        by_cells.loglog(triangles, medians, marker="o", label=group.title.split(", ")[-1])
    by_cells.set(xlabel="triangles (the same fields)", ylabel="microseconds per θ")
    by_cells.legend()
    for axes in (by_points, by_batch, by_cells):
        axes.grid(alpha=0.3)
    with write_beside(path) as temporary:
        figure.savefig(temporary, dpi=150)
