"""Dynamic time warping and DTW barycenter averaging, the usual ways to compare series."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Windows to choose from, as shares of the length; 1 is none.
WINDOWS = (0.0, 0.02, 0.05, 0.1, 0.2, 1.0)


@njit(cache=True)  # type: ignore[untyped-decorator]
def accumulate(a: Array, b: Array, window: int) -> Array:
    """Least sums of squares (n + 1, m + 1) over paths within a window, of series (channels, n)."""
    n, m = a.shape[1], b.shape[1]
    costs = np.full((n + 1, m + 1), np.inf)
    costs[0, 0] = 0.0
    reach = max(window, abs(n - m))
    for i in range(n):
        for j in range(max(0, i - reach), min(m, i + reach + 1)):
            cost = 0.0
            for c in range(a.shape[0]):
                cost += (a[c, i] - b[c, j]) ** 2
            costs[i + 1, j + 1] = cost + min(costs[i, j], costs[i, j + 1], costs[i + 1, j])
    return costs


@njit(cache=True, parallel=True)  # type: ignore[untyped-decorator]
def dtw_matrix(A: Array, B: Array, window: int) -> Array:
    """Squared DTW distances (n, m) between series (n, channels, time)."""
    out = np.empty((len(A), len(B)))
    for i in prange(len(A)):
        for j in range(len(B)):
            out[i, j] = accumulate(A[i], B[j], window)[-1, -1]
    return out


def choose_window(X: Array, y: NDArray[Any]) -> int:
    """The window under which each training series' neighbour is most often of its class."""
    best, least = 0, np.inf
    for share in WINDOWS:
        window = round(share * X.shape[-1])
        distances = dtw_matrix(X, X, window)
        np.fill_diagonal(distances, np.inf)
        error = float((y[distances.argmin(axis=1)] != y).mean())
        if error < least:
            best, least = window, error
    return best


def barycenter(X: Array, n_rounds: int = 10) -> Array:
    """DTW barycenter average (channels, time) of series, from the most central of them."""
    center = X[dtw_matrix(X, X, X.shape[-1]).sum(axis=1).argmin()].copy()
    for _ in range(n_rounds):
        sums, counts = np.zeros_like(center), np.zeros(center.shape[1])
        for series in X:
            _add_along_path(accumulate(center, series, X.shape[-1]), series, sums, counts)
        center = sums / counts
    return center


@njit(cache=True)  # type: ignore[untyped-decorator]
def _add_along_path(costs: Array, series: Array, sums: Array, counts: Array) -> None:
    """Add the values that a series has where the best path joins it to the center."""
    i, j = costs.shape[0] - 1, costs.shape[1] - 1
    while i > 0 and j > 0:
        for c in range(series.shape[0]):
            sums[c, i - 1] += series[c, j - 1]
        counts[i - 1] += 1.0
        diagonal, up, left = costs[i - 1, j - 1], costs[i - 1, j], costs[i, j - 1]
        if diagonal <= up and diagonal <= left:
            i, j = i - 1, j - 1
        elif up <= left:
            i -= 1
        else:
            j -= 1
