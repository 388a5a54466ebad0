"""Rivals: ways to make more of few labelled images, each with candidates to choose from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from dreamwarp.augment import SampleSource
from dreamwarp.data.elastic import deform_elastically

Array = NDArray[Any]
Samples = tuple[Array, Array]
# Samples first to first + n - 1 of an endless supply.
Make = Callable[[int, int], Samples]

N_CLASSES = 10
NOTHING, BY_ITSELF = "nothing", "learned per class, by itself"
# In the order that they are told in.
NAMES = (
    NOTHING, "random elastic", "warps from the prior", "learned, classes pooled",
    "learned per class", BY_ITSELF, "learned per template",
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """The labelled images of one draw, and those that judge."""

    n_labels: int
    draw: int
    X: Array
    y: Array
    validation: Samples
    test: Samples


def load_task(n_labels: int, draw: int, n_validation: int) -> Task:
    """The labels of a draw; smaller draws are parts of larger ones."""
    data = dw.data.mnist()
    split = dw.data.paper_split(data.y, n_labels, seed=draw)
    some = split.validation[:n_validation]
    return Task(
        n_labels, draw, data.X[split.few], data.y[split.few], (data.X[some], data.y[some]),
        (data.X_test, data.y_test),
    )  # fmt: skip


@dataclass(frozen=True)
class Rival:
    """One way to make more samples, once for every candidate that is to be tried."""

    name: str
    candidates: dict[str, Make]


@dataclass(frozen=True)
class Grids:
    """Candidates.

    Attributes
    ----------
    widths, amplitudes : tuple of float
        Of elastic noise: its correlation and its root mean square displacement, in pixels.
    displacements : tuple of float
        Of warps from the prior: root mean square, as a share of the image.
    methods : tuple of str
        By which pairs are aligned that warps are learned from.
    strengths : tuple of float
        Factors on learned warps.
    """

    widths: tuple[float, ...]
    amplitudes: tuple[float, ...]
    displacements: tuple[float, ...]
    methods: tuple[Literal["map", "laplace"], ...]
    strengths: tuple[float, ...]


def make_rivals(task: Task, grids: Grids) -> Iterator[Rival]:
    """All rivals; what is learned is learned from the labelled images of the task alone."""
    space = dw.WarpSpace((4, 4))
    yield Rival(NOTHING, {"": partial(_repeat, task)})
    elastic = {
        f"width {width:g}, amplitude {amplitude:g}": partial(_deform, task, width, amplitude)
        for width in grids.widths
        for amplitude in grids.amplitudes
    }
    yield Rival("random elastic", elastic)
    # Of so many draws the covariance is the prior's.
    prior = dw.SmoothPrior(space, displacement=1.0)
    anything = {label: prior.sample(20_000, seed=label) for label in range(N_CLASSES)}
    random = dw.WarpModel.fit(space, anything, shrinkage=0.0, pooling=1.0)
    yield Rival("warps from the prior", _scale(task, random, grids.displacements))

    kinds: dict[str, dict[str, Make]] = {"pooled": {}, "class": {}, "template": {}}
    for method in grids.methods:
        augmenter = dw.Augmenter(method=method, strength=1.0, seed=task.draw, progress=False)
        theta, edges = _sort_pairs(augmenter.fit(task.X, task.y), task.y)
        models = {
            "pooled": dw.WarpModel.fit(space, theta, pooling=1.0),
            "class": dw.WarpModel.fit(space, theta),
            "template": dw.WarpModel.fit(space, theta, kind="template", edges=edges),
        }
        for kind, model in models.items():
            kinds[kind] |= {
                f"{method}, {name}": make
                for name, make in _scale(task, model, grids.strengths).items()
            }
    yield Rival("learned, classes pooled", kinds["pooled"])
    yield Rival("learned per class", kinds["class"])
    yield Rival("learned per template", kinds["template"])


def make_by_itself(task: Task) -> Rival:
    """What `Augmenter` does if left alone: it holds out some of the labelled samples to choose."""
    augmenter = dw.Augmenter(seed=task.draw, progress=False).fit(task.X, task.y)
    model = augmenter.model_  # at the strength that it has chosen
    make = SampleSource(model, (task.X, task.y), seed=task.draw).make
    return Rival(BY_ITSELF, {f"strength {augmenter.strength_:g}": make})


def _sort_pairs(augmenter: dw.Augmenter, y: Array) -> tuple[dict[int, Array], dict[int, Array]]:
    """θ and edges of the pairs of each class that could be aligned."""
    usable = augmenter.alignments_.usable
    edges, theta = augmenter.edges_[usable], augmenter.alignments_.theta[usable]
    of_pair = y[edges[:, 0]]
    members = {label: of_pair == label for label in range(N_CLASSES)}
    return (
        {label: theta[some] for label, some in members.items()},
        {label: edges[some] for label, some in members.items()},
    )


def _scale(task: Task, model: dw.WarpModel, strengths: tuple[float, ...]) -> dict[str, Make]:
    return {
        f"strength {strength:g}": SampleSource(
            model, (task.X, task.y), seed=task.draw, strength=strength
        ).make
        for strength in strengths
    }


def _repeat(task: Task, first: int, n: int) -> Samples:
    """Labelled images in turn, epoch by epoch in a new order."""
    epochs, places = np.divmod(np.arange(first, first + n), len(task.X))
    chosen = np.empty(n, np.int64)
    for epoch in np.unique(epochs):
        order = np.random.default_rng((task.draw, int(epoch))).permutation(len(task.X))
        chosen[epochs == epoch] = order[places[epochs == epoch]]
    return task.X[chosen], task.y[chosen]


def _deform(task: Task, width: float, amplitude: float, first: int, n: int) -> Samples:
    X, y = _repeat(task, first, n)
    options = {"width": width, "amplitude": amplitude, "seed": task.draw}
    return deform_elastically(X, first=first, **options), y
