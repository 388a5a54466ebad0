"""Calibration of likelihoods from residuals: σ, or the effective fraction of independent pixels.

A likelihood treats pixels as independent, but residuals after alignment are correlated: a stroke
that is too thick differs over many pixels. Let κ be the sum over lags of their autocorrelation. A
patch of κ correlated pixels has the information of one, so residuals of mean square s² have

    σ² = s² κ.

Other similarities estimate the size of their residuals themselves. Their log-likelihood is
multiplied by the fraction w that makes its mean curvature equal to the variance of its slope
(Godambe information). Let c be the mean curvature of the unscaled log-likelihood, u its derivatives
with respect to the pixel values, and κ the correlation sum of u. Then

    w = c / (κ mean(u²)).

Residuals depend on the calibration. The estimate is the fixed point, found by aligning some pairs a
few times.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align.similarity import (
    MutualInformation,
    NormalizedCrossCorrelation,
    Similarity,
    SquaredError,
)
from dreamwarp.core.validation import check_positive, warn_user

Images = NDArray[np.float32]

# Number of pairs aligned for the estimate, and number of fixed-point iterations. Large samples need
# fewer pairs: N_VALUES values in total, but at least MIN_CALIBRATION_PAIRS pairs.
N_PAIRS, N_ROUNDS = 128, 4
N_VALUES, MIN_CALIBRATION_PAIRS = 2**18, 24
# Smallest σ, relative to the standard deviation of the images.
LOWEST_SHARE = 0.05
# Smallest effective fraction of independent pixels; the largest is 1.
SMALLEST_SHARE = 1e-3


def count_pairs(n_values: int) -> int:
    """Number of pairs to calibrate a similarity on, for samples of ``n_values`` values."""
    return min(max(N_VALUES // n_values, MIN_CALIBRATION_PAIRS), N_PAIRS)


def check_sigma(sigma: Any, similarity: Any = "ssd") -> float | Literal["auto"]:
    """Return ``sigma`` as float, or ``"auto"``; raise if it is neither.

    Only "ssd" uses it. `SquaredError` has a sigma of its own: a second one raises. For other
    similarities, warn and return ``"auto"``.
    """
    if isinstance(sigma, str) and sigma == "auto":
        return "auto"
    number = check_positive("sigma", sigma, or_else=" or 'auto'")
    if isinstance(similarity, str) and similarity == "ssd":
        return number
    if isinstance(similarity, SquaredError):
        raise ValueError(f"`sigma` must be left out, got {sigma!r} with similarity={similarity!r}.")
    warn_user(f"`sigma` is for similarity='ssd': {sigma!r} is ignored.", UserWarning)
    return "auto"


def first_guess(similarity: Similarity, sources: Images, targets: Images) -> Similarity:
    """The similarity for the first alignment: σ is the rms difference of the images."""
    if not isinstance(similarity, SquaredError):
        return similarity
    before = float(np.sqrt(np.mean((sources - targets) ** 2, dtype=np.float64)))
    return SquaredError(max(before, _lowest_sigma(sources)))


def calibrate(
    similarity: Similarity, warped: Images, sources: Images, targets: Images
) -> Similarity:
    """The similarity calibrated on the residuals of the aligned sources, ``warped``.

    All arrays are (n, channels, *spatial).
    """
    n_axes = sources.ndim - 2
    if isinstance(similarity, SquaredError):
        return SquaredError(max(residual_noise(warped - targets, n_axes), _lowest_sigma(sources)))
    assert isinstance(similarity, NormalizedCrossCorrelation | MutualInformation)
    flat = [a.reshape(*a.shape[:2], -1).astype(np.float32) for a in (warped, targets)]
    slopes, curvatures = replace(similarity, independent=1.0).derivatives(flat[0], flat[1])
    squares = np.mean(slopes * slopes, axis=(1, 2), keepdims=True)
    known = squares[:, 0, 0] > 0.0
    if not known.any():
        return similarity
    ratio = np.mean(curvatures, axis=(1, 2))[known] / squares[known, 0, 0]
    scaled = (slopes[known] / np.sqrt(squares[known])).reshape(-1, *warped.shape[1:])
    share = float(np.median(ratio)) / patch_size(scaled, n_axes)
    return replace(similarity, independent=min(max(share, SMALLEST_SHARE), 1.0))


def _lowest_sigma(sources: Images) -> float:
    return LOWEST_SHARE * float(np.std(sources, dtype=np.float64))


def residual_noise(residuals: NDArray[Any], n_axes: int) -> float:
    """σ of residuals (n, channels, *spatial)."""
    variance = float(np.mean(np.square(residuals, dtype=np.float64)))
    return float(np.sqrt(variance * patch_size(residuals, n_axes)))


def patch_size(residuals: NDArray[Any], n_axes: int) -> float:
    """κ, the sum of the autocorrelation of residuals (n, channels, *spatial); at least 1."""
    axes = tuple(range(2, 2 + n_axes))
    shape = residuals.shape[2:]
    padded = [2 * size for size in shape]
    power = np.abs(np.fft.rfftn(residuals, padded, axes=axes)) ** 2
    lags = tuple(range(n_axes))
    products = np.fft.irfftn(power.mean(axis=(0, 1)), padded, lags)  # Σ_i r_i r_{i + lag}
    ones = np.fft.rfftn(np.ones(shape), padded, lags)
    counts = np.fft.irfftn(np.abs(ones) ** 2, padded, lags)
    # Lags up to an eighth of each axis, both ways.
    offsets = [np.arange(-max(1, size // 8), max(1, size // 8) + 1) for size in shape]
    nearby = tuple(np.meshgrid(*offsets, indexing="ij"))
    covariance = products[nearby] / np.maximum(counts[nearby], 0.5)
    variance = float(products.flat[0] / counts.flat[0])
    # Negative values at long lags are noise of the estimate.
    return max(float(np.maximum(covariance, 0.0).sum()) / max(variance, 1e-300), 1.0)
