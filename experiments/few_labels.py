"""Question: with few labels, do learned warps help a classifier more than their rivals do.

MNIST with 10, 100 and 500 labels per class, three draws of each from the first 50,000 training
images. Every rival makes 100,000 more samples, on which with the labelled ones a nearest neighbour
is judged by the test images; with 100 labels per class, the paper's ConvNet too, which is trained
on samples made as it goes.

What a rival leaves open (how strong its deformations are) is the candidate at which a nearest
neighbour among fewer samples errs least on images for validation, the first of the last 10,000 for
training, and so is the step at which the network is stopped. "learned per class, by itself" is what
`Augmenter` does without them: it holds out some of the labelled samples.

``python -m experiments.few_labels`` runs what is missing in ``results/few_labels.json``, which it
writes after every step: stop it and start it again at will. At the end it
shows a table and puts it into the README; ``--table`` does that with what there is.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from benchmarks.readme import README, fill
from dreamwarp.augment import SampleSource
from dreamwarp.data.class_distances import ClassDistances
from dreamwarp.data.elastic import deform_elastically

Array = NDArray[Any]
Samples = tuple[Array, Array]
# Samples first to first + n - 1 of an endless supply.
Make = Callable[[int, int], Samples]

RESULTS = Path(__file__).parent / "results" / "few_labels.json"
LABELS, DRAWS = (100, 10, 500), (0, 1, 2)
N_NEW, N_VALIDATION, N_TRIED = 100_000, 2_000, 30_000
N_CLASSES, BLOCK = 10, 4_000
BY_ITSELF = "learned per class, by itself"
# In the order that they are told in.
NAMES = (
    "nothing", "random elastic", "warps from the prior", "learned, classes pooled",
    "learned per class", BY_ITSELF, "learned per template",
)  # fmt: skip
# Candidates: factors on learned warps; root mean square displacement, as a share of the image, of
# warps from the prior; width and root mean square displacement of elastic noise in pixels.
STRENGTHS = (0.3, 0.45, 0.6, 0.8, 1.0, 1.25)
DISPLACEMENTS = (0.015, 0.02, 0.03, 0.04, 0.055, 0.075)
WIDTHS, AMPLITUDES = (4.0, 5.0, 7.0), (0.7, 1.0, 1.4)
# The network's training: steps, samples in each, and steps between looks at the validation images.
NETWORK_LABELS, N_STEPS, BATCH, LOOK = 100, 2_400, 128, 120


@dataclass(frozen=True)
class Task:
    """The labelled images of one draw, and those that judge."""

    n_labels: int
    draw: int
    X: Array
    y: Array
    validation: Samples
    test: Samples


@dataclass(frozen=True)
class Rival:
    """One way to make more samples, once for every candidate that is to be tried."""

    name: str
    candidates: dict[str, Make]


def load_task(n_labels: int, draw: int) -> Task:
    """The labels of a draw; smaller draws are parts of larger ones."""
    data = dw.data.mnist()
    split = dw.data.paper_split(data.y, n_labels, seed=draw)
    some = split.validation[:N_VALIDATION]
    return Task(
        n_labels, draw, data.X[split.few], data.y[split.few], (data.X[some], data.y[some]),
        (data.X_test, data.y_test),
    )  # fmt: skip


# -- rivals


def make_rivals(task: Task) -> Iterator[Rival]:
    """All rivals; what is learned is learned from the labelled images of the task alone."""
    space = dw.WarpSpace((4, 4))
    yield Rival("nothing", {"": partial(_repeat, task)})
    elastic = {
        f"width {width:g}, amplitude {amplitude:g}": partial(_deform, task, width, amplitude)
        for width in WIDTHS
        for amplitude in AMPLITUDES
    }
    yield Rival("random elastic", elastic)
    # Of so many draws the covariance is the prior's.
    prior = dw.SmoothPrior(space, displacement=1.0)
    anything = {label: prior.sample(20_000, seed=label) for label in range(N_CLASSES)}
    random = dw.WarpModel.fit(space, anything, shrinkage=0.0, pooling=1.0)
    yield Rival("warps from the prior", _scale(task, random, DISPLACEMENTS))

    augmenter = dw.Augmenter(seed=task.draw, progress=False).fit(task.X, task.y)
    theta, edges = _sort_pairs(augmenter, task.y)
    pooled = dw.WarpModel.fit(space, theta, pooling=1.0)
    yield Rival("learned, classes pooled", _scale(task, pooled, STRENGTHS))
    by_class = dw.WarpModel.fit(space, theta)
    yield Rival("learned per class", _scale(task, by_class, STRENGTHS))
    by_itself = _scale(task, by_class, (augmenter.strength_,))
    yield Rival(BY_ITSELF, by_itself)
    template = dw.WarpModel.fit(space, theta, kind="template", edges=edges)
    yield Rival("learned per template", _scale(task, template, STRENGTHS))


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


# -- classifiers


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


def network_error(task: Task, make: Make) -> dict[str, float]:
    """Test error of the paper's ConvNet, at the step at which it errs least in validation."""
    import torch
    from torch import nn

    torch.manual_seed(task.draw)
    network = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(800, 512), nn.ReLU(), nn.Dropout(0.5), nn.Linear(512, N_CLASSES),
    )  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters())
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, N_STEPS)

    def read(X: Array) -> Any:
        return torch.from_numpy(X[:, None].astype(np.float32) / 255.0)

    def error(judges: Samples) -> float:
        network.eval()
        with torch.no_grad():
            found = torch.cat([network(some).argmax(1) for some in read(judges[0]).split(1000)])
        network.train()
        return float(np.mean(found.numpy() != judges[1]))

    best, step_of_best, test = np.inf, 0, np.nan
    for step in range(N_STEPS):
        X, y = make(step * BATCH, BATCH)
        loss = nn.functional.cross_entropy(network(read(X)), torch.from_numpy(y.astype(np.int64)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        decay.step()
        if (step + 1) % LOOK == 0:
            now = error(task.validation)
            if now < best:
                best, step_of_best, test = now, step + 1, error(task.test)
    return {"validation": best, "step": step_of_best, "test": test}


# -- running and telling


def run_task(n_labels: int, draw: int, done: dict[str, Any]) -> None:
    """Nearest neighbours of a draw, rival by rival."""
    if all(f"neighbor, {n_labels}, {draw}, {name}" in done for name in NAMES):
        return
    task = load_task(n_labels, draw)
    for rival in make_rivals(task):
        key = f"neighbor, {n_labels}, {draw}, {rival.name}"
        if key in done:
            continue
        start = time.perf_counter()
        chosen, tried = choose(task, rival)
        n = 0 if rival.name == "nothing" else N_NEW
        error = neighbor_error(task, rival.candidates[chosen], n, task.test)
        seconds = time.perf_counter() - start
        keep(done, key, {"test": error, "chosen": chosen, "tried": tried, "seconds": seconds})


def run_networks(draw: int, done: dict[str, Any]) -> None:
    """Networks of a draw, each with the candidate that was best for the nearest neighbour.

    Not "by itself": with the same strength it is the same as "learned per class".
    """
    task = load_task(NETWORK_LABELS, draw)
    for rival in make_rivals(task):
        key = f"network, {NETWORK_LABELS}, {draw}, {rival.name}"
        if key in done or rival.name == BY_ITSELF:
            continue
        start = time.perf_counter()
        chosen = done[f"neighbor, {NETWORK_LABELS}, {draw}, {rival.name}"]["chosen"]
        result = network_error(task, rival.candidates[chosen])
        keep(done, key, result | {"chosen": chosen, "seconds": time.perf_counter() - start})


def keep(done: dict[str, Any], key: str, result: dict[str, Any]) -> None:
    """Add a result to those on disk, which are never half-written."""
    done[key] = result
    print(f"{key}: {100 * result['test']:.2f} % ({result['chosen']})", flush=True)
    part = RESULTS.with_suffix(".part")
    part.write_text(json.dumps(done, indent=1) + "\n")
    os.replace(part, RESULTS)


def format_table(done: dict[str, Any]) -> str:
    """Test errors in percent, means over draws and the draws themselves, as Markdown."""
    columns = [("neighbor", n, f"1-NN, {n} per class") for n in sorted(LABELS)]
    columns.append(("network", NETWORK_LABELS, f"ConvNet, {NETWORK_LABELS} per class"))
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
        for n_labels in LABELS:
            for draw in DRAWS:
                run_task(n_labels, draw, done)
        for draw in DRAWS:
            run_networks(draw, done)
    table = format_table(done)
    fill(README, "few labels", table)
    print(table)


if __name__ == "__main__":
    main()
