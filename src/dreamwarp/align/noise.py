"""How much a source, once aligned, still differs from its target: σ from the data.

The likelihood treats pixels as independent, but what alignment leaves over comes in patches: a
stroke too thick is too thick over many pixels. A patch of κ pixels that err together says as much
about a warp as one pixel does, so the noise that independent pixels must have to say the same is

    σ² = s² κ,    s² the mean squared residual, κ = Σ over lags of the residuals' autocorrelation.

Residuals depend on σ in turn; the estimate is the fixed point, found by aligning some pairs a few
times over.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Pairs that σ is estimated from, spread evenly over all, and how often it is corrected.
N_PAIRS, N_ROUNDS = 128, 4
# First guess and lowest value, as shares of the standard deviation between images before alignment.
FIRST_SHARE, LOWEST_SHARE = 1.0, 0.05


def residual_noise(residuals: NDArray[np.float32], n_axes: int) -> float:
    """σ of residuals (n, channels, *spatial)."""
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
    patch = max(float(np.maximum(covariance, 0.0).sum()) / max(variance, 1e-300), 1.0)
    return float(np.sqrt(variance * patch))


def _nearby_lags(shape: tuple[int, ...]) -> tuple[Array, ...]:
    """Indices of lags up to an eighth of each axis, both ways."""
    lags = [np.arange(-max(1, size // 8), max(1, size // 8) + 1) for size in shape]
    return tuple(np.meshgrid(*lags, indexing="ij"))
