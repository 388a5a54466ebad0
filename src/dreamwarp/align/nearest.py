"""Exact nearest neighbours of every sample.

Blocks of inner products come from float32 matrix products, the fastest operation of a processor,
and give a lower bound of every distance. The few pairs whose bound is below the largest distance
kept so far are computed in float64 from differences. So results are exact, and ties go to the lower
index, regardless of rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.compiled import kernel, limit_algebra, part, spread, thread_count

# Samples on each side of a block, whose products (4 MB) stay in the cache.
BLOCK = 1024
# Bounds that are tested together, with one branch for all.
GROUP = 128
TWO = np.float32(2.0)
# Unit roundoff of float32.
ROUNDOFF = 2.0**-24
# Bound on the float32 underflow error, for samples scaled to at most 1.
UNDERFLOW = 1e-30


def find_nearest(
    samples: NDArray[np.floating], n_neighbors: int, n_threads: int | None = None
) -> NDArray[np.int64]:
    """The nearest other samples of every sample: (n, n_neighbors).

    They are in order of distance, ties in order of index. ``samples`` (n, size) are C-ordered
    float32 or float64, and finite; n > n_neighbors. Takes O(n² size) time and O(n size) memory.
    """
    scaled, scale = _center_and_scale(samples)
    squares = _shrunk_squares(scaled)
    distances = np.full((len(samples), n_neighbors), np.inf)
    indices = np.full(distances.shape, -1)
    with limit_algebra(thread_count(n_threads)):
        for rows in range(0, len(samples), BLOCK):
            for columns in range(0, len(samples), BLOCK):
                products = scaled[rows : rows + BLOCK] @ scaled[columns : columns + BLOCK].T
                spread(
                    keep_nearest, len(products), samples, products, squares, scale**2, rows,
                    columns, distances, indices, n_threads=n_threads, smallest_block=32,
                )  # fmt: skip
    return indices


def _center_and_scale(samples: NDArray[np.floating]) -> tuple[NDArray[np.float32], float]:
    """Samples minus their mean, scaled to at most 1, in float32; and the divisor."""
    center = samples.mean(axis=0, dtype=np.float64)
    blocks = [slice(start, start + BLOCK) for start in range(0, len(samples), BLOCK)]
    scale = max(float(np.abs(samples[block] - center).max()) for block in blocks) or 1.0
    scaled = np.empty(samples.shape, np.float32)
    for block in blocks:
        scaled[block] = (samples[block] - center) / scale
    return scaled, scale


def _shrunk_squares(scaled: NDArray[np.float32]) -> NDArray[np.float32]:
    """|a|² (1 - c) in float32, where c makes |a|² + |b|² - 2 a·b a lower bound despite rounding.

    With u the unit roundoff, the error of 2 a·b is at most size u (|a|² + |b|²). Rounding of the
    samples changes |a - b|² by at most 6 u (|a|² + |b|²). The remaining 26 u cover the rounding of
    sums and limits.
    """
    share = 1.0 - (scaled.shape[1] + 32) * ROUNDOFF
    squares = np.einsum("nk,nk->n", scaled, scaled, dtype=np.float64)
    return (share * squares).astype(np.float32)


@kernel
def keep_nearest(
    first, last, samples, products, squares, unit, row_start, column_start, distances, indices
):
    """Update the nearest samples of each row with a block of inner products.

    Columns come in ascending order, and only a strictly smaller distance replaces another, so ties
    keep the lower index.
    """
    n_columns = products.shape[1]
    for row in range(first, last):
        i = row_start + row
        limit = bound_limit(distances[i, -1], unit)
        for start in range(0, n_columns, GROUP):
            group = products[row, start : start + GROUP]
            others = squares[column_start + start : column_start + start + len(group)]
            if not is_any_below(squares[i], others, group, limit):
                continue
            for k in range(len(group)):
                j = column_start + start + k
                if j != i and squares[i] + others[k] - TWO * group[k] < limit:
                    distance = squared_distance(samples[i], samples[j])
                    if distance < distances[i, -1]:
                        insert(distance, j, distances[i], indices[i])
                        limit = bound_limit(distances[i, -1], unit)


@part
def is_any_below(square, others, products, limit):
    """Whether any lower bound of a group is below the limit. Counts them, to avoid branches."""
    count = np.int32(0)
    for k in range(len(products)):
        count += np.int32(square + others[k] - TWO * products[k] < limit)
    return count > 0


@part
def bound_limit(furthest, unit):
    """Limit of lower bounds: if a distance is below ``furthest``, its bound is below the limit.

    Minus infinity if ``furthest`` is 0: enough duplicates are known.
    """
    return np.float32(furthest / unit + UNDERFLOW) if furthest > 0.0 else np.float32(-np.inf)


@part
def squared_distance(a, b):
    """|a - b|² in float64. Four independent sums, for instruction-level parallelism."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    n_whole = len(a) // 4
    for q in range(n_whole):
        k = 4 * q
        d0, d1 = np.float64(a[k]) - b[k], np.float64(a[k + 1]) - b[k + 1]
        d2, d3 = np.float64(a[k + 2]) - b[k + 2], np.float64(a[k + 3]) - b[k + 3]
        s0 += d0 * d0
        s1 += d1 * d1
        s2 += d2 * d2
        s3 += d3 * d3
    for k in range(4 * n_whole, len(a)):
        d0 = np.float64(a[k]) - b[k]
        s0 += d0 * d0
    return (s0 + s1) + (s2 + s3)


@part
def insert(distance, index, distances, indices):
    """Insert a sample into a sorted list, after equal ones; the last is dropped."""
    place = len(distances) - 1
    while place > 0 and distances[place - 1] > distance:
        distances[place], indices[place] = distances[place - 1], indices[place - 1]
        place -= 1
    distances[place], indices[place] = distance, index
