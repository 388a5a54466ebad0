"""Question: how much does each choice in learning warps matter.

One option at a time is moved away from its default, and a nearest neighbour judges the samples made
by its error on validation images of MNIST, with 100 labels per class. Options also change the size
of warps, so each is judged at several strengths and shown at the best one. Nothing here reads the
test images, and no default was chosen by this study.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from dreamwarp.model import alignment_weights
from experiments import classifiers, lab
from experiments.rivals import Deform
from experiments.tasks import Task, load_task

Array = NDArray[Any]
FIGURE = Path(__file__).parents[1] / "docs" / "questions.svg"
TASK = "mnist-100"
# Draws of labels; none is among the five of other tables.
DRAWS = (20, 21, 22)
STRENGTHS = (0.7, 1.0, 1.4, 2.0)
N_NEW, N_JUDGED = 30_000, 5_000
# Options of ``Augmenter``; "pooled": warps of all classes together, learned on a data set;
# "weighted": poorly aligned pairs count less.
BY_CLASS: dict[str, Any] = {"model": "gaussian"}
POOLED = BY_CLASS | {"pooled": TASK}
QUESTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "distribution": {"per sample": {}, "per class": BY_CLASS, "pooled": POOLED},
    "method, per class": {
        "empirical Bayes": BY_CLASS,
        **{name: BY_CLASS | {"method": name} for name in ("map", "laplace")},
        "metropolis": BY_CLASS | {"method": "metropolis", "max_pairs": 500},
    },
    "cells": {f"{n} x {n}": {"cells": (n, n)} for n in (2, 3, 4, 6, 8)},
    "boundary": {name: {"boundary": name} for name in ("zero", "slip", "free")},
    "neighbours": {str(k): {"n_neighbors": k} for k in (1, 3, 5, 10, 20)},
    "noise, sigma": {"auto": {}, **{f"{s:g}": {"sigma": s} for s in (0.1, 0.2, 0.4, 0.8)}},
    "prior, displacement": {
        "auto": {},
        **{f"{d:g}": {"displacement": d} for d in (0.02, 0.04, 0.08, 0.16)},
    },
    "prior, length": {f"{n:g}": {"length": n} for n in (0.15, 0.3, 0.6)},
    "poor alignments, MAP": {
        "same weight": BY_CLASS | {"method": "map"},
        "less weight": BY_CLASS | {"method": "map", "weighted": True},
    },
    "pooled warps learned on": {
        "MNIST": POOLED,
        "Fashion-MNIST": BY_CLASS | {"pooled": "fashion-100"},
        "fonts": BY_CLASS | {"pooled": "letters-10"},
    },
}


class Trial(NamedTuple):
    """A question, the name of its setting, and a draw of labels."""

    question: str
    setting: str
    draw: int
    task: str = TASK
    n_new: int = N_NEW

    def __str__(self) -> str:
        return f"{self.question}, {self.setting}, draw {self.draw}"


def run(trial: Trial) -> dict[str, Any]:
    """Validation errors of a nearest neighbour, by strength."""
    task = load_task(trial.task, trial.draw)
    options = dict(QUESTIONS[trial.question][trial.setting])
    pooled, weighted = options.pop("pooled", None), options.pop("weighted", False)
    source = task if pooled in (None, TASK) else load_task(pooled, trial.draw)
    augmenter = dw.Augmenter(**options, strength=1.0, seed=trial.draw, progress=False)
    augmenter.fit(source.X, source.y)
    if weighted:
        prepare: Any = partial(_warp_by_model, fit_weighted(augmenter, source.y))
    else:
        prepare = partial(_warp if pooled is None else _warp_pooled, augmenter)
    judge = {"validation": tuple(part[:N_JUDGED] for part in task.validation)}
    errors = {}
    for strength in STRENGTHS:
        deform = prepare(task, strength)
        found = classifiers.classify(
            "1-NN", task, deform, judge, seed=trial.draw, n_new=trial.n_new
        )
        errors[f"{strength:g}"] = found["validation"]
    return {"errors": errors}


def _warp(augmenter: dw.Augmenter, task: Task, strength: float) -> Deform:
    return lambda templates, first: augmenter.transform(
        task.X[templates], task.y[templates], templates=templates, first=first, strength=strength
    )


def _warp_pooled(augmenter: dw.Augmenter, task: Task, strength: float) -> Deform:
    """Warps of all classes together, whatever the class of a sample."""
    model = augmenter.model_

    def deform(templates: Array, first: int) -> Array:
        theta = model.sample(len(templates), None, seed=np.random.default_rng([task.draw, first]))
        return dw.Warp(model.space, strength * theta).image(task.X[templates])

    return deform


def fit_weighted(augmenter: dw.Augmenter, y: Array) -> dw.WarpModel:
    """Gaussians of the alignments of an augmenter, weighted by how well they explain the pairs."""
    found, labels = augmenter.alignments_, y[augmenter.edges_[:, 0]]
    weights = alignment_weights(found.loss_before, found.loss_after)
    by_class = [
        {label: values[found.usable & (labels == label)] for label in np.unique(y).tolist()}
        for values in (found.theta, weights)
    ]
    return dw.WarpModel.fit(augmenter.space_, by_class[0], weights=by_class[1])


def _warp_by_model(model: dw.WarpModel, task: Task, strength: float) -> Deform:
    def deform(templates: Array, first: int) -> Array:
        numbers = np.arange(first, first + len(templates))
        theta = model.draw(task.y[templates], numbers, seed=task.draw)
        return dw.Warp(model.space, strength * theta).image(task.X[templates])

    return deform


def best_errors(archive: lab.Archive, question: str, setting: str) -> list[float]:
    """Errors in percent by draw, at the strength that is best on average."""
    found = [archive.find(Trial(question, setting, draw)) for draw in DRAWS]
    table = [[100 * e for e in one["errors"].values()] for one in found if one is not None]
    return [] if not table else [row[np.mean(table, axis=0).argmin()] for row in table]


def format_table(archive: lab.Archive) -> str:
    """Errors by setting as Markdown; writes the figure once all trials have been run."""
    lines = [
        "| question | setting | error | draws | best strength |",
        "| --- | --- | --: | --- | --: |",
    ]
    for question, settings in QUESTIONS.items():
        for setting in settings:
            errors = best_errors(archive, question, setting)
            if not errors:
                continue
            found = [archive.find(Trial(question, setting, draw)) for draw in DRAWS]
            means = np.mean([list(one["errors"].values()) for one in found if one], axis=0)
            draws = ", ".join(f"{e:.2f}" for e in errors)
            lines.append(
                f"| {question} | {setting} | {np.mean(errors):.2f} | {draws} | "
                f"{STRENGTHS[means.argmin()]:g} |"
            )
    draw_figure(archive).savefig(FIGURE, metadata={"Date": None})
    return "\n".join(lines)


def draw_figure(archive: lab.Archive) -> Any:
    """One panel per question: the error of each setting, draws as dots."""
    from matplotlib.figure import Figure

    n_columns = 5
    figure = Figure(figsize=(13, 5.2), layout="constrained")
    axes = figure.subplots(2, n_columns, sharey=True).ravel()
    for axis, (question, settings) in zip(axes, QUESTIONS.items(), strict=True):
        for place, setting in enumerate(settings):
            errors = best_errors(archive, question, setting)
            axis.plot([place] * len(errors), errors, ".", color="0.6")
            if errors:
                axis.plot(place, np.mean(errors), "_", color="C0", markersize=16, markeredgewidth=3)
        axis.set_xticks(range(len(settings)), list(settings), rotation=30, ha="right")
        axis.set_xlim(-0.6, len(settings) - 0.4)
        axis.set_title(question, fontsize=11)
    for axis in axes[::n_columns]:
        axis.set_ylabel("error of 1-NN, %")
    return figure


STUDY = lab.Study(
    "questions", __doc__ or "",
    trials=[
        Trial(question, setting, draw)
        for draw in DRAWS for question, settings in QUESTIONS.items() for setting in settings
    ],
    smoke=[
        Trial("cells", "2 x 2", 0, "digits-10", 200),
        Trial("distribution", "pooled", 0, "digits-10", 200),
        Trial("poor alignments, MAP", "less weight", 0, "digits-10", 200),
    ],
    run=run, format_table=format_table,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(STUDY.main())
