"""Question: how far is the fast flow from what the machine can do.

The arithmetic that the flow needs is counted from the algorithm, and held against the rate at which
this machine multiplies float32 matrices, the nearest thing to its peak that ordinary software
reaches. The result that must be written is held against the rate at which it copies memory.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import STRENGTHS, draw_theta, pixel_centers
from benchmarks.measure import Contestant, measure
from benchmarks.report import Report, duration
from benchmarks.settings import Settings
from dreamwarp import WarpSpace
from dreamwarp.space.passes import ORDER

Array = NDArray[Any]

CELLS, SHAPE = (4, 4), (28, 28)
# A root of a parabola: products, comparisons, one square root, one division.
ROOT = 12
# Moments at which a path's cell is looked up: natural paths cross a cell in some ten of them.
N_MOMENTS = 65


def run(settings: Settings) -> Report:
    report = Report("hardware", "how far is the fast flow from what the machine can do?")
    space, points = WarpSpace(CELLS, "slip"), pixel_centers(SHAPE)
    n, n_traced, n_rounds = settings.pick((1024, 16, 7), (64, 2, 2))
    theta = draw_theta(space, n, STRENGTHS["natural"], points, seed=settings.seed)

    def flow(n_points: int) -> Array:
        return space.flow(theta, points[:n_points], n_threads=settings.n_threads)

    all_points, one_point = measure(
        [
            Contestant("flow", partial(flow, len(points)), n),
            Contestant("flow of a single point", partial(flow, 1), n),
        ],
        n_rounds=n_rounds,
    )
    figures = {
        "cells visited by a path": float(cells_visited(space, theta[:n_traced], points).mean()),
        "operations per step": sum(operations_per_step(space.ndim).values()),
        "seconds per θ": all_points.median,
        "seconds per θ before points move": one_point.median,
        "bytes written per θ": points.size * 4,
        **machine_rates(
            n_rounds, side=settings.pick(2048, 256), length=settings.pick(2**25, 2**20)
        ),
    }
    report.details = {"cells": CELLS, "points": SHAPE, "n_theta": n, "figures": figures}
    report.add("Flow, natural strength", "θ", [all_points, one_point])
    report.notes.append(explain(figures, len(points)))
    return report


def machine_rates(n_rounds: int, *, side: int, length: int) -> dict[str, float]:
    """How fast this machine multiplies matrices and copies memory, on the threads it may use."""
    square, line = np.ones((side, side), np.float32), np.ones(length, np.float32)
    product, target = np.empty_like(square), np.empty_like(line)
    multiply, copy = measure(
        [
            Contestant("matrix product", lambda: np.matmul(square, square, out=product)),
            Contestant("copy", lambda: np.copyto(target, line)),
        ],
        n_rounds=n_rounds,
    )
    return {
        "peak operations per second": 2.0 * side**3 / multiply.median,
        "copied bytes per second": 2.0 * line.nbytes / copy.median,
    }


def operations_per_step(ndim: int) -> dict[str, int]:
    """Float operations that one step of one path takes, pass by pass of ``dreamwarp.space.passes``.

    A multiply-add counts as two; comparisons and selections as one each.
    """
    n, faces = ndim, ndim + 1
    value_and_slope = 4 * ORDER
    return {
        "expand": n * (2 * n + 2) + (ORDER - 1) * n * (2 * n + 1) + 2 * n * ORDER,
        "find_faces": faces * (2 * (ORDER - 2) + ROOT + 7),
        "choose_face": 3 * (ORDER - 1) + n * (ORDER + 1),
        "approach_face": value_and_slope + ROOT + 4,
        "land": value_and_slope + 4,
        "move": 2 * n * ORDER,
    }


def cells_visited(space: WarpSpace, theta: Array, points: Array) -> NDArray[np.int64]:
    """Number of cells on every path, found by looking often: (n, m)."""
    weights = space.tessellation.barycentric[: space.n_cells]
    visited = np.ones((len(theta), len(points)), np.int64)
    before = None
    for moment in np.linspace(0.0, 1.0, N_MOMENTS):
        places = space.flow(moment * theta, points, method="exact")
        ones = np.ones((*places.shape[:-1], 1))
        inside = np.einsum("cgk,nmk->nmcg", weights, np.concatenate([places, ones], axis=-1))
        here = inside.min(axis=-1).argmax(axis=-1)
        visited += 0 if before is None else here != before
        before = here
    return visited


def explain(figures: dict[str, float], n_points: int) -> str:
    """One paragraph made of the figures."""
    moving = figures["seconds per θ"] - figures["seconds per θ before points move"]
    operations = figures["cells visited by a path"] * figures["operations per step"] * n_points
    ideal = operations / figures["peak operations per second"]
    writing = figures["bytes written per θ"] / figures["copied bytes per second"]
    rate = operations / moving / 1e9
    return (
        f"A path visits {figures['cells visited by a path']:.2f} cells, one step each, at "
        f"{figures['operations per step']:.0f} float operations: {operations / n_points:.0f} per "
        f"point. {n_points} points take {duration(moving)}, {rate:.1f} billion operations "
        f"per second; this machine multiplies float32 matrices at "
        f"{figures['peak operations per second'] / 1e9:.0f} billion, at which they would take "
        f"{duration(ideal)}. So moving the points runs at {ideal / moving:.0%} of the peak. "
        "The rest goes into what a matrix product has not: crossings and hand-overs done path "
        "by path, rows fetched from all over a table, divisions and square roots, additions "
        "without a multiplication to fuse with, and values passed from step to step through the "
        f"first cache. Memory is no limit: writing the result at the rate of a copy "
        f"would take {duration(writing)}. Another "
        f"{duration(figures['seconds per θ before points move'])} per θ are spent before the "
        "first point moves, on turning θ into a table of affine maps."
    )
