"""Kernels that draw θ for many samples.

Each row depends on its own sample number alone. Rows are bit-identical for any batch, because sums
run in the order written; a library's matrix product may sum in an order that depends on the number
of rows.

Draw t is that of sample ``numbers[t]`` and goes into ``out[rows[t]]``: numbers and rows are (n,),
and out is (m, d).
"""

from __future__ import annotations

import numpy as np

from dreamwarp.core.compiled import kernel
from dreamwarp.core.draws import LINE, Stream, fused, normal_pairs, normal_rows
from dreamwarp.core.lanes import LANES, read, write

WARP, MIXTURE = np.uint64(Stream.WARP), np.uint64(Stream.MIXTURE)


@kernel
def draw_gaussian(first, last, key_low, key_high, factor, widths, numbers, rows, out):
    """L z, with L = ``factor`` (d, d); one task is ``LANES`` samples.

    ``widths`` (d,) is the number of leading entries of each row of L to use; the others are zero.
    """
    dim = len(factor)
    counters = np.empty(2 * LANES, np.uint64)
    z = np.empty((dim + 1) // 2 * 2 * LANES)
    theta = np.empty(dim * LANES)
    for task in range(first, last):
        start = task * LANES
        active = min(LANES, len(numbers) - start)
        normal_rows(key_low, key_high, WARP, numbers, start, active, dim, counters, z)
        for i in range(dim):
            for w in range(active):
                write(theta, i, w, 0.0)
            for j in range(widths[i]):
                entry = factor[i, j]
                for w in range(active):
                    write(theta, i, w, fused(entry, read(z, j, w), read(theta, i, w)))
        for base in range(0, active, LINE):
            for i in range(dim):
                for w in range(base, min(base + LINE, active)):
                    out[rows[start + w], i] = read(theta, i, w)


@kernel
def add_mixtures(
    first, last, key_low, key_high, theta, means, deviations, begins, ends, damping, numbers, rows,
    out,
):  # fmt: skip
    """Add random combinations of θ (n_entries, d) to damped noise; one task is a sample.

    With r = rows[t]: ``out[r]`` = damping[t] ``out[r]`` + Σ_e (means[e] + deviations[e] z_e)
    theta[e], over the entries e from begins[t] to ends[t].
    """
    dim = theta.shape[1]
    counters, z = np.empty(2 * LANES, np.uint64), np.empty(2 * LANES)
    for t in range(first, last):
        row, n_entries = rows[t], ends[t] - begins[t]
        for i in range(dim):
            out[row, i] *= damping[t]
        for base in range(0, n_entries, 2 * LANES):
            n_here = min(2 * LANES, n_entries - base)
            for w in range((n_here + 1) // 2):
                write(counters, 0, w, np.uint64(numbers[t]))
                write(counters, 1, w, np.uint64(base // 2 + w))
            normal_pairs(key_low, key_high, MIXTURE, counters, (n_here + 1) // 2, 0, z)
            for k in range(n_here):
                entry = begins[t] + base + k
                weight = means[entry] + deviations[entry] * read(z, k % 2, k // 2)
                for i in range(dim):
                    out[row, i] += weight * theta[entry, i]
