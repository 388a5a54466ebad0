"""Rivals: ways to make more of few labelled images, each with candidates to choose from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from dreamwarp.augment import SampleSource
from dreamwarp.augment.rivals.elastic import deform_elastically
from experiments.alignment import align_classes

Array = NDArray[Any]
Samples = tuple[Array, Array]
# Samples first to first + n - 1 of an endless supply.
Make = Callable[[int, int], Samples]
Method = Literal["map", "laplace"]
Boundary = Literal["zero", "free"]
Kind = Literal["pool", "class", "template"]

N_CLASSES = 10
CELLS = (4, 4)
NOTHING, BY_ITSELF = "nothing", "learned, all defaults"
# What is learned, and what it is called by.
LEARNED: dict[str, Kind] = {
    "learned, classes pooled": "pool",
    "learned per class": "class",
    "learned per template": "template",
}


@dataclass(frozen=True, eq=False)
class Task:
    """The labelled images of one draw, and those that judge: never seen by what is learned.

    Attributes
    ----------
    n_labels : int
        Per class.
    draw : int
    X, y : (n, rows, columns), (n,)
    validation : (X, y)
        Training images that are not labelled here.
    test : (X, y)
    """

    n_labels: int
    draw: int
    X: Array
    y: Array
    validation: Samples
    test: Samples


@lru_cache(maxsize=4)
def load_task(n_labels: int, draw: int, n_validation: int, n_taught: int = 0) -> Task:
    """The labels of a draw; smaller draws are parts of larger ones.

    Images for validation are the last of those for training, from which labels are never drawn.
    If more are asked for, those without a label before them are taken as well; of these, the ones
    that have one when there are ``n_taught`` per class do not judge.
    """
    data = dw.data.mnist()
    few = dw.data.paper_split(data.y, n_labels, seed=draw).few
    others = np.setdiff1d(np.arange(len(data.y)), few)
    if n_validation > len(others):
        raise ValueError(f"There are {len(others)} images without a label, not {n_validation}.")
    some = others[len(others) - n_validation :]
    if n_taught:
        some = np.setdiff1d(some, dw.data.paper_split(data.y, n_taught, seed=draw).few)
    return Task(
        n_labels, draw, data.X[few], data.y[few], (data.X[some], data.y[some]),
        (data.X_test, data.y_test),
    )  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """One way to make more samples, all of it settled but the task.

    Attributes
    ----------
    name : str
        Its settings in words.
    prepare : function
        Learns what there is to learn from the labelled images of a task.
    n_taught : int
        Labels per class that it learns from, if more than those of the task.
    """

    name: str
    prepare: Callable[[Task], Make]
    n_taught: int = 0


@dataclass(frozen=True)
class Grids:
    """What is tried.

    Attributes
    ----------
    elastic : tuple of (float, float)
        Correlation of elastic noise and its root mean square displacement, in pixels.
    displacements : dict of boundary to tuple of float
        Of warps from the prior: root mean square, as a share of the image. The boundary is that of
        the space that warps are of: the paper's, "zero", holds the border of an image where it is,
        and with it much of what is near.
    methods : tuple of str
        By which pairs are aligned that warps are learned from.
    strengths : dict of boundary to tuple of float
        Factors on learned warps.
    n_taught, taught : int, dict of boundary to tuple of float
        Labels per class that the warps of one more rival are learned from, and factors on them:
        what could be gained if only more were known of how a class varies.
    with_defaults : bool
        Whether what `Augmenter` does by itself is among them. Not for networks: they would get
        other warps from `LearnedWarp`, as in ``experiments.natural_scale``.
    """

    elastic: tuple[tuple[float, float], ...]
    displacements: dict[Boundary, tuple[float, ...]]
    methods: tuple[Method, ...]
    strengths: dict[Boundary, tuple[float, ...]]
    n_taught: int = 0
    taught: dict[Boundary, tuple[float, ...]] = field(default_factory=dict)
    with_defaults: bool = True


def list_rivals(grids: Grids) -> dict[str, list[Candidate]]:
    """Candidates of all rivals by name, in the order that they are told in."""
    learned = {
        name: _list_learned(kind, grids.strengths, grids.methods) for name, kind in LEARNED.items()
    }
    if grids.n_taught:
        learned[f"learned per class, from {grids.n_taught} labels"] = _list_learned(
            "class", grids.taught, grids.methods, grids.n_taught
        )
    rivals = {
        NOTHING: [Candidate("", lambda task: partial(_repeat, task))],
        "random elastic": [
            Candidate(f"width {width:g}, amplitude {size:g}", partial(_shake, width, size))
            for width, size in grids.elastic
        ],
        "warps from the prior": [
            Candidate(
                f"{_spell(boundary)}displacement {displacement:g}",
                partial(_draw_blindly, boundary, displacement),
            )
            for boundary, displacements in grids.displacements.items()
            for displacement in displacements
        ],
    }
    if grids.with_defaults:
        learned[BY_ITSELF] = [Candidate("", _leave_alone)]
    return rivals | learned


def _list_learned(
    kind: Kind,
    grid: dict[Boundary, tuple[float, ...]],
    methods: tuple[Method, ...],
    n_taught: int = 0,
) -> list[Candidate]:
    return [
        Candidate(
            f"{_spell(boundary)}{method}, strength {strength:g}",
            partial(_learn, kind, boundary, method, strength, n_taught),
            n_taught,
        )
        for boundary, strengths in grid.items()
        for method in methods
        for strength in strengths
    ]


def _spell(boundary: Boundary) -> str:
    return "" if boundary == "zero" else f"{boundary} boundary, "


# -- candidates


def _repeat(task: Task, first: int, n: int) -> Samples:
    """Labelled images in turn, epoch by epoch in a new order."""
    epochs, places = np.divmod(np.arange(first, first + n), len(task.X))
    chosen = np.empty(n, np.int64)
    for epoch in np.unique(epochs):
        order = np.random.default_rng((task.draw, int(epoch))).permutation(len(task.X))
        chosen[epochs == epoch] = order[places[epochs == epoch]]
    return task.X[chosen], task.y[chosen]


def _shake(width: float, amplitude: float, task: Task) -> Make:
    def make(first: int, n: int) -> Samples:
        X, y = _repeat(task, first, n)
        X = deform_elastically(X, first=first, width=width, amplitude=amplitude, seed=task.draw)
        return X, y

    return make


def _draw_blindly(boundary: Boundary, displacement: float, task: Task) -> Make:
    return _warp(task, _unit_prior(boundary), displacement)


@cache
def _unit_prior(boundary: Boundary) -> dw.WarpModel:
    """The prior as a model of every class, of displacement 1: so many draws have its covariance."""
    space = dw.WarpSpace(CELLS, boundary)
    prior = dw.SmoothPrior(space, displacement=1.0)
    anything = {label: prior.sample(20_000, seed=label) for label in range(N_CLASSES)}
    return dw.WarpModel.fit(space, anything, shrinkage=0.0, pooling=1.0)


def _learn(
    kind: Kind, boundary: Boundary, method: Method, strength: float, n_taught: int, task: Task
) -> Make:
    taught = load_task(n_taught, task.draw, 0) if n_taught else task
    theta, edges = _align(taught, boundary, method)
    model = dw.WarpModel.fit(
        dw.WarpSpace(CELLS, boundary), theta, edges=edges,
        kind="template" if kind == "template" else "gaussian",
        pooling=1.0 if kind == "pool" else "auto",
    )  # fmt: skip
    return _warp(task, model, strength)


@lru_cache(maxsize=4)
def _align(
    task: Task, boundary: Boundary, method: Method
) -> tuple[dict[int, Array], dict[int, Array]]:
    return align_classes(
        dw.WarpSpace(CELLS, boundary), task.X, task.y, method=method, seed=task.draw
    )


def _leave_alone(task: Task) -> Make:
    """What `Augmenter` does by itself: it holds out some of the labelled samples to choose."""
    augmenter = dw.Augmenter(seed=task.draw, progress=False).fit(task.X, task.y)
    return _warp(task, augmenter.model_, augmenter.strength_)


def _warp(task: Task, model: dw.WarpModel, strength: float) -> Make:
    return SampleSource(model, (task.X, task.y), seed=task.draw, strength=strength).make
