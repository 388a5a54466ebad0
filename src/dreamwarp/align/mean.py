"""frechet_mean: joint alignment of samples to their mean under warps."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamwarp.align.alignment import align_pairs
from dreamwarp.align.prior import Prior
from dreamwarp.core.progress import ProgressOption, silenced, track
from dreamwarp.core.validation import as_finite_array, check_whole
from dreamwarp.space import Warp, WarpSpace

Array = NDArray[np.float64]

# The mean is found when a round changes it by less than this share of the samples' spread.
SMALLEST_CHANGE = 0.01


@dataclass(frozen=True)
class FrechetMean:
    """Samples brought together by warps.

    Attributes
    ----------
    mean : (*shape)
        Of the aligned samples.
    theta : (n, d)
        Warps that align each sample to it. Their mean is 0.
    aligned : (n, *shape)
    variance_before, variance_after : float
        Mean squared distance of a value from the mean of all samples, as they are and aligned.
    n_rounds : int
    """

    mean: Array
    theta: Array
    aligned: Array
    variance_before: float
    variance_after: float
    n_rounds: int


def frechet_mean(
    space: WarpSpace,
    X: ArrayLike,
    *,
    prior: Prior | None = None,
    sigma: float | str = "auto",
    max_rounds: int = 10,
    progress: ProgressOption = None,
    n_threads: int | None = None,
) -> FrechetMean:
    """The sample that all others are nearest to when warps are allowed: a centroid of a class.

    In turn, all samples are aligned to the mean, and the mean is taken of what they then look
    like. Warps are centred, θ - mean θ, so that the mean keeps the timing (or shape) of the
    average sample instead of drifting.

    Parameters
    ----------
    space : WarpSpace
    X : (n, *spatial) or (n, channels, *spatial)
        Of one class.
    prior, sigma
        As for :func:`align_pairs`; ``"auto"`` estimates σ in the first round.
    max_rounds : int

    Returns
    -------
    FrechetMean
    """
    samples = as_finite_array("X", X)
    if samples.ndim not in (space.ndim + 1, space.ndim + 2) or not len(samples):
        raise ValueError(
            f"`X` must have shape (n, *spatial) or (n, channels, *spatial) with {space.ndim} "
            f"spatial axes, at least one sample, got {samples.shape}."
        )
    n_rounds = check_whole("max_rounds", max_rounds, 1)
    mean, spread = samples.mean(axis=0), float(samples.var(axis=0).mean())
    theta, aligned, done = np.zeros((len(samples), space.dim)), samples, 0
    noise = sigma
    with silenced(progress), track(n_rounds, "finding the mean", progress) as advance:
        for _ in range(n_rounds):
            done += 1
            theta, noise = _align_to(space, samples, mean, prior, noise, n_threads)
            theta -= theta.mean(axis=0)
            aligned = Warp(space, theta).image(samples, n_threads=n_threads)
            change, mean = aligned.mean(axis=0) - mean, aligned.mean(axis=0)
            advance(1)
            if (change**2).mean() <= SMALLEST_CHANGE**2 * spread:
                break
    after = float(((aligned - mean) ** 2).mean())
    if after >= spread:  # nothing to bring together
        theta, aligned, mean, after = np.zeros_like(theta), samples, samples.mean(axis=0), spread
    return FrechetMean(mean, theta, aligned, spread, after, done)


def _align_to(
    space: WarpSpace,
    samples: Array,
    mean: Array,
    prior: Prior | None,
    sigma: float | str,
    n_threads: int | None,
) -> tuple[Array, float | str]:
    """θ (n, d) of all samples toward the mean, and the noise that was used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of single pairs that did not converge
        found = align_pairs(
            space, samples, np.broadcast_to(mean, samples.shape), prior=prior,
            sigma=sigma, progress=False, n_threads=n_threads,  # type: ignore[arg-type]
        )  # fmt: skip
    return found.theta.copy(), found.sigma if found.sigma else sigma
