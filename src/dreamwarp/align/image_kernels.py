"""Kernels of alignment: warped sources, and the derivatives of the log-likelihood.

One task is a pair. Unknowns are the free velocities at the vertices (``space.basis.Basis``): a path
passes few vertices, so the derivative of a pixel is a short sparse row. Shared arrays:

fields       velocities (n, nodes, ndim); lengths, ease (n,): see ``space.fast.step_lengths``
states       of all n pairs, see ``States``
sources      (n, channels, pixels), float32
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.compiled import kernel, part
from dreamwarp.core.interpolation import LINEAR, combine, find_taps
from dreamwarp.core.interpolation import layout as interpolation_layout
from dreamwarp.core.interpolation import scratch as interpolation_scratch
from dreamwarp.core.lanes import LANES, read, write
from dreamwarp.space.fast import (
    Ends,
    Field,
    Pull,
    Starts,
    fill_table,
    follow,
    make_lanes,
    make_log,
    make_table,
)


class States(NamedTuple):
    """Warped pixels of every pair, and the values of the source there."""

    regions: NDArray[np.uint32]  # (n, m)
    weights: NDArray[np.float32]  # (n, m, ndim)
    positions: NDArray[np.float32]  # (n, m * ndim)
    values: NDArray[np.float32]  # (n, channels, m)


class PixelGrid(NamedTuple):
    """Centres of the pixels, where paths start, and how to interpolate between pixels."""

    starts: Starts
    shape: tuple[int, ...]
    sizes: NDArray[np.float32]  # the shape
    rule: int  # for pixels beyond the border, see ``interpolation``


@kernel
def trace(first, last, mesh, grid, velocities, lengths, ease, chosen, sources, states):
    """Move every pixel and interpolate the source there; one task is a chosen pair."""
    n, m = len(mesh.cells), len(grid.starts.regions)
    (table, factors), lanes = make_table(mesh), make_lanes(mesh)
    pull = Pull(np.empty((0, 0)), np.empty((0, 0)), make_log(n, 0, 0))
    places, work = interpolation_scratch(LINEAR, grid.shape, grid.sizes)
    stencil, zero = LINEAR, np.float32(0.0)
    result = interpolation_layout(stencil, grid.shape).levels
    for task in range(first, last):
        t = chosen[task]
        positions, values, source = states.positions[t], states.values[t], sources[t]
        fill_table(mesh, velocities[task], 1.0, factors, table)
        field = Field(table, np.float32(lengths[task]), np.float32(min(ease[task], 1e30)))
        ends = Ends(positions, states.regions[t], states.weights[t])
        follow(mesh, field, lanes, grid.starts, 0, m, ends, pull)
        for start in range(0, m, LANES):
            count = min(LANES, m - start)
            find_taps(
                stencil, grid.shape, grid.sizes, grid.rule, 0, positions, start, count, places, work
            )
            for c in range(len(source)):
                combine(stencil, grid.shape, grid.rule, 0, source[c], zero, places, work)
                for i in range(count):
                    values[c, start + i] = read(work, result, i)


class Rows(NamedTuple):
    """Rows of the Jacobian, each given as a cotangent at a pixel, and their weights."""

    regions: NDArray[np.uint32]  # (capacity,)
    weights: NDArray[np.float32]  # (capacity, ndim)
    cotangents: NDArray[np.float64]  # (capacity, ndim)
    slopes: NDArray[np.float64]  # (capacity,): slope x row is added to the gradient
    curvatures: NDArray[np.float64]  # (capacity,): curvature x row rowᵀ is added to the Hessian


@part
def add_row(path, i, regions, weights, slope, curvature, rows):
    """Add a cotangent at pixel i."""
    rows.regions[path] = regions[i]
    for k in range(weights.shape[1]):
        rows.weights[path, k] = weights[i, k]
    rows.slopes[path], rows.curvatures[path] = slope, curvature
    return path + 1


@part
def split_channels(force, metric, i, path, regions, weights, rows):
    """Rows of a pixel from Σ_c u_c g_c and Σ_c w_c g_c g_cᵀ, the second factored as L D Lᵀ.

    u_c, w_c: slope and curvature of the similarity in channel c; g_c: its image gradient.
    """
    n = len(force)
    floor = 0.0
    for k in range(n):
        floor += 1e-12 * metric[k, k]
    for k in range(n):
        pivot = metric[k, k]
        for j in range(n):
            below = metric[j, k] / pivot if pivot > floor and j > k else 0.0
            rows.cotangents[path, j] = 1.0 if j == k else below
        slope = force[k]
        for j in range(k + 1, n):
            factor = metric[j, k] / pivot if pivot > floor else 0.0
            force[j] -= factor * slope
            for q in range(k + 1, n):
                metric[j, q] -= factor * metric[k, q]
        if pivot > floor or slope != 0.0:
            path = add_row(path, i, regions, weights, slope, max(pivot, 0.0), rows)
    return path


@part
def choose_rows(grid, source, t, states, slopes, curvatures, places, work, force, metric, rows):
    """Rows of one pair, one per pixel with a non-zero image gradient; returns their number."""
    stencil, n, n_channels = LINEAR, len(grid.shape), len(source)
    zero = np.float32(0.0)
    result = interpolation_layout(stencil, grid.shape).levels
    regions, weights, positions = states.regions[t], states.weights[t], states.positions[t]
    m, path = len(regions), 0
    for start in range(0, m, LANES):
        count = min(LANES, m - start)
        find_taps(
            stencil, grid.shape, grid.sizes, grid.rule, n, positions, start, count, places, work
        )
        if n_channels == 1:
            combine(stencil, grid.shape, grid.rule, n, source[0], zero, places, work)
            for i in range(count):
                steep = False
                for k in range(n):
                    g = read(work, result + k + 1, i)
                    rows.cotangents[path, k] = g
                    steep = steep or g != zero
                if steep:
                    slope, curvature = slopes[0, start + i], curvatures[0, start + i]
                    path = add_row(path, start + i, regions, weights, slope, curvature, rows)
            continue
        force[:] = 0.0
        metric[:] = 0.0
        for c in range(n_channels):
            combine(stencil, grid.shape, grid.rule, n, source[c], zero, places, work)
            for i in range(count):
                for k in range(n):
                    g = read(work, result + k + 1, i)
                    force[i, k] += slopes[c, start + i] * g
                    for j in range(n):
                        h = read(work, result + j + 1, i)
                        metric[i, k, j] += curvatures[c, start + i] * g * h
        for i in range(count):
            path = split_channels(force[i], metric[i], start + i, path, regions, weights, rows)
    return path


@part
def collect_row(mesh, unknown, path, log, row, owners, touched):
    """Write the derivative of one path with respect to the unknowns to ``row``.

    Lists the indices of its entries in ``touched`` and returns their number. ``owners`` holds the
    last path that touched each unknown.
    """
    n, n_vertices, n_touched = len(mesh.cells), unknown.shape[1], 0
    size = (n + 1) * n
    entry = np.int64(read(log.last, 0, path))
    while entry >= 0:
        region = np.int64(read(log.regions, 0, entry))
        kind = read(mesh.kinds.of, 0, region)
        for f in range(n + 1):
            node = read(mesh.regions, 0, region * (n + 1) + f)
            if node >= n_vertices:
                continue
            for c in range(n):
                at = read(unknown, 0, c * n_vertices + node)
                if at < 0:
                    continue
                value = 0.0
                for k in range(n):
                    slope = read(mesh.kinds.slopes, 0, (kind * n + k) * n + c)
                    value += read(log.sums, 0, entry * size + f * n + k) * slope
                if read(owners, 0, at) == path:
                    value += read(row, 0, at)
                else:
                    write(owners, 0, at, path)
                    write(touched, 0, n_touched, at)
                    n_touched += 1
                write(row, 0, at, value)
        entry = np.int64(read(log.before, 0, entry))
    return n_touched


@part
def add_square(row, touched, n_touched, slope, curvature, values, gradient, hessian):
    """Add slope times a row to the gradient, and curvature times its square to the Hessian.

    A product is added to only one of two symmetric entries of the Hessian: see ``fold``. ``values``
    is scratch for the entries of the row.
    """
    d = len(row)
    for i in range(n_touched):
        a = read(touched, 0, i)
        value = read(row, 0, a)
        write(values, 0, i, value)
        write(gradient, 0, a, read(gradient, 0, a) + slope * value)
    if hessian.size == 0:
        return
    for i in range(n_touched):
        scaled, first = curvature * read(values, 0, i), read(touched, 0, i) * d
        for j in range(i + 1):
            at = first + read(touched, 0, j)
            write(hessian, 0, at, read(hessian, 0, at) + scaled * read(values, 0, j))


@part
def fold(matrix):
    """Replace symmetric entries by their sum."""
    for i in range(len(matrix)):
        for j in range(i):
            total = matrix[i, j] + matrix[j, i]
            matrix[i, j], matrix[j, i] = total, total


@kernel
def linearise(
    first, last, mesh, grid, unknown, velocities, lengths, chosen, sources, states,
    slopes, curvatures, capacity, gradients, hessians, entries,
):  # fmt: skip
    """Gradient and minus the Gauss-Newton Hessian of the log-likelihood, in the unknowns.

    Parameters
    ----------
    velocities : (k, nodes, ndim)
        Of the chosen pairs.
    slopes, curvatures : (k, channels, m)
        First derivative of the log-likelihood with respect to each pixel value, and minus the
        second derivative.
    capacity : int
        Capacity of the log of a pair's paths.
    gradients, hessians : (k, unknowns), (k, unknowns, unknowns) or (k, 0, 0)
    entries : (k,)
        Receives the number of log entries needed. If it exceeds the capacity, there are no results.
    """
    n, m = len(mesh.cells), len(grid.starts.regions)
    n_paths = m if sources.shape[1] == 1 else n * m
    (table, factors), lanes = make_table(mesh), make_lanes(mesh)
    log = make_log(n, capacity, n_paths + 1)
    places, work = interpolation_scratch(LINEAR, grid.shape, grid.sizes)
    rows = Rows(
        np.empty(n_paths + 1, np.uint32), np.empty((n_paths + 1, n), np.float32),
        np.empty((n_paths + 1, n)), np.empty(n_paths + 1), np.empty(n_paths + 1),
    )  # fmt: skip
    starts = Starts(rows.regions, rows.weights, np.zeros((n_paths + 1, n), np.float32))
    ends = Ends(np.empty(0, np.float32), np.empty(0, np.uint32), np.empty((0, n), np.float32))
    pull = Pull(rows.cotangents, np.empty((0, 0)), log)
    force, metric = np.empty((LANES, n)), np.empty((LANES, n, n))
    d = gradients.shape[1]
    row, values, touched = np.empty(d), np.empty(d), np.empty(d, np.int64)
    owners = np.empty(d, np.int64)
    for task in range(first, last):
        t = chosen[task]
        count = choose_rows(
            grid, sources[t], t, states, slopes[task], curvatures[task], places, work, force,
            metric, rows,
        )  # fmt: skip
        fill_table(mesh, velocities[task], -1.0, factors, table)
        field = Field(table, np.float32(lengths[task]), np.float32(0.0))
        log.last[:count] = -1
        log.n_entries[0] = 0
        follow(mesh, field, lanes, starts, 0, count, ends, pull)
        entries[task] = log.n_entries[0]
        if log.n_entries[0] > capacity:
            continue
        gradient, hessian = gradients[task], hessians[task]
        gradient[:] = 0.0
        hessian[:] = 0.0
        owners[:] = -1
        for path in range(count):
            n_touched = collect_row(mesh, unknown, path, log, row, owners, touched)
            slope, curvature = rows.slopes[path], rows.curvatures[path]
            add_square(row, touched, n_touched, slope, curvature, values, gradient, hessian)
        fold(hessian)
