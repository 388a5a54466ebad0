"""Question: how fast and how right is the 2-D flow next to libcpab's.

28 x 28 points, (4, 4) cells, the same fields, points and number of threads for both, with and
without gradient. The space is the one both have: no flow through the border, sliding along it.
"""

from __future__ import annotations

from benchmarks.data import STRENGTHS, pixel_centers
from benchmarks.flows import Problem, Rival, contest, contestants, error_ratio, time_tasks
from benchmarks.peers import libcpab_flow
from benchmarks.report import Report, Target
from benchmarks.settings import Settings
from dreamwarp import WarpSpace

CELLS, SHAPE = (4, 4), (28, 28)
RIVAL = Rival("libcpab", libcpab_flow, flow_bound=100.0, gradient_bound=50.0)


def run(settings: Settings) -> Report:
    report = Report("flow2d", "how fast and how right is the 2-D flow next to libcpab's?")
    space, points = WarpSpace(CELLS, "slip"), pixel_centers(SHAPE)
    n, n_rounds = settings.pick(128, 8), settings.pick(9, 2)
    report.details = {"cells": CELLS, "boundary": "slip", "points": SHAPE, "n_theta": n}
    for setting, displacement in STRENGTHS.items():
        problem = Problem.draw(space, n, points, setting, displacement, settings.seed)
        contest(report, problem, [RIVAL], settings, n_rounds=n_rounds)
        values = error_ratio(report.errors, RIVAL.name, problem.setting)
        claim = f"2-D largest error of {RIVAL.name} over ours, {problem.setting}"
        report.targets.append(Target(claim, 1.0, values))
    single = Problem.draw(space, 1, points, "natural", STRENGTHS["natural"], settings.seed)
    timings = time_tasks(contestants(report, single, [RIVAL], settings), 1, n_rounds)
    report.add(f"Flow, {single.setting}, one θ per call", "θ", timings)
    return report
