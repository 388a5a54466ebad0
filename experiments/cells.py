"""Question: whether finer cells align at least as well as coarser ones, and how fast.

Pairs of neighbours of a class are aligned with more and more cells, by equal noise and prior. For
each number of cells: the median of loss after / loss before, and the share of pairs whose warp is
exactly zero though the two differ. Then all pairs of 500 MNIST digits per class, timed.
``python -m experiments.cells`` writes ``results/cells.json``; ``--smoke`` runs a small part of it
and writes nothing. Time series: OSULeaf, of a folder given by ``--series`` or of aeon, if it is
installed (``pip install --no-deps aeon`` is enough).
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from experiments.split import paper_split
from experiments.tasks import find_series

RESULTS = Path(__file__).parent / "results" / "cells.json"
# Finer cells may leave this much more than coarser ones, in the median.
LARGEST_RISE = 0.05
N_NEIGHBORS, SEED, DISPLACEMENT = 5, 0, 0.05

Array = NDArray[Any]
Cells = tuple[int, ...]


class Task(NamedTuple):
    """Pairs, the cells to align them with, and the cells that σ is estimated with."""

    sources: Array
    targets: Array
    cells: tuple[Cells, ...]
    reference: Cells


def main() -> None:
    """Run all, write and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a small part; nothing is written")
    parser.add_argument("--series", type=Path, help="folder of OSULeaf, with .ts files")
    parser.add_argument("--only", default="", help="sets whose names hold this; others are kept")
    options = parser.parse_args()
    tasks = small_tasks() if options.smoke else all_tasks(options.series or find_series("OSULeaf"))
    results: dict[str, Any] = {
        "options": {"n_neighbors": N_NEIGHBORS, "seed": SEED, "displacement": DISPLACEMENT},
        "versions": {name: version(name) for name in ("dreamwarp", "numpy", "numba")}
        | {"python": platform.python_version()},
        "sets": {},
    }
    if options.only:
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        tasks = {name: task for name, task in tasks.items() if options.only in name}
    for name, task in tasks.items():
        print(f"{name}: {len(task.sources)} pairs", file=sys.stderr, flush=True)
        results["sets"][name] = found = compare_cells(task)
        print(format_table(name, found), flush=True)
    if not options.smoke:
        if not options.only:
            results["time"] = time_mnist()
            print(json.dumps(results["time"]))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def compare_cells(task: Task) -> dict[str, Any]:
    """Residuals and exact zeros by cells, at the σ that is estimated with the reference cells."""
    sigma = align(task, task.reference, "auto").sigma
    assert sigma is not None
    differ = (task.sources != task.targets).reshape(len(task.sources), -1).any(axis=1)
    rows: list[dict[str, Any]] = []
    for cells in task.cells:
        start = time.perf_counter(), time.process_time()
        found = align(task, cells, sigma)
        wall, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
        left = float(np.median((found.loss_after / found.loss_before)[differ]))
        zeros = ~found.theta.any(axis=1)
        lowest = min((row["residual"] for row in rows), default=left)
        rows.append(
            {
                "cells": cells,
                "residual": left,
                "rise": left / lowest - 1.0,
                "zeros": float(zeros[differ].mean()),
                "converged": float(found.converged.mean()),
                "wall_ms_per_pair": 1e3 * wall / len(task.sources),
                "cpu_ms_per_pair": 1e3 * cpu / len(task.sources),
            }
        )
    return {"n_pairs": len(task.sources), "n_identical": int((~differ).sum()), "sigma": sigma,
            "rows": rows}  # fmt: skip


def align(task: Task, cells: Cells, sigma: Any) -> dw.Alignments:
    """Warps of all pairs."""
    space = dw.WarpSpace(cells)
    prior = dw.SmoothPrior(space, displacement=DISPLACEMENT)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*fewer pixels than")
        return dw.align_pairs(
            space, task.sources, task.targets, prior=prior, sigma=sigma, progress=False
        )


def format_table(name: str, found: dict[str, Any]) -> str:
    """A line per number of cells."""
    lines = [f"{name}: {found['n_pairs']} pairs, sigma {found['sigma']:.3f}"]
    for row in found["rows"]:
        cells = " x ".join(map(str, row["cells"]))
        verdict = "" if row["rise"] <= LARGEST_RISE and not row["zeros"] else "  too much"
        lines.append(
            f"  {cells:>10}  residual {row['residual']:.3f} ({row['rise']:+.1%})  zeros "
            f"{row['zeros']:.1%}  converged {row['converged']:.1%}  "
            f"{row['cpu_ms_per_pair']:.2f} ms of CPU per pair{verdict}"
        )
    return "\n".join(lines)


# -- data


def all_tasks(series: Path) -> dict[str, Task]:
    """Every set, with the cells that the question is about."""
    mnist, digits, leaves = dw.data.mnist(), dw.data.digits(), dw.data.load(series)
    few = paper_split(mnist.y).few
    squares = tuple((k, k) for k in (2, 3, 4, 6, 8, 12, 16))
    lines = tuple((k,) for k in (2, 4, 8, 16, 32, 64))
    cubes = tuple((k, k, k) for k in (1, 2, 3, 4))
    return {
        "MNIST": pair_up(mnist.X[few], mnist.y[few], 200, squares, (4, 4)),
        "digits, 8 x 8": pair_up(digits.X, digits.y, 200, squares[:5], (4, 4)),
        "OSULeaf": pair_up(leaves.X, leaves.y, 200, lines, (16,)),
        # Warps of a space that is compared favour it; those of a finer one favour none.
        "volumes, warps of 3 x 3 x 3": Task(*make_volumes(16, 14, 3), cubes, (2, 2, 2)),
        "volumes, warps of 6 x 6 x 6": Task(*make_volumes(16, 14, 6), cubes, (2, 2, 2)),
    }


def small_tasks() -> dict[str, Task]:
    """A few pairs of the data that comes with scikit-learn."""
    digits = dw.data.digits()
    return {
        "digits, 8 x 8": pair_up(digits.X[:200], digits.y[:200], 12, ((2, 2), (4, 4)), (4, 4)),
        "volumes": Task(*make_volumes(2, 8, 3), ((1, 1, 1), (2, 2, 2)), (2, 2, 2)),
    }


def pair_up(X: Array, y: Array, n: int, cells: tuple[Cells, ...], reference: Cells) -> Task:
    """``n`` pairs of neighbours of the same class, evenly spaced among all."""
    edges = neighbors(X, y)
    some = edges[np.linspace(0, len(edges) - 1, min(n, len(edges))).round().astype(np.int64)]
    return Task(X[some[:, 0]], X[some[:, 1]], cells, reference)


def neighbors(X: Array, y: Array) -> Array:
    """Edges of all classes."""
    members = [np.flatnonzero(y == label) for label in np.unique(y)]
    return np.concatenate(
        [mine[dw.neighbor_pairs(X[mine], n_neighbors=N_NEIGHBORS)] for mine in members]
    )


def make_volumes(n: int, size: int, cells: int) -> tuple[Array, Array]:
    """Pairs of volumes of smooth random blobs: a warp drawn from the prior apart, with noise."""
    rng = np.random.default_rng(SEED)
    axes = np.stack(np.meshgrid(*[(np.arange(size) + 0.5) / size] * 3, indexing="ij"))
    places = rng.uniform(0.25, 0.75, (n, 6, 3, 1, 1, 1))
    heights, widths = rng.uniform(0.3, 1.0, (2, n, 6, 1, 1, 1))
    distances = ((axes - places) ** 2).sum(axis=2)
    sources = (heights * np.exp(-distances / (0.02 + 0.02 * widths))).sum(axis=1)
    space = dw.WarpSpace((cells, cells, cells))
    theta = dw.SmoothPrior(space, displacement=DISPLACEMENT).sample(n, SEED)
    targets = dw.Warp(space, theta).image(sources)
    return tuple(x + rng.normal(scale=0.03, size=x.shape) for x in (sources, targets))


# -- time


def time_mnist() -> dict[str, Any]:
    """All pairs of 500 MNIST digits per class, with (4, 4) cells and σ from the data."""
    data = dw.data.mnist()
    few = paper_split(data.y).few
    X, y = data.X[few], data.y[few]
    edges, space = neighbors(X, y), dw.WarpSpace((4, 4))
    dw.align_pairs(space, X[edges[:200, 0]], X[edges[:200, 1]], progress=False)  # compiles
    start = time.perf_counter(), time.process_time()
    found = dw.align_pairs(space, X[edges[:, 0]], X[edges[:, 1]], progress=False)
    wall, cpu = time.perf_counter() - start[0], time.process_time() - start[1]
    return {
        "n_edges": len(edges),
        "residual": float(np.median(found.loss_after / found.loss_before)),
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "cpu_ms_per_pair": 1e3 * cpu / len(edges),
        "converged": float(found.converged.mean()),
    }


if __name__ == "__main__":
    main()
