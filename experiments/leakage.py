"""Question: do the samples made contain more of the test images than of other unseen images.

Samples are made from 500 MNIST images per class. Each test image, and each of 10,000 training
images that were not used, is compared with the nearest of the samples made and with the nearest of
the images they were made from. If test images had leaked into the samples, the logarithm of the
ratio of the two distances would be smaller for test images. Both sets go through the same steps, so
that a difference between their writers cancels in the ratio.

A control must fail: the same with one sample in seven made from a test image, as if all 70,000
images of MNIST had been used.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

import dreamwarp as dw
from dreamwarp.augment.class_distances import BLOCK, ClassDistances
from experiments import lab
from experiments.tasks import TUNING, load_task

Array = NDArray[Any]
ROWS = ("learned, all defaults", "control: 1 in 7 made from a test image")
# The share of test images in MNIST.
EVERY = 7


class Trial(NamedTuple):
    """Whose samples are tested."""

    name: str
    task: str = "mnist-500"
    n_samples: int = 100_000

    def __str__(self) -> str:
        return f"{self.task}, {self.name}, {self.n_samples}"


def run(trial: Trial) -> dict[str, float]:
    """Mean log-ratio of test images minus that of other images, its error, and a p value."""
    task = load_task(trial.task, TUNING)
    augmenter = dw.Augmenter(strength=1.0, progress=False).fit(task.X, task.y)
    test, others = task.judges["test"], task.validation
    ratios = []
    for X, _ in (test, others):
        real = nearest(ClassDistances.among(X, task.X, np.zeros(len(task.X), np.int64), 1))
        found = ClassDistances.among(X, task.X[:1], np.zeros(1, np.int64), 1)
        for first in range(0, trial.n_samples, BLOCK):
            made = augmenter.sample(BLOCK, first=first)[0]
            if trial.name.startswith("control"):
                numbers = np.arange(-first % EVERY, BLOCK, EVERY)
                some = (first + numbers) // EVERY % len(test[0])
                made[numbers] = augmenter.transform(test[0][some], test[1][some], first=first)
            found = found.improve(made, np.zeros(len(made), np.int64))
        ratios.append(np.log(nearest(found) / real) / 2.0)
    gap = float(ratios[0].mean() - ratios[1].mean())
    error = float(np.sqrt(sum(r.var(ddof=1) / len(r) for r in ratios)))
    p = float(mannwhitneyu(*ratios, alternative="less").pvalue)
    return {"test": float(ratios[0].mean()), "others": float(ratios[1].mean()),
            "gap": gap, "error": error, "p": p}  # fmt: skip


def nearest(found: ClassDistances) -> Array:
    """Squared distances (m,), at least the smallest that float32 distinguishes from 0."""
    return np.maximum(found.values[:, 0], 1.0)


def format_table(archive: lab.Archive) -> str:
    """Log-ratios and the test, as Markdown."""
    lines = ["| samples | test images | other unseen images | difference | p |"]
    lines.append("| --- |" + " --: |" * 4)
    for name in ROWS:
        found = archive.find(Trial(name))
        if found is not None:
            lines.append(
                f"| {name} | {found['test']:.4f} | {found['others']:.4f} | "
                f"{found['gap']:+.4f} ± {found['error']:.4f} | {found['p']:.2g} |"
            )
    return "\n".join(lines)


STUDY = lab.Study(
    "leakage", __doc__ or "",
    trials=[Trial(name) for name in ROWS],
    smoke=[Trial(ROWS[1], "digits-10", BLOCK)],
    run=run, format_table=format_table,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(STUDY.main())
