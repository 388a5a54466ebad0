"""Small models and studies of signals, images and volumes that take no alignment to make."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from dreamwarp import Alignments, SmoothPrior, WarpModel, WarpSpace
from dreamwarp.align.similarity import SquaredError
from dreamwarp.augment.learning import Learner, Settings
from dreamwarp.augment.verdict import Judgement, Verdict
from dreamwarp.report.study import Study
from dreamwarp.report.subject import Subject

SPACES = {1: WarpSpace((4,)), 2: WarpSpace((3, 2)), 3: WarpSpace((2, 2, 2))}
SHAPES = {1: (2, 40), 2: (12, 16), 3: (6, 8, 10)}
N_PER_CLASS = 8


@cache
def model(ndim: int) -> WarpModel:
    space = SPACES[ndim]
    prior = SmoothPrior(space)
    warps = {"left": prior.sample(40, 1), "right": 2.0 * prior.sample(40, 2)}
    fitted = WarpModel.fit(space, warps, shrinkage=0.1, pooling=0.2)
    return fitted.with_settings(judgement=judgement().to_text())


@cache
def data(ndim: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(ndim)
    X = rng.integers(0, 256, size=(2 * N_PER_CLASS, *SHAPES[ndim])).astype(np.uint8)
    return X, np.repeat(["left", "right"], N_PER_CLASS)


def judgement() -> Judgement:
    verdict = Verdict(True, True, 0.06, (0.05, 0.07), 0.14, 0.08, 100, 24, None, "it helps.")
    return Judgement(0.8, {0.0: 0.14, 0.8: 0.08}, verdict, {0.0: 0.01, 0.8: 0.01})


def study(ndim: int, **changes: Any) -> Study:
    """Pairs of members of each class, with made-up results."""
    subject = Subject.of(model(ndim), data(ndim))
    firsts = np.array([k for k in range(2 * N_PER_CLASS) if k % N_PER_CLASS < N_PER_CLASS - 1])
    edges = np.stack([firsts, firsts + 1], axis=1)
    n = len(edges)
    before = np.full(n, 40.0)
    fields: dict[str, Any] = {
        "theta": SmoothPrior(SPACES[ndim]).sample(n, 3),
        "loss_before": before, "loss_after": before * np.linspace(0.1, 0.9, n),
        "converged": np.ones(n, bool), "usable": np.ones(n, bool),
        "diagnostics": {"n_steps": np.full(n, 3)}, "similarity": SquaredError(0.1),
    }  # fmt: skip
    result = Alignments(**{**fields, **changes})
    learner = Learner(
        SPACES[ndim], subject.X, subject.codes, subject.labels, Settings.of(model(ndim)), 0, False
    )
    return Study(subject, learner, edges, result, learner.smooth_prior, subject, np.arange(16))
