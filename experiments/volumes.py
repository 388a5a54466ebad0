"""Question: on volumes with known truth, how close does alignment come, and do labels follow.

The brain template that ships in nilearn (``pip install --no-deps nilearn``), averaged down to about
5 mm per voxel, and the same under known random warps. Three settings: noise; noise and a smooth
bias of intensities; and another modality, a non-monotone function of the intensities. The clean
template is aligned to the changed one with all defaults but the similarity. Errors are distances to
the known warp within the brain. Labels, grey and white matter, move with the template.

A second part is classification: balls with a bump on either side, under random warps, with a few
labelled volumes per class.
"""

from __future__ import annotations

import argparse
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from sklearn.neighbors import KNeighborsClassifier

import dreamwarp as dw
from benchmarks.readme import README, fill
from experiments import lab

Array = NDArray[np.float64]

ARCHIVE = lab.Archive(lab.RESULTS / "volumes", protocol=1)
EXAMPLES = """
Results are JSON files in results/volumes, one per trial: stop and go on at will.

examples:
  python -m experiments.volumes                  run what is missing, then the tables; fill docs
  python -m experiments.volumes --table          only the tables, of the stored results
"""
PREFIX, SUFFIX = "mni_icbm152_", "_tal_nlin_sym_09a_converted.nii.gz"
CELLS, DISPLACEMENT = (3, 3, 3), 0.03
# Number of known warps, noise relative to the brightest voxel, and size of the bias.
N_WARPS, NOISE, BIAS = 5, 0.05, 0.3
SETTINGS = ("noise", "noise and bias", "another modality")
SIMILARITIES = ("ssd", "ncc", "mi")
# Of the classification: labelled and test volumes per class, copies, and draws.
SIZE, N_LABELLED, N_TEST, N_COPIES, N_DRAWS = 16, 8, 60, 60, 3


class Trial(NamedTuple):
    """A part of the study, its setting and method, and its draw."""

    part: str
    setting: str
    method: str
    draw: int = 0

    def __str__(self) -> str:
        return f"{self.part}, {self.setting}, {self.method}, draw {self.draw}"


def list_trials() -> list[Trial]:
    """All trials."""
    aligned = [Trial("align", s, m) for s in SETTINGS for m in SIMILARITIES]
    return aligned + [Trial("classify", "1-NN", "both", draw) for draw in range(N_DRAWS)]


def run(trial: Trial) -> lab.Outcome:
    """Figures of one trial."""
    return align(trial) if trial.part == "align" else classify(trial.draw)


# -- alignment


class Template(NamedTuple):
    """A brain (x, y, z) in [0, 1], and labels: 0 elsewhere, 1 grey, 2 white matter."""

    brain: Array
    labels: NDArray[np.int64]


@cache
def load_template(step: int = 5) -> Template:
    """The template of nilearn, averaged over blocks of ``step`` voxels of 1 mm."""
    spec = find_spec("nilearn")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("The template is in nilearn: `pip install --no-deps nilearn`.")
    folder = Path(spec.submodule_search_locations[0]) / "datasets" / "data"
    t1, grey, white = (
        _shrink(dw.data.read_volume(folder / f"{PREFIX}{name}{SUFFIX}")[0].astype(np.float64), step)
        for name in ("t1", "gm", "wm")
    )
    grey, white = grey / grey.max(), white / white.max()
    labels = np.where(np.maximum(grey, white) < 0.5, 0, np.where(grey > white, 1, 2))
    return Template(t1 / t1.max(), labels)


def _shrink(values: Array, step: int) -> Array:
    x, y, z = (size // step for size in values.shape)
    kept = values[: x * step, : y * step, : z * step]
    return np.asarray(kept.reshape(x, step, y, step, z, step).mean(axis=(1, 3, 5)))


def change(brain: Array, setting: str, rng: np.random.Generator) -> Array:
    """A brain as another scan shows it."""
    seen = np.sin(np.pi * brain) * (1.0 - 0.5 * brain) if setting == "another modality" else brain
    if setting == "noise and bias":
        field = gaussian_filter(rng.normal(size=brain.shape), [n / 4 for n in brain.shape])
        seen = seen * (1.0 + BIAS * field / np.abs(field).max())
    return seen + NOISE * rng.normal(size=brain.shape)


def align(trial: Trial) -> lab.Outcome:
    """Errors in voxels and Dice of the labels, before and after, over all known warps."""
    brain, labels = load_template()
    space = dw.WarpSpace(CELLS)
    truth = dw.SmoothPrior(space, displacement=DISPLACEMENT).sample(N_WARPS, seed=trial.draw)
    sources = np.repeat(brain[None], N_WARPS, axis=0)
    maps = np.repeat(labels[None], N_WARPS, axis=0)
    wanted = dw.Warp(space, truth).mask(maps)
    rng = np.random.default_rng(trial.draw)
    moved = dw.Warp(space, truth).image(sources)
    targets = np.stack([change(each, trial.setting, rng) for each in moved])
    found = dw.align_pairs(
        space, sources, targets, similarity=trial.method, seed=trial.draw, progress=False
    )
    voxels = (np.stack(np.indices(brain.shape), axis=-1).reshape(-1, 3) + 0.5) / brain.shape
    places = space.flow(truth, voxels)
    outcome: lab.Outcome = {"shape": brain.shape, "n_warps": N_WARPS}
    for name, theta in (("before", np.zeros_like(truth)), ("after", found.theta)):
        away = (space.flow(theta, voxels) - places) * brain.shape
        inside = (wanted > 0).reshape(N_WARPS, -1)
        distances = np.linalg.norm(away, axis=-1)[inside]
        outcome[f"error {name}"] = float(distances.mean())
        outcome[f"95 % {name}"] = float(np.quantile(distances, 0.95))
        guess = dw.Warp(space, theta).mask(maps)
        for label, tissue in ((1, "grey"), (2, "white")):
            outcome[f"{tissue} {name}"] = dice(guess == label, wanted == label)
    return outcome


def dice(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> float:
    """Twice the overlap, relative to the sum of sizes."""
    return float(2 * (a & b).sum() / max(1, a.sum() + b.sum()))


# -- classification


def draw_volumes(n: int, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """Balls of two classes, n of each, under random warps, with noise."""
    space, rng = dw.WarpSpace((2, 2, 2)), np.random.default_rng(seed)
    places = (np.indices((SIZE,) * 3) + 0.5) / SIZE - 0.5
    ball = _soft(places, 0.0, 0.3)
    X = np.stack([ball + _soft(places, side, 0.12) for side in (-0.1, 0.1) for _ in range(n)])
    theta = dw.SmoothPrior(space, displacement=0.06).sample(2 * n, seed=seed)
    X = dw.Warp(space, theta).image(X)
    return X + 0.05 * rng.normal(size=X.shape), np.repeat([0, 1], n)


def _soft(places: Array, side: float, radius: float) -> Array:
    """A ball with a soft border, its centre moved along the second axis."""
    center = np.array([0.0, side, 0.0])[:, None, None, None]
    distances = np.sqrt(((places - center) ** 2).sum(axis=0))
    return np.asarray(1.0 / (1.0 + np.exp(10.0 * (distances / radius - 1.0))))


def classify(draw: int) -> lab.Outcome:
    """Errors of a nearest neighbour with and without learned warps, all defaults."""
    X, y = draw_volumes(N_LABELLED, 2 * draw)
    X_test, y_test = draw_volumes(N_TEST, 2 * draw + 1)
    augmenter = dw.Augmenter(cells=(2, 2, 2), seed=draw, progress=False).fit(X, y)
    X_new, y_new = augmenter.sample(N_COPIES * len(X))

    def error(X: Array, y: Any) -> float:
        model = KNeighborsClassifier(n_neighbors=1, algorithm="brute").fit(X.reshape(len(X), -1), y)
        return float((model.predict(X_test.reshape(len(X_test), -1)) != y_test).mean())

    learned = error(np.concatenate([X, X_new]), np.concatenate([y, y_new]))
    return {"nothing": error(X, y), "learned": learned, "strength": augmenter.strength_}


# -- results


def format_table(archive: lab.Archive) -> str:
    """Alignment by setting and similarity, then classification."""
    lines = [
        "| template to | similarity | error in voxels, before → after | 95 % | Dice, grey matter |"
        " Dice, white matter |",
        "| --- | --- | --: | --: | --: | --: |",
    ]
    for trial in list_trials():
        found = archive.find(trial) if trial.part == "align" else None
        if found is not None:
            parts = [
                f"{found[f'{key} before']:.2f} → {found[f'{key} after']:.2f}"
                for key in ("error", "95 %", "grey", "white")
            ]
            lines.append(f"| {trial.setting} | {trial.method} | " + " | ".join(parts) + " |")
    drawn = [archive.find(trial) for trial in list_trials() if trial.part == "classify"]
    kept = [found for found in drawn if found is not None]
    if kept:
        nothing, learned = (
            f"{100 * np.mean([found[key] for found in kept]):.1f} %"
            for key in ("nothing", "learned")
        )
        lines += [
            "", f"| 1-NN, {N_LABELLED} volumes of {SIZE}³ per class | runs | test error |",
            "| --- | --: | --: |", f"| nothing | {len(kept)} | {nothing} |",
            f"| learned warps, defaults | {len(kept)} | {learned} |",
        ]  # fmt: skip
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run missing trials, print the tables, update docs; return 1 if a trial failed."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.volumes", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    n_failed = 0
    if not options.table:
        n_failed = lab.tell(lab.run_missing(ARCHIVE, list_trials, run, n_processes=1))
    table = format_table(ARCHIVE)
    print(table)
    fill(README, "volumes", table)
    return min(n_failed, 1)


if __name__ == "__main__":
    sys.exit(main())
