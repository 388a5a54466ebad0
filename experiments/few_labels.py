"""Question: with few labels, do learned warps help a classifier more than their rivals do.

MNIST with 10, 100 and 500 labels per class, three draws of each from the first 50,000 training
images. Every rival makes 100,000 more samples, on which with the labelled ones a nearest neighbour
is judged by the test images; with 100 labels per class, the paper's ConvNet too, which is trained
on samples made as it goes.

What a rival leaves open (how strong its deformations are, how pairs are aligned) is the candidate
that errs least on images for validation, of the last 10,000 for training: for a nearest neighbour
in every draw, among fewer samples; for the network in the first draw, with fewer steps. "learned
per class, by itself" is what `Augmenter` does without them.

``python -m experiments.few_labels`` runs what is missing in ``results/few_labels.json``, which it
writes after every step: stop it and start it again at will. At the end it shows a table and puts it
into the README; ``--table`` does that with what there is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.readme import README, fill
from dreamwarp.data.class_distances import ClassDistances
from experiments import network
from experiments.network import Training
from experiments.rivals import (
    BY_ITSELF,
    N_CLASSES,
    NAMES,
    NOTHING,
    Grids,
    Make,
    Rival,
    Samples,
    Task,
    load_task,
    make_by_itself,
    make_rivals,
)

Results = dict[str, dict[str, Any]]

RESULTS = Path(__file__).parent / "results" / "few_labels.json"
LABELS, DRAWS = (100, 10, 500), (0, 1, 2)
N_NEW, N_VALIDATION, N_TRIED = 100_000, 2_000, 30_000
BLOCK = 4_000
GRIDS = Grids(
    widths=(4.0, 5.0, 7.0), amplitudes=(0.5, 0.7, 1.0, 1.4, 2.0),
    displacements=(0.01, 0.015, 0.02, 0.03, 0.04, 0.055, 0.075), methods=("map",),
    strengths=(0.3, 0.45, 0.6, 0.8, 1.0, 1.25, 1.6),
)  # fmt: skip


# -- nearest neighbours


def neighbor_error(task: Task, make: Make, n: int, judges: Samples) -> float:
    """Share of images mistaken by the nearest of the labelled and of n more samples."""
    X, y = judges
    found = ClassDistances.among(X, task.X, task.y.astype(np.int64), N_CLASSES)
    for first in range(0, n, BLOCK):
        X_new, y_new = make(first, min(BLOCK, n - first))
        found = found.improve(X_new, y_new.astype(np.int64))
    return float(found.errors(y.astype(np.int64)).mean())


def choose(task: Task, rival: Rival) -> tuple[str, dict[str, float]]:
    """The candidate that errs least on the validation images, and the errors of all."""
    if len(rival.candidates) == 1:
        return next(iter(rival.candidates)), {}
    errors = {
        name: neighbor_error(task, make, N_TRIED, task.validation)
        for name, make in rival.candidates.items()
    }
    return min(errors, key=lambda name: errors[name]), errors


def run_neighbors(n_labels: int, draw: int, done: Results) -> None:
    """Nearest neighbours of a draw, rival by rival."""
    if all(f"neighbor, {n_labels}, {draw}, {name}" in done for name in NAMES):
        return
    task = load_task(n_labels, draw, N_VALIDATION)
    if f"neighbor, {n_labels}, {draw}, {BY_ITSELF}" not in done:
        run_neighbor(task, make_by_itself(task), done)
    for rival in make_rivals(task, GRIDS):
        if f"neighbor, {n_labels}, {draw}, {rival.name}" not in done:
            run_neighbor(task, rival, done)


def run_neighbor(task: Task, rival: Rival, done: Results) -> None:
    """The nearest neighbour with one rival's samples."""
    start = time.perf_counter()
    chosen, tried = choose(task, rival)
    n = 0 if rival.name == NOTHING else N_NEW
    error = neighbor_error(task, rival.candidates[chosen], n, task.test)
    seconds = time.perf_counter() - start
    key = f"neighbor, {task.n_labels}, {task.draw}, {rival.name}"
    keep(done, key, {"test": error, "chosen": chosen, "tried": tried, "seconds": seconds})


# -- networks


def run_networks(done: Results) -> None:
    """Networks: all candidates of the first draw, and the best of each rival in every draw."""
    candidates = network.candidates(DRAWS[0])
    tried = {name: done.get(f"tried, {name}", {}) for name in candidates}
    for training, error in network.run_all(
        [
            Training(DRAWS[0], name, candidate, network.N_TRIED, "validation")
            for name, all_of_it in candidates.items()
            for candidate in all_of_it
            if len(all_of_it) > 1 and candidate not in tried[name]
        ]
    ):
        errors = tried[training.rival] = tried[training.rival] | {training.candidate: error}
        keep(done, f"tried, {training.rival}", errors)
    best = {
        name: min(errors, key=lambda candidate: errors[candidate]) if errors else ""
        for name, errors in tried.items()
    }
    for training, error in network.run_all(
        [
            Training(draw, name, best[name], network.N_STEPS, "test")
            for draw in DRAWS
            for name in candidates
            if f"network, {network.N_LABELS}, {draw}, {name}" not in done
        ]
    ):
        key = f"network, {network.N_LABELS}, {training.draw}, {training.rival}"
        keep(done, key, {"test": error, "chosen": training.candidate})


# -- running and telling


def keep(done: Results, key: str, result: dict[str, Any]) -> None:
    """Add a result to those on disk, which are never half-written."""
    done[key] = result
    print(f"{key}: {result}", flush=True)
    part = RESULTS.with_suffix(".part")
    part.write_text(json.dumps(done, indent=1) + "\n")
    os.replace(part, RESULTS)


def format_table(done: Results) -> str:
    """Test errors in percent, means over draws and the draws themselves, as Markdown."""
    columns = [("neighbor", n, f"1-NN, {n} per class") for n in sorted(LABELS)]
    columns.append(("network", network.N_LABELS, f"ConvNet, {network.N_LABELS} per class"))
    names = [name for name in NAMES if any(key.endswith(f", {name}") for key in done)]
    lines = [
        "| more samples by | " + " | ".join(title for _, _, title in columns) + " |",
        "|" + " --- |" * (len(columns) + 1),
    ]
    for name in names:
        cells = []
        for kind, n, _ in columns:
            keys = (f"{kind}, {n}, {draw}, {name}" for draw in DRAWS)
            errors = [100 * done[key]["test"] for key in keys if key in done]
            each = ", ".join(f"{error:.2f}" for error in errors)
            cells.append(f"{np.mean(errors):.2f} ({each})" if errors else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing unless only asked for the table, and tell."""
    done = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if sys.argv[1:] != ["--table"]:
        run_networks(done)
        for n_labels in LABELS:
            for draw in DRAWS:
                run_neighbors(n_labels, draw, done)
    table = format_table(done)
    fill(README, "few labels", table)
    print(table)


if __name__ == "__main__":
    main()
