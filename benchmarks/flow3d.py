"""Question: how fast and how right is the 3-D flow next to libcpab's.

32 x 32 x 32 points, (2, 2, 2) cells. libcpab cuts a box into 5 tetrahedra and we into 24, so the
two do not hold the same fields. Each gets the same smooth fields as nearly as it can hold them,
scaled until the furthest point moves equally far, and each is held against the exact flow of its
own field: ours against our exact method, libcpab's against an adaptive solver on its velocities.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from benchmarks.data import STRENGTHS, SmoothFields, pixel_centers
from benchmarks.flows import Problem, build_peer, distance_row, time_tasks, times_ours
from benchmarks.peers import OwnFieldTask, dreamwarp_flow, libcpab_own_fields
from benchmarks.report import ErrorRow, Report, Target
from benchmarks.settings import Settings
from dreamwarp import WarpSpace

Array = NDArray[Any]

CELLS, SHAPE = (2, 2, 2), (32, 32, 32)
FLOW_BOUND = 50.0
# Points of every field that the adaptive solver follows, and how closely.
N_FOLLOWED, SOLVER_TOLERANCE = 200, 1e-9


def run(settings: Settings) -> Report:
    report = Report("flow3d", "how fast and how right is the 3-D flow next to libcpab's?")
    space, points = WarpSpace(CELLS, "slip"), pixel_centers(SHAPE)
    n, n_rounds = settings.pick(4, 1), settings.pick(7, 2)
    report.details = {"cells": CELLS, "boundary": "slip", "points": SHAPE, "n_theta": n}
    for setting, displacement in STRENGTHS.items():
        problem = Problem.draw(space, n, points, setting, displacement, settings.seed)
        _contest(report, problem, displacement, settings, n_rounds)
    return report


def _contest(
    report: Report, problem: Problem, displacement: float, settings: Settings, n_rounds: int
) -> None:
    n, setting, n_threads = len(problem.theta), problem.setting, settings.n_threads
    ours = dreamwarp_flow(problem.space, problem.theta, problem.points, n_threads=n_threads)
    peer = build_peer(report, settings, lambda: _libcpab(problem, displacement, settings))
    tasks = [ours] if peer is None else [ours, peer.task]
    timings = time_tasks(tasks, n, n_rounds)
    report.add(f"Flow, {setting}", "θ", timings)
    if not settings.quick:
        gradient = time_tasks(tasks, n, 3, gradient=True)
        report.add(f"Flow and gradient of a scalar, {setting}", "θ", gradient)
    claim = f"3-D flow against libcpab, {setting}"
    report.targets.append(Target(claim, FLOW_BOUND, times_ours(timings, "libcpab")))
    exact = problem.space.flow(problem.theta, problem.points, method="exact")
    report.errors.append(distance_row(ours.name, setting, ours.moved(), exact))
    if peer is not None:
        report.errors.append(_own_error(peer, problem, settings))


def _libcpab(problem: Problem, displacement: float, settings: Settings) -> OwnFieldTask:
    rng = np.random.default_rng(settings.seed)
    fields = SmoothFields.draw(len(problem.theta), problem.space.ndim, slip=True, rng=rng)
    return libcpab_own_fields(
        fields, problem.space.cells, displacement, problem.points, n_threads=settings.n_threads
    )


def _own_error(peer: OwnFieldTask, problem: Problem, settings: Settings) -> ErrorRow:
    """Distance of some of the peer's points from the flow of its own fields."""
    rng = np.random.default_rng(settings.seed)
    chosen = rng.choice(len(problem.points), settings.pick(N_FOLLOWED, 20), replace=False)
    starts = problem.points[chosen].astype(np.float64)
    exact = np.stack([_solve(peer, i, starts) for i in range(len(problem.theta))])
    name = f"{peer.task.name}, its own field"
    return distance_row(name, problem.setting, peer.task.moved()[:, chosen], exact)


def _solve(peer: OwnFieldTask, i: int, starts: Array) -> Array:
    def velocity(_: float, flat: Array) -> Array:
        return peer.velocity(i, flat.reshape(starts.shape)).ravel()

    solution = solve_ivp(
        velocity, (0.0, 1.0), starts.ravel(),
        method="DOP853", rtol=SOLVER_TOLERANCE, atol=SOLVER_TOLERANCE,
    )  # fmt: skip
    return np.asarray(solution.y[:, -1].reshape(starts.shape))
