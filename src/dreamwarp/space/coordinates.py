"""θ to velocities at the nodes, and derivatives by node velocities to derivatives by θ."""

from __future__ import annotations

import numpy as np

from dreamwarp.space.compiled import kernel
from dreamwarp.space.mesh import enter


@kernel
def solve_upper(factor, values):
    """values <- L⁻ᵀ values, for the banded rows of L."""
    n, width = factor.shape
    for i in range(n - 1, -1, -1):
        values[i] /= factor[i, width - 1]
        first = max(0, i - width + 1)
        for j in range(first, i):
            values[j] -= factor[i, width - 1 - i + j] * values[i]


@kernel
def solve_lower(factor, values):
    """values <- L⁻¹ values, for the banded rows of L."""
    n, width = factor.shape
    for i in range(n):
        first = max(0, i - width + 1)
        total = values[i]
        for j in range(first, i):
            total -= factor[i, width - 1 - i + j] * values[j]
        values[i] = total / factor[i, width - 1]


@kernel
def node_velocities(first, last, unknown, factor, unknowns, velocities):
    """Solve for the unknowns in place and spread them over the nodes.

    Parameters
    ----------
    unknown : (ndim, n_vertices)
    factor : (n_unknowns, bandwidth + 1)
    unknowns : (n, n_unknowns)
        θ on entry.
    velocities : (n, n_nodes, ndim)
        Zeros on entry; directions keep velocity zero.
    """
    for t in range(first, last):
        solve_upper(factor, unknowns[t])
        for k in range(unknown.shape[0]):
            for v in range(unknown.shape[1]):
                if unknown[k, v] >= 0:
                    velocities[t, v, k] = unknowns[t, unknown[k, v]]


@kernel
def theta_gradient(first, last, unknown, factor, by_velocity, by_theta):
    """The transpose of ``node_velocities``: (n, n_nodes, ndim) to (n, n_unknowns).

    ``by_theta`` holds zeros on entry.
    """
    for t in range(first, last):
        for k in range(unknown.shape[0]):
            for v in range(unknown.shape[1]):
                if unknown[k, v] >= 0:
                    by_theta[t, unknown[k, v]] += by_velocity[t, v, k]
        solve_lower(factor, by_theta[t])


@kernel
def field_bounds(first, last, regions, weights, velocities, speed, rate, growth):
    """How violent each field is, at its worst place.

    Parameters
    ----------
    velocities : (n, n_nodes, ndim)
    speed : (n,)
        Receives max |v|.
    rate : (n,)
        Receives max |A|, the Frobenius norm of the velocity gradient.
    growth : (n,)
        Receives a bound on the largest eigenvalue of A's symmetric part, the rate at which two
        paths can part: tr/n + sqrt((n - 1)/n) |deviator|, which for n <= 2 is that eigenvalue.
    """
    _, n_nodes, ndim = velocities.shape
    matrix = np.empty((ndim, ndim))
    for t in range(first, last):
        speed[t], rate[t], growth[t] = 0.0, 0.0, 0.0
        for v in range(n_nodes):
            squared = 0.0
            for k in range(ndim):
                squared += velocities[t, v, k] ** 2
            speed[t] = max(speed[t], np.sqrt(squared))
        for r in range(len(regions)):
            squared, trace = 0.0, 0.0
            for k in range(ndim):
                for j in range(ndim):
                    entry = 0.0
                    for g in range(ndim + 1):
                        entry += velocities[t, regions[r, g], k] * weights[r, g, j]
                    matrix[k, j] = entry
                    squared += entry * entry
                trace += matrix[k, k]
            deviation = 0.0
            for k in range(ndim):
                for j in range(ndim):
                    entry = 0.5 * (matrix[k, j] + matrix[j, k])
                    deviation += (entry - trace / ndim if k == j else entry) ** 2
            rate[t] = max(rate[t], np.sqrt(squared))
            growth[t] = max(growth[t], trace / ndim + np.sqrt(deviation * (ndim - 1) / ndim))


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
