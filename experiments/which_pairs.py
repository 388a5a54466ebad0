"""Question: which warps do pairs of neighbours show, and which do random pairs of a class.

Empirical Bayes learns one covariance for all classes from each kind of pairs, of 100 labels per
class of MNIST. Warps drawn from it are divided into a shift, an affine map and the rest, by least
squares over the pixels, each weighted by its mean ink. Elastic noise, as tuned for networks, is
divided likewise.

Neighbours are alike in what changes most pixels: position, slant and size. Random pairs are not.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from dreamwarp.align.evidence import EvidenceFinder
from dreamwarp.align.images import simplify
from dreamwarp.align.pairs import random_pairs
from dreamwarp.augment.learning import MAX_EB_PAIRS
from dreamwarp.augment.rivals.elastic import smooth_noise
from dreamwarp.augment.training_pairs import TO_CENTER
from dreamwarp.core.samples import choose_balanced
from dreamwarp.model import empirical_bayes
from experiments import lab
from experiments.rivals import WIDTH
from experiments.tasks import TUNING, Task, load_task

Array = NDArray[Any]
N_DRAWS, AMPLITUDE = 2000, 1.4
KINDS = ("5 nearest neighbours", "20 nearest neighbours", "random, about the centre", "elastic")


class Kind(NamedTuple):
    """Where warps come from."""

    name: str
    task: str = "mnist-100"

    def __str__(self) -> str:
        return f"{self.task}, {self.name}"


def run(kind: Kind) -> dict[str, float]:
    """Root mean square displacements along an axis, in pixels."""
    task = load_task(kind.task, TUNING)
    shape = task.X.shape[1:]
    centers = [(np.arange(size) + 0.5) / size for size in shape]
    points = np.stack(np.meshgrid(*centers, indexing="ij"), axis=-1).reshape(-1, 2)
    if kind.name == "elastic":
        moved = AMPLITUDE * smooth_noise(0, np.arange(N_DRAWS), shape, WIDTH)
    else:
        prior, scale = learn(kind.name, task)
        theta = scale * prior.sample(N_DRAWS, seed=0)
        moved = (prior.space.flow(theta, points) - points) * np.array(shape)
    return divide(moved, points, task.X.reshape(len(task.X), -1).mean(axis=0))


def learn(name: str, task: Task) -> tuple[Any, float]:
    """The distribution that empirical Bayes learns for all classes, and its factor in use."""
    edges, scale = random_pairs(task.y, MAX_EB_PAIRS), TO_CENTER
    if name.endswith("neighbours"):
        edges = dw.neighbor_pairs(task.X, task.y, n_neighbors=int(name.split()[0]))
        edges, scale = edges[choose_balanced(task.y[edges[:, 0]], MAX_EB_PAIRS)], 1.0
    space = dw.WarpSpace((4, 4), "free")
    finder = EvidenceFinder.for_images(
        dw.SmoothPrior(space), simplify(space, task.X), edges, similarity="ssd", sigma="auto",
        max_steps=50, progress=False,
    )  # fmt: skip
    pool = empirical_bayes.find_pool(
        finder, edges, task.y[edges[:, 0]], displacements=empirical_bayes.DISPLACEMENTS
    )
    return pool.learned_prior, scale


def divide(moved: Array, points: Array, weights: Array) -> dict[str, float]:
    """Root mean squares of displacements (n, m, 2): all, shift, affine without shift, the rest."""
    root = np.sqrt(weights / weights.sum())
    affine, _ = np.linalg.qr(root[:, None] * np.c_[np.ones(len(points)), points])
    weighted = root[:, None] * moved
    parts = np.einsum("mk,nmd->nkd", affine, weighted)
    squares = [np.sum(weighted**2, axis=1), parts[:, 0] ** 2, np.sum(parts[:, 1:] ** 2, axis=1)]
    whole, shift, linear = (float(np.mean(square)) for square in squares)
    rest = max(whole - shift - linear, 0.0)
    names = ("all", "shift", "affine", "rest")
    return {k: float(np.sqrt(v)) for k, v in zip(names, (whole, shift, linear, rest), strict=True)}


def format_table(archive: lab.Archive) -> str:
    """Displacements in pixels, as Markdown."""
    lines = ["| warps of | all | shift | affine | the rest |", "| --- | --: | --: | --: | --: |"]
    for name in KINDS:
        found = archive.find(Kind(name))
        if found is not None:
            cells = [f"{found[part]:.2f}" for part in ("all", "shift", "affine", "rest")]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


STUDY = lab.Study(
    "which_pairs", __doc__ or "",
    trials=[Kind(name) for name in KINDS],
    smoke=[Kind(name, "digits-10") for name in KINDS[::3]],
    run=run, format_table=format_table,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(STUDY.main())
