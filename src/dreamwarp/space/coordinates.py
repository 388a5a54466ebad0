"""θ to velocities at the nodes, bounds on those, and derivatives by them back to θ.

Kernels here do ``LANES`` fields side by side, in work arrays laid out as ``lanes`` says, in
float64.
"""

from __future__ import annotations

import numpy as np

from dreamwarp.space.compiled import kernel, lane_kernel
from dreamwarp.space.lanes import LANES, read, write
from dreamwarp.space.mesh import enter


@lane_kernel
def solve_upper(factor, active, values):
    """values <- L⁻ᵀ values, for the banded rows of L; values has n_unknowns rows of lanes."""
    n, width = factor.shape
    for i in range(n - 1, -1, -1):
        inverse = 1.0 / factor[i, width - 1]
        for w in range(active):
            write(values, i, w, read(values, i, w) * inverse)
        for j in range(max(0, i - width + 1), i):
            entry = factor[i, width - 1 - i + j]
            for w in range(active):
                write(values, j, w, read(values, j, w) - entry * read(values, i, w))


@lane_kernel
def solve_lower(factor, active, values):
    """values <- L⁻¹ values, for the banded rows of L; values has n_unknowns rows of lanes."""
    n, width = factor.shape
    for i in range(n):
        for j in range(max(0, i - width + 1), i):
            entry = factor[i, width - 1 - i + j]
            for w in range(active):
                write(values, i, w, read(values, i, w) - entry * read(values, j, w))
        inverse = 1.0 / factor[i, width - 1]
        for w in range(active):
            write(values, i, w, read(values, i, w) * inverse)


@lane_kernel
def bound_speed(n, n_vertices, active, velocities, bounds):
    """max |v|² of each field into row 0 of ``bounds``; velocities has n_vertices x n rows."""
    for w in range(active):
        write(bounds, 0, w, 0.0)
    for v in range(n_vertices):
        for w in range(active):
            squared = 0.0
            for k in range(n):
                squared += read(velocities, v * n + k, w) * read(velocities, v * n + k, w)
            write(bounds, 0, w, max(read(bounds, 0, w), squared))


@lane_kernel
def bound_gradient(cells, regions, weights, active, velocities, matrix, bounds):
    """max |A|² of each field into row 1 of ``bounds``, and its growth into row 2.

    The growth bounds the eigenvalues of A's symmetric part, the rates at which two paths part or
    meet: |tr|/n + sqrt((n - 1)/n) |deviator|, which for n <= 2 is the largest of them in size.
    """
    n = len(cells)
    for w in range(active):
        write(bounds, 1, w, 0.0)
        write(bounds, 2, w, 0.0)
    for r in range(len(regions)):
        for k in range(n):
            for j in range(n):
                for w in range(active):
                    entry = 0.0
                    for g in range(n + 1):
                        entry += read(velocities, regions[r, g] * n + k, w) * weights[r, g, j]
                    write(matrix, k * n + j, w, entry)
        for w in range(active):
            squared, trace, deviation = 0.0, 0.0, 0.0
            for k in range(n):
                trace += read(matrix, k * n + k, w) * (1.0 / n)
                for j in range(n):
                    squared += read(matrix, k * n + j, w) * read(matrix, k * n + j, w)
            for k in range(n):
                part_of_trace = read(matrix, k * n + k, w) - trace
                deviation += part_of_trace * part_of_trace
                for j in range(k):
                    twice = read(matrix, k * n + j, w) + read(matrix, j * n + k, w)
                    deviation += 0.5 * twice * twice
            growth = abs(trace) + np.sqrt(deviation * ((n - 1) / n))
            write(bounds, 1, w, max(read(bounds, 1, w), squared))
            write(bounds, 2, w, max(read(bounds, 2, w), growth))


@kernel
def node_velocities(first, last, mesh, unknown, factor, unknowns, velocities, speed, rate, growth):
    """Velocities at the nodes, and how violent each field is at its worst place.

    One task is ``LANES`` fields.

    Parameters
    ----------
    unknown : (ndim, n_vertices)
    factor : (n_unknowns, bandwidth + 1)
    unknowns : (n, n_unknowns)
        What L is still to be divided out of: θ, but for volume preservation.
    velocities : (n, n_nodes, ndim)
        Zeros on entry; directions keep velocity zero.
    speed, rate, growth : (n,)
        Receive max |v|, max |A| (Frobenius) and the growth of ``bound_gradient``.
    """
    n, n_vertices = len(mesh.cells), unknown.shape[1]
    values = np.zeros(len(factor) * LANES)
    abreast = np.zeros(velocities.shape[1] * n * LANES)
    matrix, bounds = np.empty(n * n * LANES), np.empty(3 * LANES)
    for task in range(first, last):
        start = task * LANES
        active = min(LANES, len(unknowns) - start)
        for w in range(active):
            for i in range(len(factor)):
                write(values, i, w, unknowns[start + w, i])
        solve_upper(factor, active, values)
        for v in range(n_vertices):
            for k in range(n):
                if unknown[k, v] >= 0:
                    for w in range(active):
                        write(abreast, v * n + k, w, read(values, unknown[k, v], w))
        bound_speed(n, n_vertices, active, abreast, bounds)
        bound_gradient(mesh.cells, mesh.regions, mesh.weights, active, abreast, matrix, bounds)
        for w in range(active):
            for v in range(n_vertices):
                for k in range(n):
                    velocities[start + w, v, k] = read(abreast, v * n + k, w)
            speed[start + w] = np.sqrt(read(bounds, 0, w))
            rate[start + w] = np.sqrt(read(bounds, 1, w))
            growth[start + w] = read(bounds, 2, w)


@kernel
def theta_gradient(first, last, unknown, factor, by_velocity, by_theta):
    """Derivatives by node velocities (n, n_nodes, ndim) to those by θ (n, n_unknowns).

    The transpose of ``node_velocities``; one task is ``LANES`` fields.
    """
    values = np.zeros(len(factor) * LANES)
    for task in range(first, last):
        start = task * LANES
        active = min(LANES, len(by_theta) - start)
        values[:] = 0.0
        for w in range(active):
            for k in range(unknown.shape[0]):
                for v in range(unknown.shape[1]):
                    if unknown[k, v] >= 0:
                        total = read(values, unknown[k, v], w) + by_velocity[start + w, v, k]
                        write(values, unknown[k, v], w, total)
        solve_lower(factor, active, values)
        for w in range(active):
            for i in range(len(factor)):
                by_theta[start + w, i] = read(values, i, w)


@kernel
def evaluate(first, last, mesh, velocities, points, out):
    """v(p): one task is a θ. Shapes (n, nodes, ndim), (n or 1, m, ndim), (n, m, ndim)."""
    ndim = len(mesh.cells)
    local, travelled, weights = np.empty(ndim), np.empty(ndim), np.empty(ndim + 1)
    for t in range(first, last):
        for i in range(out.shape[1]):
            region = enter(mesh, points[t % len(points), i], local, weights, travelled)
            for k in range(ndim):
                out[t, i, k] = 0.0
                for g in range(ndim + 1):
                    out[t, i, k] += weights[g] * velocities[t, mesh.regions[region, g], k]
