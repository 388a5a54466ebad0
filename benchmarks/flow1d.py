"""Question: how fast and how right is the 1-D flow next to difw's compiled closed form.

1,000 points, 10 cells, zero boundary, the same fields and points for both, with and without
gradient. difw's kernels always run on one thread, so ours are shown on one thread
too. difw compiles itself with flags that let the compiler break its exponential and its use of
infinity; where that happens its errors show it, so the same sources are measured with flags that
do not, too.
"""

from __future__ import annotations

from functools import partial

from benchmarks.data import STRENGTHS, pixel_centers
from benchmarks.flows import Problem, Rival, contest
from benchmarks.peers import difw_flow
from benchmarks.report import Report
from benchmarks.settings import Settings
from dreamwarp import WarpSpace

CELLS, SHAPE = (10,), (1000,)
PUBLISHED = Rival("difw", difw_flow, flow_bound=2.0, gradient_bound=5.0)
REPAIRED = Rival(
    "difw, without fast-math",
    partial(difw_flow, flags=("-O3",)),
    flow_bound=2.0,
    gradient_bound=5.0,
)


def run(settings: Settings) -> Report:
    report = Report("flow1d", "how fast and how right is the 1-D flow next to difw's closed form?")
    space, points = WarpSpace(CELLS, "zero"), pixel_centers(SHAPE)
    n, n_rounds = settings.pick(256, 32), settings.pick(9, 2)
    report.details = {"cells": CELLS, "boundary": "zero", "points": SHAPE, "n_theta": n}
    rivals = settings.pick((PUBLISHED, REPAIRED), (PUBLISHED,))
    for setting, displacement in STRENGTHS.items():
        problem = Problem.draw(space, n, points, setting, displacement, settings.seed)
        contest(report, problem, rivals, settings, n_rounds=n_rounds)
    return report
