"""Calibration of likelihoods from residuals: σ, or the effective share of pixels.

A likelihood treats pixels as independent, but what alignment leaves over comes in patches: a stroke
too thick is too thick over many pixels. A patch of κ pixels that err together says as much about a
warp as one pixel does. With κ the sum over lags of the residuals' autocorrelation, squared errors
of mean s² are calibrated by the noise that independent pixels must have to say the same,

    σ² = s² κ.

Other similarities estimate the size of their errors themselves. Their log-likelihood is multiplied
by the share w at which its mean curvature c is the variance of its slope (Godambe information).
With u the derivatives of the unscaled log-likelihood by the values of pixels, and κ their patch,

    w = c / (κ mean(u²)),

which is 1 / κ where curvature and slope agree but for the patches. Residuals depend on the
calibration in turn; the estimate is the fixed point, found by aligning some pairs a few times over.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align.similarity import (
    MutualInformation,
    NormalizedCrossCorrelation,
    Similarity,
    SquaredError,
)

Array = NDArray[np.float64]
Images = NDArray[np.float32]

# Pairs that are aligned for the estimate, spread evenly over all, and how often it is corrected.
N_PAIRS, N_ROUNDS = 128, 4
# First guess and lowest value, as shares of the standard deviation between images before alignment.
FIRST_SHARE, LOWEST_SHARE = 1.0, 0.05


# Bounds on the share of pixels that count.
SMALLEST_SHARE, LARGEST_SHARE = 1e-3, 1.0


def first_guess(similarity: Similarity, sources: Images, targets: Images) -> Similarity:
    """The similarity to start with, before residuals are known."""
    if not isinstance(similarity, SquaredError):
        return similarity
    before = float(np.sqrt(np.mean((sources - targets) ** 2, dtype=np.float64)))
    return SquaredError(max(FIRST_SHARE * before, _lowest_sigma(sources)))


def calibrate(similarity: Similarity, seen: Images, sources: Images, targets: Images) -> Similarity:
    """The similarity calibrated on the residuals of aligned sources, ``seen``.

    All arrays are (n, channels, *spatial).
    """
    n_axes = sources.ndim - 2
    if isinstance(similarity, SquaredError):
        return SquaredError(max(residual_noise(seen - targets, n_axes), _lowest_sigma(sources)))
    assert isinstance(similarity, NormalizedCrossCorrelation | MutualInformation)
    flat = [a.reshape(*a.shape[:2], -1).astype(np.float32) for a in (seen, targets)]
    slopes, curvatures = replace(similarity, independent=1.0).derivatives(flat[0], flat[1])
    squares = np.mean(slopes * slopes, axis=(1, 2), keepdims=True)
    told = squares[:, 0, 0] > 0.0
    if not told.any():
        return similarity
    ratio = np.mean(curvatures, axis=(1, 2))[told] / squares[told, 0, 0]
    scaled = (slopes[told] / np.sqrt(squares[told])).reshape(-1, *seen.shape[1:])
    share = float(np.median(ratio)) / patch_size(scaled, n_axes)
    return replace(similarity, independent=min(max(share, SMALLEST_SHARE), LARGEST_SHARE))


def _lowest_sigma(sources: Images) -> float:
    return LOWEST_SHARE * float(np.std(sources, dtype=np.float64))


def residual_noise(residuals: NDArray[Any], n_axes: int) -> float:
    """σ of residuals (n, channels, *spatial)."""
    variance = float(np.mean(np.square(residuals, dtype=np.float64)))
    return float(np.sqrt(variance * patch_size(residuals, n_axes)))


def patch_size(residuals: NDArray[Any], n_axes: int) -> float:
    """κ, the number of pixels that err together, of residuals (n, channels, *spatial)."""
    axes = tuple(range(2, 2 + n_axes))
    shape = residuals.shape[2:]
    padded = [2 * size for size in shape]
    power = np.abs(np.fft.rfftn(residuals, padded, axes=axes)) ** 2
    lags = tuple(range(n_axes))
    products = np.fft.irfftn(power.mean(axis=(0, 1)), padded, lags)  # Σ_i r_i r_{i + lag}
    ones = np.fft.rfftn(np.ones(shape), padded, lags)
    counts = np.fft.irfftn(np.abs(ones) ** 2, padded, lags)
    nearby = _nearby_lags(shape)
    covariance = products[nearby] / np.maximum(counts[nearby], 0.5)
    variance = float(products.flat[0] / counts.flat[0])
    # Past the first lag of no correlation there is only noise in the estimate.
    return max(float(np.maximum(covariance, 0.0).sum()) / max(variance, 1e-300), 1.0)


def _nearby_lags(shape: tuple[int, ...]) -> tuple[Array, ...]:
    """Indices of lags up to an eighth of each axis, both ways."""
    lags = [np.arange(-max(1, size // 8), max(1, size // 8) + 1) for size in shape]
    return tuple(np.meshgrid(*lags, indexing="ij"))
