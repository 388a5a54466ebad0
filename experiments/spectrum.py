"""Question: which spectrum of learned warps, and which strength, suits networks.

MLPs are trained with `LearnedWarp` at several powers of the variances of the warps, in two draws
that are in no other table, and at several strengths. These are multiples of what was the default
before this study: 1.5 times the strength at which a nearest neighbour has the lowest smoothed error
on held-out samples, shrunk toward the strength expected for the number of samples.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

import dreamwarp as dw
from dreamwarp.align.prior import mass_matrix
from dreamwarp.augment.verdict import Judgement, expected_strength
from dreamwarp.core.defaults import NETWORK_SPECTRUM_POWER
from experiments import classifiers, lab
from experiments.rivals import learn, warp_for_networks
from experiments.tasks import Task, load_task

TASKS = ("mnist-100", "fashion-100", "letters-10")
POWERS, FACTORS = (1.0, 0.7, NETWORK_SPECTRUM_POWER, 0.3), (0.7, 1.0, 1.4)
DRAWS = (7, 8)


class Trial(NamedTuple):
    """One network; ``factor`` is on :func:`former_strength`."""

    task: str
    power: float
    factor: float
    draw: int
    n_steps: int = classifiers.N_STEPS

    def __str__(self) -> str:
        return f"{self.task}, power {self.power:g}, factor {self.factor:g}, draw {self.draw}"


def run(trial: Trial) -> dict[str, Any]:
    """Error of an MLP on other samples, and how many components the warps vary along."""
    task = load_task(trial.task, trial.draw)
    model = learn(task.name, task.draw, task, judged=True).model_
    strength = trial.factor * former_strength(model, task)
    options = {"strength": strength, "spectrum_power": trial.power}
    deform = warp_for_networks(task, model, trial.draw, **options)
    judge = task.judges.get("others", task.validation)
    found = classifiers.train("MLP", task, deform, {"error": judge}, trial.draw, trial.n_steps)
    n_components = count_components(model.flattened(trial.power))
    return {"error": found["error"], "strength": strength, "components": n_components}


def former_strength(model: dw.WarpModel, task: Task) -> float:
    """The default strength for networks before this study."""
    strength, error = Judgement.from_text(model.settings["judgement"]).lowest
    expected = 1.1 * expected_strength(len(task.y), len(model.classes))
    share = 1.0 / (1.0 + (error / 0.3) ** 2)
    return float(expected * (1.5 * strength / expected) ** share)


def count_components(model: dw.WarpModel) -> float:
    """Effective number of components, (Σ λ)² / Σ λ² of displacement, averaged over classes."""
    mass = mass_matrix(model.space)
    products = [mass @ model.covariance(label) for label in model.classes]
    return float(np.mean([np.trace(one) ** 2 / np.trace(one @ one) for one in products]))


def format_table(archive: lab.Archive) -> str:
    """Errors in percent by power and by strength, as Markdown."""
    columns = [(power, 1.0) for power in POWERS]
    columns += [(NETWORK_SPECTRUM_POWER, factor) for factor in FACTORS if factor != 1.0]
    titles = " | ".join(f"power {power:g}, {factor:g} x strength" for power, factor in columns)
    lines = [f"| data set | {titles} |", "| --- |" + " --: |" * len(columns)]
    for task in TASKS:
        cells = []
        for power, factor in columns:
            found = [archive.find(Trial(task, power, factor, draw)) for draw in DRAWS]
            known = [one for one in found if one is not None]
            errors = ", ".join(f"{100 * one['error']:.2f}" for one in known)
            strengths = ", ".join(f"{one['strength']:.2f}" for one in known)
            mean = np.mean([one["components"] for one in known]) if known else np.nan
            cells.append(f"{errors} (at {strengths}; {mean:.1f} components)" if known else "")
        if any(cells):
            lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


STUDY = lab.Study(
    "spectrum", __doc__ or "",
    trials=[
        Trial(task, power, factor, draw)
        for power, factor in (
            *((power, 1.0) for power in POWERS),
            *((NETWORK_SPECTRUM_POWER, factor) for factor in FACTORS if factor != 1.0),
        )
        for draw in DRAWS
        for task in TASKS
    ],
    smoke=[Trial("digits-10", 0.5, 1.0, 7, n_steps=2)],
    run=run, format_table=format_table,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(STUDY.main())
