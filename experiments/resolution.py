"""Question: at which resolution should pairs be aligned to learn from them.

Members of a class also differ in details that no warp of the cells explains: the thickness of
strokes, noise, surplus strokes. At full resolution, warps that compress or stretch the image stand
in for them. The strain of learned warps shows it: root mean squares of divergence and curl over the
middle of the sample, for the Gaussian of all classes at its natural scale. An isotropic
random field has as much of one as of the other.

A nearest neighbour judges the warps of a fit with all other options at their defaults, by samples
of the tuning draw; nothing here reads the test samples.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dreamwarp as dw
from experiments import classifiers, lab
from experiments.rivals import cells_of
from experiments.tasks import TUNING, Task, load_task

Array = NDArray[Any]
TASKS = ("mnist-10", "GunPoint", "OSULeaf", "ArrowHead", "fashion-10", "mnist-100", "fashion-100")
# Pixels per cell and axis; None: as many as there are.
RESOLUTIONS: tuple[int | None, ...] = (3, 4, 6, None)
STRENGTHS = (0.7, 1.0, 1.4)
N_NEW, N_JUDGED, N_DRAWS = 50_000, 5_000, 1_000


class Trial(NamedTuple):
    """One fit."""

    task: str
    pixels_per_cell: int | None
    n_new: int = N_NEW

    def __str__(self) -> str:
        most = self.pixels_per_cell
        return f"{self.task}, {'all pixels' if most is None else f'{most} pixels per cell'}"


def run(trial: Trial) -> dict[str, Any]:
    """Errors of a nearest neighbour by strength, and displacement and strain of the warps."""
    task = load_task(trial.task, TUNING)
    augmenter = dw.Augmenter(
        cells=cells_of(task), pixels_per_cell=trial.pixels_per_cell, strength=1.0, progress=False
    ).fit(task.X, task.y)
    judge = {"validation": tuple(part[:N_JUDGED] for part in task.validation)}
    errors = {}
    for strength in STRENGTHS:

        def deform(templates: Array, first: int, strength: float = strength) -> Array:
            return augmenter.transform(
                task.X[templates], task.y[templates], templates=templates, first=first,
                strength=strength,
            )  # fmt: skip

        found = classifiers.classify("1-NN", task, deform, judge, seed=TUNING, n_new=trial.n_new)
        errors[f"{strength:g}"] = found["validation"]
    return {"errors": errors} | measure(augmenter.model_, task)


def measure(model: dw.WarpModel, task: Task) -> dict[str, float]:
    """Root mean square displacement in pixels, divergence and, for images, curl."""
    shape = task.X.shape[1:]
    axes = [(np.arange(n // 6, n - n // 6) + 0.5) / n for n in shape]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    theta = model.sample(N_DRAWS, None)
    moved = model.space.flow(theta, grid.reshape(-1, len(shape))).reshape(-1, *grid.shape) - grid
    slopes = [
        np.stack(np.gradient(moved[..., k], *axes, axis=tuple(range(1, moved.ndim - 1))))
        if len(shape) > 1
        else np.gradient(moved[..., k], axes[0], axis=1)[None]
        for k in range(len(shape))
    ]
    found = {
        "displacement": float(np.sqrt(np.mean((moved * np.array(shape)) ** 2))),
        "divergence": float(np.sqrt(np.mean(sum(s[k] for k, s in enumerate(slopes)) ** 2))),
    }
    if len(shape) == 2:
        found["curl"] = float(np.sqrt(np.mean((slopes[0][1] - slopes[1][0]) ** 2)))
    return found


def format_table(archive: lab.Archive) -> str:
    """Errors in percent and strain by resolution, as Markdown."""
    names = " | ".join(f"error at {s:g}" for s in STRENGTHS)
    lines = [f"| data set | pixels per cell | displacement | divergence | curl | {names} |"]
    lines.append("| --- |" + " --: |" * (4 + len(STRENGTHS)))
    for task in TASKS:
        for most in RESOLUTIONS:
            found = archive.find(Trial(task, most))
            if found is None:
                continue
            curl = f"{found['curl']:.2f}" if "curl" in found else ""
            errors = " | ".join(f"{100 * error:.2f}" for error in found["errors"].values())
            lines.append(
                f"| {task} | {'all' if most is None else most} | {found['displacement']:.2f} px | "
                f"{found['divergence']:.2f} | {curl} | {errors} |"
            )
    return "\n".join(lines)


STUDY = lab.Study(
    "resolution", __doc__ or "",
    trials=[Trial(task, most) for task in TASKS for most in RESOLUTIONS],
    smoke=[Trial("digits-10", 1, n_new=200)],
    run=run, format_table=format_table,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(STUDY.main())
