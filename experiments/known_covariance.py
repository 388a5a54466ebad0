"""Question: is a known covariance of warps recovered from images.

Each pair is an image, an MNIST digit or a texture, and the same image under a warp of known
covariance, both with noise of known size. A texture determines a warp everywhere, a digit only near
its strokes. The covariance is that of warps between real digits, scaled to a known root mean square
displacement. All estimates start from the same smooth prior. They are compared with the true
covariance by the relative Frobenius norm of the difference, in the norm of displacements, and by
their root mean square displacement.

"EM from true warps" searches for modes from the true warps, not from the identity. It differs from
"EM" where posteriors have several modes.
"""

from __future__ import annotations

import sys
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

import dreamwarp as dw
from dreamwarp.align.evidence import EvidenceFinder
from dreamwarp.align.prior import mass_matrix
from dreamwarp.model import empirical_bayes as eb
from experiments import lab

Array = NDArray[Any]
METHODS = ("MAP", "Laplace", "EM", "EM from true warps")
DISPLACEMENTS, N_PAIRS, DRAWS, NOISE = (0.03, 0.06), (60, 240, 1000), (0, 1), 0.1
CELLS, START = (4, 4), 0.08
IMAGES = ("digits", "textures")
# Standard deviation of the filter of textures, in pixels.
WIDTH = 1.5


class Trial(NamedTuple):
    """Estimates from so many pairs."""

    displacement: float
    n_pairs: int
    draw: int
    images: str = "digits"

    def __str__(self) -> str:
        of_what = "" if self.images == "digits" else f", {self.images}"
        return (
            f"displacement {self.displacement:g}, {self.n_pairs} pairs, draw {self.draw}{of_what}"
        )


@cache
def true_covariance(displacement: float) -> Array:
    """Covariance of θ of this displacement, in proportion to that of digits over all classes."""
    digits = dw.data.mnist_small()
    augmenter = dw.Augmenter(cells=CELLS, model="gaussian", strength=1.0, progress=False)
    model = augmenter.fit(digits.X, digits.y).model_
    covariance = model.covariance(None)
    square = np.trace(mass_matrix(model.space) @ covariance)
    return np.asarray(displacement**2 / square * covariance)


def make_pairs(trial: Trial) -> tuple[Array, Array, Array]:
    """Images (2 n, 28, 28), edges (n, 2) and true θ (n, d)."""
    n = trial.n_pairs
    rng = np.random.default_rng([trial.draw, n])
    if trial.images == "digits":
        digits = dw.data.mnist_small().X
        sources = digits[rng.integers(len(digits), size=n)] / np.float32(255.0)
    else:
        sources = gaussian_filter(rng.normal(size=(n, 28, 28)), WIDTH, axes=(1, 2), mode="wrap")
        sources = (0.5 + 0.25 * sources / sources.std()).astype(np.float32)
    root = np.linalg.cholesky(true_covariance(trial.displacement))
    theta = rng.normal(size=(n, len(root))) @ root.T
    targets = dw.Warp(dw.WarpSpace(CELLS, "free"), theta).image(sources)
    images = np.concatenate([sources, targets])
    images += NOISE * rng.normal(size=images.shape).astype(np.float32)
    return images, np.stack([np.arange(n), np.arange(n) + n], axis=1), theta


def run(trial: Trial) -> dict[str, float]:
    """Relative error and displacement, relative to the true one, of each estimate."""
    space = dw.WarpSpace(CELLS, "free")
    prior = dw.SmoothPrior(space, displacement=START)
    images, edges, theta = make_pairs(trial)
    estimates = dict(zip(METHODS[2:], estimate_by_em(prior, images, edges, theta), strict=True))
    for name in METHODS[:2]:
        found = dw.align_pairs(
            space, images, images, edges=edges, method=name.lower(), prior=prior, seed=trial.draw,
            progress=False,
        ).theta  # fmt: skip
        estimates[name] = found.T @ found / len(found)
    root = np.linalg.cholesky(mass_matrix(space) + 1e-12 * np.eye(space.dim))
    truth = root.T @ true_covariance(trial.displacement) @ root
    out = {}
    for name, covariance in estimates.items():
        own = root.T @ covariance @ root
        out[f"{name}, error"] = float(np.linalg.norm(own - truth) / np.linalg.norm(truth))
        out[f"{name}, displacement"] = float(np.sqrt(np.trace(own) / np.trace(truth)))
    return out


def estimate_by_em(
    prior: dw.SmoothPrior, images: Array, edges: Array, theta: Array
) -> tuple[Array, Array]:
    """Covariances of θ by empirical Bayes, with modes found from the identity and from θ."""
    finder = EvidenceFinder.for_images(
        prior, images, edges, similarity="ssd", sigma="auto", max_steps=50, progress=False
    )
    pool = eb.find_pool(
        finder, edges, np.zeros(len(edges), np.int64), displacements=eb.DISPLACEMENTS
    )
    frame, target = pool.finder.frame, np.eye(pool.finder.frame.rank)

    def estimate(start: Array | None) -> Array:
        evidence = pool.finder.find(edges, pool.covariance, sigma=pool.sigma, start=start)
        own = eb.fit_covariance(evidence, pool.covariance, target=target, n_steps=15)
        return np.asarray(frame.matrix @ own @ frame.matrix.T + frame.rest)

    return estimate(None), estimate(theta)


def format_table(archive: lab.Archive) -> str:
    """Errors and displacements by number of pairs, mean over draws, as Markdown."""
    lines = [f"| images | displacement | pairs | {' | '.join(METHODS)} |"]
    lines.append("| --- | --: | --: |" + " --: |" * len(METHODS))
    for images, displacement, n_pairs in product(IMAGES, DISPLACEMENTS, N_PAIRS):
        trials = [Trial(displacement, n_pairs, draw, images) for draw in DRAWS]
        found = [one for trial in trials if (one := archive.find(trial))]
        if found:
            errors, ratios = (
                [np.mean([one[f"{name}, {what}"] for one in found]) for name in METHODS]
                for what in ("error", "displacement")
            )
            cells = [f"{e:.2f} ({r:.2f})" for e, r in zip(errors, ratios, strict=True)]
            lines.append(f"| {images} | {displacement:g} | {n_pairs:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


STUDY = lab.Study(
    name="known_covariance",
    question=__doc__,
    trials=[Trial(*one) for one in product(DISPLACEMENTS, N_PAIRS, DRAWS, IMAGES)],
    smoke=[Trial(0.03, 60, 0), Trial(0.03, 60, 0, "textures")],
    run=run,
    format_table=format_table,
)

if __name__ == "__main__":
    sys.exit(STUDY.main())
