"""Shared by the flow benchmarks: time contestants and compare each with the exact flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import PIXELS, draw_theta, pixel_errors
from benchmarks.measure import Contestant, Timing, measure, ratios
from benchmarks.peers import FlowTask, PeerMissing, dreamwarp_flow
from benchmarks.report import ErrorRow, Report, Target
from benchmarks.settings import Settings
from dreamwarp import WarpSpace

Array = NDArray[Any]
Built = TypeVar("Built")

DISTANCE = f"distance, pixels of {PIXELS}"
GRADIENT = "gradient, relative"
ONE_THREAD = "dreamwarp, one thread"


@dataclass(frozen=True)
class Problem:
    """Points to be moved by every θ.

    Parameters
    ----------
    space : WarpSpace
    theta : (n, d)
    points : (m, ndim)
    setting : str
        Its name in the tables.
    """

    space: WarpSpace
    theta: Array
    points: Array
    setting: str

    @classmethod
    def draw(
        cls, space: WarpSpace, n: int, points: Array, setting: str, displacement: float, seed: int
    ) -> Problem:
        theta = draw_theta(space, n, displacement, points, seed=seed)
        return cls(space, theta, points.astype(np.float32), f"{setting} strength")


@dataclass(frozen=True)
class Rival:
    """A package that holds the same fields as we do.

    Parameters
    ----------
    name : str
    build : callable
        Its :class:`FlowTask` for a space, θ and points, with ``n_threads`` and ``name``.
    flow_bound, gradient_bound : float
        How many times its time ours is to fit in.
    """

    name: str
    build: Callable[..., FlowTask]
    flow_bound: float
    gradient_bound: float


def contest(
    report: Report,
    problem: Problem,
    rivals: Sequence[Rival],
    settings: Settings,
    *,
    n_rounds: int,
) -> None:
    """Time flow and gradient of all contestants, and add figures, errors and targets."""
    tasks = contestants(report, problem, rivals, settings)
    n, setting = len(problem.theta), problem.setting
    flow = time_tasks(tasks, n, n_rounds)
    gradient = time_tasks(tasks, n, n_rounds, gradient=True)
    report.add(f"Flow, {setting}", "θ", flow)
    report.add(f"Flow and gradient of a scalar, {setting}", "θ", gradient)
    several = [task for task in tasks if task.name != ONE_THREAD]  # its results are the same
    report.errors += flow_errors(several, problem) + gradient_errors(several, problem)
    for rival in rivals:
        for timings, what, bound in (
            (flow, "flow", rival.flow_bound),
            (gradient, "flow and gradient", rival.gradient_bound),
        ):
            claim = f"{problem.space.ndim}-D {what} against {rival.name}, {setting}"
            report.targets.append(Target(claim, bound, times_ours(timings, rival.name)))


def contestants(
    report: Report, problem: Problem, rivals: Sequence[Rival], settings: Settings
) -> list[FlowTask]:
    """Ours, ours on one thread (some peers have no other), and the rivals that are there."""
    inputs, n_threads = (problem.space, problem.theta, problem.points), settings.n_threads
    tasks = [
        dreamwarp_flow(*inputs, n_threads=n_threads),
        dreamwarp_flow(*inputs, n_threads=1, name=ONE_THREAD),
    ]
    for rival in rivals:
        build = partial(rival.build, *inputs, n_threads=n_threads, name=rival.name)
        peer = build_peer(report, settings, build)
        tasks += [] if peer is None else [peer]
    return tasks


def build_peer(report: Report, settings: Settings, build: Callable[[], Built]) -> Built | None:
    """What a peer's adapter builds, or None and a note if it can't be measured."""
    if not settings.peers:
        return None
    try:
        return build()
    except PeerMissing as missing:
        if str(missing) not in report.notes:
            report.notes.append(str(missing))
        return None


def time_tasks(
    tasks: Sequence[FlowTask], n_items: int, n_rounds: int, *, gradient: bool = False
) -> list[Timing]:
    """Time the flow of every task, or flow and gradient."""
    calls = [task.flow_and_gradient if gradient else task.flow for task in tasks]
    return measure(
        [Contestant(t.name, call, n_items) for t, call in zip(tasks, calls, strict=True)],
        n_rounds=n_rounds,
    )


def times_ours(timings: Sequence[Timing], name: str) -> tuple[float, ...]:
    """How many times ours (the first) a contestant takes, per round; empty if it is not there."""
    for timing in timings:
        if timing.name == name:
            return ratios(timing, timings[0])
    return ()


def flow_errors(tasks: Sequence[FlowTask], problem: Problem) -> list[ErrorRow]:
    """Distance of every contestant's points from the exact flow."""
    exact = problem.space.flow(problem.theta, problem.points, method="exact")
    return [distance_row(task.name, problem.setting, task.moved(), exact) for task in tasks]


def distance_row(name: str, setting: str, moved: Array, exact: Array) -> ErrorRow:
    # A warp that respects the border can't leave the domain: a point outside is no answer.
    failed = ~((moved > -0.01) & (moved < 1.01)).all(axis=-1)
    errors = pixel_errors(moved, exact)[~failed]
    return ErrorRow.of(name, setting, DISTANCE, errors, int(failed.sum()))


def gradient_errors(tasks: Sequence[FlowTask], problem: Problem) -> list[ErrorRow]:
    """Distance of every contestant's gradient from the exact one, relative to its length."""
    space, theta, points = problem.space, problem.theta, problem.points
    moved = space.flow(theta, points, method="exact")
    exact, _ = space.flow_vjp(theta, points, 2 * moved, moved=moved, method="exact")
    lengths = np.linalg.norm(exact, axis=1)
    rows = []
    for task in tasks:
        errors = np.linalg.norm(task.gradient() - exact, axis=1) / lengths
        rows.append(ErrorRow.of(task.name, problem.setting, GRADIENT, errors))
    return rows


def error_ratio(rows: Sequence[ErrorRow], rival: str, setting: str) -> tuple[float, ...]:
    """Largest distance of a rival's points over ours; empty if it is not there."""
    largest = {
        row.contestant: row.largest
        for row in rows
        if row.setting == setting and row.quantity == DISTANCE
    }
    return (largest[rival] / largest["dreamwarp"],) if rival in largest else ()
