"""A nearest neighbour on few labels and the samples that every rival makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dreamwarp.augment.class_distances import ClassDistances
from experiments.rivals import N_CLASSES, NOTHING
from experiments.trials import Errors, Plan, Trial

BLOCK = 4_000


def run_all(plan: Plan, trials: Sequence[Trial]) -> Iterator[tuple[Trial, Errors]]:
    """Each trial and its errors, one after the other: each uses all cores."""
    for trial in trials:
        yield trial, run(plan, trial)


def run(plan: Plan, trial: Trial) -> Errors:
    """Shares of images mistaken by the nearest of the labelled and of the new samples."""
    task, make, n_new, judges = plan.prepare(trial)
    n_new = 0 if trial.rival == NOTHING else n_new
    found = {
        judge: ClassDistances.among(X, task.X, task.y.astype(np.int64), N_CLASSES)
        for judge, (X, _) in judges.items()
    }
    for first in range(0, n_new, BLOCK):
        X_new, y_new = make(first, min(BLOCK, n_new - first))
        found = {
            judge: nearest.improve(X_new, y_new.astype(np.int64))
            for judge, nearest in found.items()
        }
    return {
        judge: float(found[judge].errors(y.astype(np.int64)).mean())
        for judge, (_, y) in judges.items()
    }
