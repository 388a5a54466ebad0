"""Question: does learned augmentation give the errors of the paper's table, or lower ones.

Rows are the paper's data sets, and two more rivals: elastic noise and warps from the prior. Columns
are a nearest neighbour with up to 10,000,000 samples, an MLP of 3 x 2048 units and a ConvNet of two
convolutions and 512 units. Networks are trained on samples made as they go.

Settings are chosen by the 10,000 validation images, with warps learned from, and networks trained
on, the other 50,000 or 500 per class. Final networks are trained on all 60,000 training images (or
the same 500 per class) and read the test images once. Warps for networks are learned from 500
images per class. With 500 labels per class their strength is the default. With all labels it is
chosen like the settings of rivals: samples lie so close that smaller warps fill the gaps between
them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from benchmarks.readme import README, fill
from dreamwarp.augment.class_distances import ClassDistances
from experiments import lab
from experiments.classifiers import precision, train_network
from experiments.rivals import RIVALS, Deform, warp_for_networks
from experiments.split import paper_split
from experiments.tasks import Task

Array = NDArray[Any]
ARCHIVE = lab.Archive(lab.RESULTS / "paper", protocol=1)
# Results of former defaults.
FORMER = {
    title: lab.Archive(lab.RESULTS / "earlier" / name / "paper", protocol=1)
    for title, name in (
        ("aligned at full resolution", "full_resolution"),
        ("networks at strength 1.25", "fixed_strength"),
        ("linear interpolation for networks", "linear"),
        ("spectra as learned", "as_learned"),
    )
}
EXAMPLES = """
Results are JSON files in results/paper, one per trial: stop and go on at will.

examples:
  python -m experiments.paper                     run what is missing, then the table
  python -m experiments.paper --quick             every row once, with a tenth of the samples
  python -m experiments.paper --only AlignMNIST/MLP --seeds 1
  python -m experiments.paper --table
"""
SEEDS = (0, 1, 2)


class Row(NamedTuple):
    """A row of the table.

    Attributes
    ----------
    rival : str
        Who deforms; see ``experiments.rivals``.
    n_labels : int or None
        Per class; None: all training images.
    settings : dict of str to tuple of float
        To choose from, by classifier; none: what the rival does by default.
    published : dict of str to str
        Errors in the paper, in percent.
    """

    rival: str
    n_labels: int | None
    settings: dict[str, tuple[float, ...]]
    published: dict[str, str]


INFI = dict.fromkeys(("1-NN", "MLP", "ConvNet"), (0.5, 0.75, 1.0, 1.5, 2.0))
ROWS = {
    "MNIST": Row("nothing", None, {}, {"1-NN": "3.1", "MLP": "1.42", "ConvNet": "0.65"}),
    "InfiMNIST": Row(
        "InfiMNIST-style", None, INFI, {"1-NN": "2.6", "MLP": "0.89", "ConvNet": "0.49"}
    ),
    "AlignMNIST": Row(
        "learned", None,
        {
            "1-NN": (0.5, 0.7, 0.85, 1.0, 1.2), "MLP": (0.6, 0.85, 1.2),
            "ConvNet": (0.4, 0.6, 0.85, 1.2),
        },
        {"1-NN": "1.4", "MLP": "0.58", "ConvNet": "0.44"},
    ),
    "elastic": Row(
        "elastic", None,
        {"1-NN": (0.35, 0.5, 0.7), "MLP": (0.7, 1.0, 1.4), "ConvNet": (0.5, 0.7, 1.0, 1.4)}, {},
    ),
    "prior": Row(
        "prior", None,
        {
            "1-NN": (0.01, 0.02, 0.03), "MLP": (0.03, 0.045, 0.065, 0.09),
            "ConvNet": (0.03, 0.045, 0.065, 0.09),
        },
        {},
    ),
    "InfiMNIST500": Row("InfiMNIST-style", 500, INFI, {"MLP": "2.59", "ConvNet": "1.04"}),
    "AlignMNIST500": Row("learned", 500, {}, {"MLP": "1.06", "ConvNet": "0.84"}),
}  # fmt: skip
CLASSIFIERS = ("1-NN", "MLP", "ConvNet")
# Samples that networks are trained on in finals, 40 epochs of MNIST, and to choose settings by; per
# batch.
N_FINAL = {"MLP": 2_400_000, "ConvNet": 2_400_000}
N_TUNING, BATCH = 600_000, 256
# Numbers of samples at which the nearest neighbour is judged, in finals (the second of AlignMNIST
# alone), and that its settings are chosen by.
CURVE = tuple(int(n) for n in (1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7))
N_NEIGHBORS_FINAL = 1_000_000, 10_000_000
N_NEIGHBORS_TUNING, BLOCK = 500_000, 4_000
# Images per class that the warps for networks are learned from.
N_TAUGHT = 500


class Trial(NamedTuple):
    """One classifier; a seed of None means that a setting is chosen by it."""

    row: str
    classifier: str
    setting: float | None
    seed: int | None
    n_samples: int

    def __str__(self) -> str:
        chosen = "" if self.setting is None else f" {self.setting:g}"
        purpose = "tuning" if self.seed is None else f"seed {self.seed}"
        return f"{self.row}{chosen}, {self.classifier}, {self.n_samples}, {purpose}"


def list_trials(
    archive: lab.Archive, row: str, classifier: str, share: float = 1.0, n_seeds: int = len(SEEDS)
) -> list[Trial]:
    """Trials to run: settings first, then finals; ``share`` of the samples."""
    if classifier not in ROWS[row].published and ROWS[row].n_labels is not None:
        return []
    n_tuning = N_NEIGHBORS_TUNING if classifier == "1-NN" else N_TUNING
    tuning = [
        Trial(row, classifier, setting, None, int(share * n_tuning))
        for setting in ROWS[row].settings.get(classifier, ())
    ]
    errors = [archive.find(trial) for trial in tuning]
    if any(one is None for one in errors):
        return tuning
    setting = None
    if tuning:
        setting = tuning[int(np.argmin([one["validation"] for one in errors]))].setting
    if classifier == "1-NN":
        n_finals = N_NEIGHBORS_FINAL if row == "AlignMNIST" else N_NEIGHBORS_FINAL[:1]
        return [Trial(row, classifier, setting, SEEDS[0], int(share * n)) for n in n_finals]
    seeds = SEEDS[:n_seeds] if share == 1.0 else SEEDS[:1]
    n_final = int(share * N_FINAL[classifier])
    return [Trial(row, classifier, setting, seed, n_final) for seed in seeds]


@lru_cache(maxsize=1)
def load_task(n_labels: int | None, is_final: bool) -> Task:
    """Images to train on, and those that choose or judge."""
    data = dw.data.mnist()
    split = paper_split(data.y, n_labels or N_TAUGHT)
    chosen = np.arange(len(data.y)) if is_final else split.train
    chosen = split.few if n_labels else chosen
    y = data.y.astype(np.int64)
    validation = data.X[split.validation], y[split.validation]
    judges = {"test": (data.X_test, data.y_test.astype(np.int64))} if is_final else {}
    return Task("mnist", 0, data.X[chosen], y[chosen], validation, judges, 255.0)


def prepare(trial: Trial, task: Task) -> Deform | None:
    """Who deforms the images of a task; None for nothing."""
    row = ROWS[trial.row]
    if row.rival == "nothing":
        return None
    if row.rival != "learned":
        return RIVALS[row.rival].prepare(task, trial.setting, trial.classifier != "1-NN")
    if trial.classifier == "1-NN":
        augmenter = learn(len(task.X))

        def warp(templates: Array, first: int) -> Array:
            return augmenter.transform(
                task.X[templates], task.y[templates], templates=templates, first=first,
                strength=trial.setting,
            )  # fmt: skip

        return warp
    return _warp_for_networks(task, trial.setting, 0 if trial.seed is None else trial.seed)


@lru_cache(maxsize=1)
def learn(n: int) -> dw.Augmenter:
    """What is learned from the first n training images, toward the neighbours of each of them."""
    data = dw.data.mnist()
    return dw.Augmenter(strength=1.0, progress=False).fit(data.X[:n], data.y[:n])


def _warp_for_networks(task: Task, strength: float | None, seed: int) -> Deform:
    """`LearnedWarp` of 500 images per class; None: the default strength."""
    data = dw.data.mnist()
    few = paper_split(data.y, N_TAUGHT).few
    if strength is None:
        augmenter = dw.Augmenter(progress=False)
    else:
        augmenter = dw.Augmenter(model="gaussian", strength=1.0, progress=False)
    model = augmenter.fit(data.X[few], data.y[few]).model_
    return warp_for_networks(task, model, seed, strength=strength)


def run(trial: Trial) -> dict[str, Any]:
    """Errors, and a curve of them by the number of samples."""
    task = load_task(ROWS[trial.row].n_labels, trial.seed is not None)
    deform = prepare(trial, task)
    name = "validation" if trial.seed is None else "test"
    judge = task.validation if trial.seed is None else task.judges["test"]
    find = find_nearest if trial.classifier == "1-NN" else train
    curve = find(trial, task, deform, judge)
    return {name: list(curve.values())[-1], "curve": curve, "precision": precision()}


def find_nearest(
    trial: Trial, task: Task, deform: Deform | None, judge: tuple[Array, Array]
) -> dict[str, float]:
    """Errors of an exact nearest neighbour, by the number of samples made."""
    X, y = judge
    found = ClassDistances.among(X, task.X, task.y, 10)
    curve = {"0": float(found.errors(y).mean())}
    for first in range(0, trial.n_samples if deform is not None else 0, BLOCK):
        templates = np.arange(first, first + BLOCK) % len(task.X)
        found = found.improve(deform(templates, first), task.y[templates])
        n_made = first + BLOCK
        if n_made in CURVE or n_made == trial.n_samples:
            curve[str(n_made)] = float(found.errors(y).mean())
    return curve


def train(
    trial: Trial, task: Task, deform: Deform | None, judge: tuple[Array, Array]
) -> dict[str, float]:
    """Error of a network at the end, by the number of samples."""
    import torch

    seed = 1000 if trial.seed is None else trial.seed
    torch.manual_seed(seed)
    n_steps = max(1, trial.n_samples // BATCH)

    def make() -> Iterator[tuple[Array, Array]]:
        rng, order = np.random.default_rng(seed), np.empty(0, np.int64)
        for step in range(n_steps):
            if len(order) < BATCH:
                order = np.concatenate([order, rng.permutation(len(task.X))])
            templates, order = order[:BATCH], order[BATCH:]
            made = task.X[templates] if deform is None else deform(templates, step * BATCH)
            yield made, task.y[templates]

    network = build(trial.classifier)
    predict = train_network(
        network, make(), n_steps, task.scale, half_precision=precision() == "bfloat16"
    )
    return {str(n_steps * BATCH): float(np.mean(predict(judge[0]) != judge[1]))}


def build(classifier: str) -> Any:
    """An untrained network of the paper's form."""
    from torch import nn

    if classifier == "MLP":
        layers: list[Any] = [nn.Flatten()]
        for n_inputs in (784, 2048, 2048):
            layers += [nn.Linear(n_inputs, 2048), nn.ReLU(), nn.Dropout(0.2)]
        return nn.Sequential(*layers, nn.Linear(2048, 10))
    return nn.Sequential(
        nn.Conv2d(1, 32, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(32, 64, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(1024, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, 10),
    )  # fmt: skip


# -- the table


def format_table(archive: lab.Archive, share: float = 1.0) -> str:
    """Test errors in percent, mean ± standard deviation over seeds (runs), beside the paper's."""
    titles = [f"{name} | paper" for name in CLASSIFIERS]
    lines = [f"| data set | {' | '.join(titles)} |", "| --- |" + " --: |" * 2 * len(CLASSIFIERS)]
    for row in ROWS:
        lines.append(f"| {row} | {' | '.join(format_cells(archive, row, share))} |")
        for title, former in FORMER.items():
            cells = format_cells(former, row, share)
            if ROWS[row].rival == "learned" and share == 1.0 and any(cells[::2]):
                lines.append(f"| {row}, formerly: {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def format_cells(archive: lab.Archive, row: str, share: float) -> list[str]:
    """The cells of a row: errors, and those of the paper."""
    cells = []
    for name in CLASSIFIERS:
        finals = [t for t in list_trials(archive, row, name, share) if t.seed is not None]
        errors = [100 * one["test"] for t in finals if (one := archive.find(t))]
        errors = errors[-1:] if name == "1-NN" else errors  # of the most samples
        cells += [format_errors(errors), ROWS[row].published.get(name, "")]
    return cells


def format_settings(archive: lab.Archive, share: float = 1.0) -> str:
    """Validation errors in percent by setting, of what was tuned, as Markdown; may be empty."""
    lines = []
    for row, name in product(ROWS, CLASSIFIERS):
        n_tuning = int(share * (N_NEIGHBORS_TUNING if name == "1-NN" else N_TUNING))
        tried = {
            s: archive.find(Trial(row, name, s, None, n_tuning))
            for s in ROWS[row].settings.get(name, ())
        }
        known = [f"{s:g}: {100 * one['validation']:.2f}" for s, one in tried.items() if one]
        if known:
            lines.append(f"| {row}, {name} | {', '.join(known)} |")
    head = ["| tuned | setting: validation error |", "| --- | --- |"]
    return "\n".join(head + lines) if lines else ""


def format_curves(archive: lab.Archive, share: float = 1.0) -> str:
    """Test errors of 1-NN in percent by the number of new samples, as Markdown; may be empty."""
    curves = {}
    for row in ROWS:
        finals = [t for t in list_trials(archive, row, "1-NN", share) if t.seed is not None]
        found = [one["curve"] for t in finals if (one := archive.find(t))]
        if found and len(found[-1]) > 1:
            curves[row] = found[-1]
    counts = sorted({int(n) for curve in curves.values() for n in curve})
    lines = ["| 1-NN, new samples |" + "".join(f" {n:,} |" for n in counts)]
    lines.append("| --- |" + " --: |" * len(counts))
    for row, curve in curves.items():
        errors = (f"{100 * curve[str(n)]:.2f}" if str(n) in curve else "" for n in counts)
        lines.append(f"| {row} | {' | '.join(errors)} |")
    return "\n".join(lines) if curves else ""


def format_errors(errors: list[float]) -> str:
    """Mean ± standard deviation (number)."""
    if not errors:
        return ""
    spread = f" ± {np.std(errors, ddof=1):.2f}" if len(errors) > 1 else ""
    return f"{np.mean(errors):.2f}{spread} ({len(errors)})"


def main(arguments: list[str] | None = None) -> int:
    """Run what is missing unless only asked for the table, and tell."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.paper", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    studies = [f"{row}/{name}" for row in ROWS for name in CLASSIFIERS]
    parser.add_argument(
        "--only", nargs="+", choices=studies, metavar="ROW/CLASSIFIER", default=studies
    )
    parser.add_argument(
        "--seeds",
        type=int,
        choices=range(1, len(SEEDS) + 1),
        default=len(SEEDS),
        help="seeds of each network; fewer first gives every row sooner",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=2,
        help="networks at a time, or threads of the nearest neighbour",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples, one seed")
    parser.add_argument("--smoke", action="store_true", help="next to nothing, nothing kept")
    parser.add_argument("--table", action="store_true", help="run nothing, tell what is known")
    parser.add_argument("--fill", action="store_true", help="only fill docs with what is known")
    options = parser.parse_args(arguments)
    if options.smoke:
        for row, name in (
            ("InfiMNIST500", "MLP"),
            ("AlignMNIST500", "ConvNet"),
            ("elastic", "1-NN"),
        ):
            grid = ROWS[row].settings.get(name, (None,))
            trial = Trial(row, name, grid[0], None, 2 * BLOCK if name == "1-NN" else BATCH)
            print(f"{trial}: {run(trial)}")
        return 0
    share, n_failed = 0.1 if options.quick else 1.0, 0
    for study in [] if options.table or options.fill else options.only:
        row, name = study.split("/")
        results = lab.run_missing(
            ARCHIVE, lambda r=row, c=name: list_trials(ARCHIVE, r, c, share, options.seeds), run,
            n_processes=1 if name == "1-NN" else options.processes,
            n_threads=options.processes if name == "1-NN" else 1,
        )  # fmt: skip
        n_failed += lab.tell(results)
    tables = "\n\n".join(
        part(ARCHIVE, share)
        for part in (format_table, format_curves, format_settings)
        if part(ARCHIVE, share)
    )
    print(tables)
    if not options.table and not options.quick:
        fill(README, "paper", tables)
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
