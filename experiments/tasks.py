"""Data sets with few labels: what is learned from, what rivals are tuned on, what judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw

Array = NDArray[Any]
Samples = tuple[Array, Array]
# The draw of labels in which rivals are tuned. It is no part of the finals.
TUNING = 99
N_VALIDATION = 10_000


@dataclass(frozen=True, eq=False)
class Task:
    """The labelled samples of one draw, and those that judge.

    Attributes
    ----------
    name : str
    draw : int
    X, y : (n, *spatial), (n,)
        y are codes, 0 to n_classes - 1.
    validation : (X, y)
        Tunes rivals. What is learned by default never sees it.
    judges : dict of str to (X, y)
        "test", and "others": training samples without a label that tune nothing.
    scale : float
        Values are divided by this for networks.
    """

    name: str
    draw: int
    X: Array
    y: Array
    validation: Samples
    judges: dict[str, Samples]
    scale: float

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.y.max()) + 1

    @property
    def n_axes(self) -> int:
        """Spatial axes: 1 for series, 2 for images."""
        return self.X.ndim - 1


class _Set(NamedTuple):
    """A data set, and the labels per class that it is tried with."""

    load: Callable[[], dw.data.DataSet]
    n_labels: int


_SOURCES = {"mnist": dw.data.mnist, "fashion": dw.data.fashion_mnist}
SETS = {f"{name}-{n}": _Set(load, n) for name, load in _SOURCES.items() for n in (10, 100, 500)}
SETS["digits-10"] = _Set(dw.data.digits, 10)


@lru_cache(maxsize=2)
def load_task(name: str, draw: int) -> Task:
    """The task of a data set and a draw of labels."""
    data, n_labels = _load_set(name), SETS[name].n_labels
    divide = _divide_small if data.test is None else _divide_large
    return divide(name, data, n_labels, draw)


@lru_cache(maxsize=2)
def _load_set(name: str) -> dw.data.DataSet:
    return SETS[name].load()


def _divide_large(name: str, data: dw.data.DataSet, n_labels: int, draw: int) -> Task:
    """Labels from the first training images; the last 10,000 tune, all others and the test judge.

    A smaller draw of labels is part of a larger one.
    """
    y = data.y.astype(np.int64)
    few = dw.data.paper_split(y, n_labels, seed=draw, n_validation=N_VALIDATION).few
    rest = np.setdiff1d(np.arange(len(y)), few)
    tune, others = rest[-N_VALIDATION:], rest[:-N_VALIDATION]
    judges = {
        "others": (data.X[others], y[others]),
        "test": (data.X_test, data.y_test.astype(np.int64)),
    }
    validation = data.X[tune], y[tune]
    return Task(name, draw, data.X[few], y[few], validation, judges, 255.0)


def _divide_small(name: str, data: dw.data.DataSet, n_labels: int, draw: int) -> Task:
    """A set without test samples: of those without a label, one third tunes and the others judge.

    Which third is the same in every draw, and labels are drawn from the other samples, so that no
    sample tunes in one draw and judges in another.
    """
    _, y = np.unique(data.y, return_inverse=True)
    order = np.random.default_rng(len(y)).permutation(len(y))
    tune, rest = order[: len(y) // 3], np.sort(order[len(y) // 3 :])
    few = rest[dw.data.paper_split(y[rest], n_labels, seed=draw, n_validation=0).few]
    others = np.setdiff1d(rest, few)
    validation, test = ((data.X[some], y[some]) for some in (tune, others))
    return Task(name, draw, data.X[few], y[few], validation, {"test": test}, 1.0)
