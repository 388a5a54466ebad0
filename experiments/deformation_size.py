"""Question: how well does the size of deformations classify.

Amit et al. (2007) report a test error of 1.5 % on MNIST with 500 labels per class, by nearest
neighbours in the size of the warp plus the residual that it leaves: here `warp_distance`, with its
defaults and a free boundary. Each image is aligned to its nearest labelled samples by pixels. The
number of votes is chosen on validation images, in another draw of labels than the final.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from dreamwarp.align.distance import estimate_sigma
from experiments import lab
from experiments.tasks import TUNING, load_task

Array = NDArray[Any]
# Labelled samples that each image is compared with, and images in each block.
N_CANDIDATES, BLOCK = 20, 500
VOTES = (1, 3, 5)


class Trial(NamedTuple):
    """Images classified: validation images in the tuning draw, else the test images."""

    draw: int
    n_images: int
    task: str = "mnist-500"

    def __str__(self) -> str:
        return f"{self.task}, {self.n_images} images, draw {self.draw}"


def run(trial: Trial) -> dict[str, Any]:
    """Error by the number of votes."""
    task = load_task(trial.task, trial.draw)
    X, y = task.validation if trial.draw == TUNING else task.judges["test"]
    X, y = X[: trial.n_images] / task.scale, y[: trial.n_images]
    labelled = task.X / task.scale
    space = dw.WarpSpace((4, 4), boundary="free")
    some = np.linspace(0, len(labelled) - 1, min(1_000, len(labelled))).astype(int)
    sigma = estimate_sigma(space, labelled[some])
    wrong = dict.fromkeys(VOTES, 0)
    for first in range(0, len(X), BLOCK):
        distances = dw.warp_distance(
            X[first : first + BLOCK], labelled, space=space, sigma=sigma,
            n_candidates=N_CANDIDATES, progress=False,
        )  # fmt: skip
        order = np.argsort(distances, axis=1, kind="stable")[:, : max(VOTES)]
        for votes in VOTES:
            found = vote(task.y[order[:, :votes]], task.n_classes)
            wrong[votes] += int((found != y[first : first + BLOCK]).sum())
    return {"errors": {str(votes): n / len(X) for votes, n in wrong.items()}, "sigma": sigma}


def vote(labels: NDArray[np.int64], n_classes: int) -> NDArray[np.int64]:
    """The most frequent label of each row; of labels that tie, the nearest."""
    counts = np.stack([(labels == label).sum(axis=1) for label in range(n_classes)], axis=1)
    # The nearest of a row counts a little more, the next a little less.
    ranks = np.arange(labels.shape[1], 0, -1) / (labels.shape[1] + 1) ** 2
    for column, rank in enumerate(ranks):
        counts = counts + rank * (labels[:, column, None] == np.arange(n_classes))
    return counts.argmax(axis=1)


TRIALS = (Trial(TUNING, 2_000), Trial(0, 10_000))


def format_table(archive: lab.Archive) -> str:
    """Errors in percent as Markdown."""
    titles = " | ".join(f"{votes} nearest" for votes in VOTES)
    lines = [f"| images | {titles} |", "| --- |" + " --: |" * len(VOTES)]
    for trial in TRIALS:
        found = archive.find(trial)
        if found is not None:
            errors = " | ".join(f"{100 * e:.2f}" for e in found["errors"].values())
            kind = "validation" if trial.draw == TUNING else "test"
            lines.append(f"| {trial.n_images:,} {kind} images | {errors} |")
    return "\n".join(lines)


STUDY = lab.Study(
    "deformation_size", __doc__ or "", trials=TRIALS,
    smoke=[Trial(TUNING, 20, "digits-10")], run=run, format_table=format_table,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(STUDY.main())
