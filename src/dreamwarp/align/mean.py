"""frechet_mean: joint alignment of samples to their mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dreamwarp.align.alignment import align_quietly
from dreamwarp.align.prior import Array, Prior
from dreamwarp.core.progress import ProgressOption, silenced, track
from dreamwarp.core.samples import check_layout
from dreamwarp.core.validation import as_finite_array, check_integer
from dreamwarp.space import Warp, WarpSpace

# Rounds end when the mean changes by less than this fraction of the samples' standard deviation.
SMALLEST_CHANGE = 0.01


@dataclass(frozen=True)
class FrechetMean:
    """Samples aligned to their mean.

    Attributes
    ----------
    mean : (*shape)
        Mean of the aligned samples.
    theta : (n, d)
        Warps that align each sample to it. Their mean is 0.
    aligned : (n, *shape)
        Warped samples.
    variance_before, variance_after : float
        Mean over values of the variance between samples, before and after alignment.
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
    """Mean of samples under warps: a centroid of a class.

    Each round aligns all samples to the mean and averages the aligned samples. Warps are centred,
    θ - mean θ, so that the timing (or shape) of the mean does not drift.

    Parameters
    ----------
    space : WarpSpace
    X : (n, *spatial) or (n, channels, *spatial)
        Samples of one class.
    prior, sigma
        As for :func:`align_pairs`; ``"auto"`` estimates σ in the first round.
    max_rounds : int
    """
    samples = as_finite_array("X", X)
    check_layout("X", samples.shape, space.ndim)
    if not len(samples):
        raise ValueError("`X` must hold at least one sample, got none.")
    n_rounds = check_integer("max_rounds", max_rounds, 1)
    mean, before = samples.mean(axis=0), float(samples.var(axis=0).mean())
    noise, done = sigma, 0
    with silenced(progress), track(n_rounds, "finding the mean", progress) as advance:
        for _ in range(n_rounds):
            done += 1
            found = align_quietly(
                space, samples, np.broadcast_to(mean, samples.shape), prior=prior, sigma=noise,
                n_threads=n_threads,
            )  # fmt: skip
            theta, noise = found.theta - found.theta.mean(axis=0), found.sigma or noise
            aligned = Warp(space, theta).image(samples, n_threads=n_threads)
            change, mean = aligned.mean(axis=0) - mean, aligned.mean(axis=0)
            advance(1)
            if (change**2).mean() <= SMALLEST_CHANGE**2 * before:
                break
    after = float(((aligned - mean) ** 2).mean())
    if after >= before:  # no alignment reduces the variance
        theta, aligned, mean, after = np.zeros_like(theta), samples, samples.mean(axis=0), before
    return FrechetMean(mean, theta, aligned, before, after, done)
