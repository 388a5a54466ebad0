"""Conversion of θ to node velocities with bounds; chain rule from node velocities to θ.

Kernels process ``FIELDS`` fields side by side; a quantity is a row of that many numbers. Velocities
and derivatives are float64; bounds, which need less precision, float32.
"""

from __future__ import annotations

import numpy as np

from dreamwarp.core.compiled import kernel, lane_kernel
from dreamwarp.core.lanes import FIELDS, ROW, read, sum_fields, sum_listed_fields, write
from dreamwarp.space.mesh import enter

# Velocities are clipped to this before float32 squares them; far beyond the bound of WarpSpace.
MAX_SPEED = 1e14


@lane_kernel
def solve_upper(columns, values):
    """values <- L⁻ᵀ values; see ``Basis.columns``."""
    n, width = columns.shape
    for i in range(n - 1, -1, -1):
        count = min(width, n - i)
        sum_fields(columns, i * width, values, i * FIELDS, FIELDS, count, values, i * FIELDS)


@lane_kernel
def solve_lower(rows, values):
    """values <- L⁻¹ values; see ``Basis.rows``."""
    n, width = rows.shape
    for i in range(n):
        count = min(width, i + 1)
        first = (i + 1) * width - count
        source = (i + 1 - count) * FIELDS
        sum_fields(rows, first, values, source, FIELDS, count, values, i * FIELDS)


@lane_kernel
def bound_speed(n, n_vertices, velocities, bounds):
    """Write max |v|² of each field to row 0 of ``bounds``; velocities has n_vertices x n rows."""
    for w in range(FIELDS):
        write(bounds, 0, w, np.float32(0.0))
    for v in range(n_vertices):
        for w in range(FIELDS):
            squared = np.float32(0.0)
            for k in range(n):
                entry = read(velocities, 0, (v * n + k) * FIELDS + w)
                squared += entry * entry
            write(bounds, 0, w, max(read(bounds, 0, w), squared))


@lane_kernel
def bound_gradient(cells, regions, kinds, velocities, bounds):
    """Write max |A|² of each field to row 1 of ``bounds``, and its growth to row 2.

    The growth bounds the eigenvalues of A's symmetric part, the rates at which paths diverge or
    converge: |tr|/n + sqrt((n - 1)/n) |deviator|, which is sharp for n <= 2. Rows from 3 on hold A.
    """
    n = len(cells)
    for w in range(2 * FIELDS):
        write(bounds, 0, FIELDS + w, np.float32(0.0))
    for r in range(len(regions)):
        for k in range(n):
            for j in range(n):
                sum_listed_fields(
                    kinds.gradients, (kinds.of[r] * n + j) * (n + 1), velocities, k * FIELDS,
                    n * FIELDS, n + 1, bounds, (3 + k * n + j) * FIELDS, regions, r * (n + 1),
                )  # fmt: skip
        for w in range(FIELDS):
            squared, trace, deviation = np.float32(0.0), np.float32(0.0), np.float32(0.0)
            for k in range(n):
                trace += read(bounds, 0, (3 + k * n + k) * FIELDS + w) * np.float32(1.0 / n)
                for j in range(n):
                    entry = read(bounds, 0, (3 + k * n + j) * FIELDS + w)
                    squared += entry * entry
            for k in range(n):
                part_of_trace = read(bounds, 0, (3 + k * n + k) * FIELDS + w) - trace
                deviation += part_of_trace * part_of_trace
                for j in range(k):
                    twice = read(bounds, 0, (3 + k * n + j) * FIELDS + w)
                    twice += read(bounds, 0, (3 + j * n + k) * FIELDS + w)
                    deviation += np.float32(0.5) * twice * twice
            growth = abs(trace) + np.sqrt(deviation * np.float32((n - 1) / n))
            write(bounds, 0, FIELDS + w, max(read(bounds, 0, FIELDS + w), squared))
            write(bounds, 0, 2 * FIELDS + w, max(read(bounds, 0, 2 * FIELDS + w), growth))


@kernel
def node_velocities(first, last, mesh, unknown, columns, theta, velocities, speed, rate, growth):
    """Velocities at the nodes, and bounds on the stiffness of each field.

    One task is ``FIELDS`` fields.

    Parameters
    ----------
    unknown : (ndim, n_vertices)
    columns : (d, bandwidth + 1)
        See ``Basis``.
    theta : (n, d)
    velocities : (n, n_nodes, ndim)
        Zeros on entry; directions keep velocity zero.
    speed, rate, growth : (n,)
        Receive max |v|, max |A| (Frobenius) and the growth of ``bound_gradient``, in float32.
    """
    n, n_vertices = len(mesh.cells), unknown.shape[1]
    values = np.zeros(len(columns) * FIELDS)
    rows32 = np.zeros(velocities.shape[1] * n * FIELDS, np.float32)
    bounds = np.empty((3 + n * n) * FIELDS, np.float32)
    for task in range(first, last):
        start = task * FIELDS
        active = min(FIELDS, len(theta) - start)
        for few in range(0, active, ROW):  # rows are far apart in memory: few fit into the cache
            for i in range(len(columns)):
                for w in range(few, min(few + ROW, active)):
                    write(values, 0, i * FIELDS + w, theta[start + w, i])
        solve_upper(columns, values)
        for v in range(n_vertices):
            for k in range(n):
                if unknown[k, v] >= 0:
                    for w in range(FIELDS):
                        value = read(values, 0, unknown[k, v] * FIELDS + w)
                        value = min(max(value, -MAX_SPEED), MAX_SPEED)
                        write(rows32, 0, (v * n + k) * FIELDS + w, np.float32(value))
        for few in range(0, active, ROW):
            for v in range(n_vertices):
                for k in range(n):
                    if unknown[k, v] >= 0:
                        for w in range(few, min(few + ROW, active)):
                            value = read(values, 0, unknown[k, v] * FIELDS + w)
                            velocities[start + w, v, k] = value
        bound_speed(n, n_vertices, rows32, bounds)
        bound_gradient(mesh.cells, mesh.regions, mesh.kinds, rows32, bounds)
        for w in range(active):
            speed[start + w] = np.sqrt(bounds[w])
            rate[start + w] = np.sqrt(bounds[FIELDS + w])
            growth[start + w] = bounds[2 * FIELDS + w]


@kernel
def gradient_by_theta(first, last, unknown, rows, by_velocity, by_theta):
    """Gradient with respect to θ (n, d), from that for node velocities (n, n_nodes, ndim).

    The transpose of ``node_velocities``. One task is ``FIELDS`` fields.
    """
    values = np.zeros(len(rows) * FIELDS)
    for task in range(first, last):
        start = task * FIELDS
        active = min(FIELDS, len(by_theta) - start)
        values[:] = 0.0
        for k in range(unknown.shape[0]):
            for v in range(unknown.shape[1]):
                if unknown[k, v] >= 0:
                    for w in range(active):
                        total = read(values, 0, unknown[k, v] * FIELDS + w)
                        total += by_velocity[start + w, v, k]
                        write(values, 0, unknown[k, v] * FIELDS + w, total)
        solve_lower(rows, values)
        for i in range(len(rows)):
            for w in range(active):
                by_theta[start + w, i] = read(values, 0, i * FIELDS + w)


@kernel
def evaluate(first, last, mesh, velocities, points, out):
    """v(p); one task is a θ. Shapes (n, nodes, ndim), (n or 1, m, ndim), (n, m, ndim)."""
    ndim = len(mesh.cells)
    local, travelled, weights = np.empty(ndim), np.empty(ndim), np.empty(ndim + 1)
    for t in range(first, last):
        for i in range(out.shape[1]):
            region = enter(mesh, points[t % len(points), i], local, weights, travelled)
            for k in range(ndim):
                out[t, i, k] = 0.0
                for g in range(ndim + 1):
                    out[t, i, k] += weights[g] * velocities[t, mesh.regions[region, g], k]
