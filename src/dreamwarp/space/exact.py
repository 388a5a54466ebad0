"""The flow to machine precision: one matrix exponential per cell, exact crossing times.

Inside a region the weights z of its nodes obey the linear equation z' = M z with
M[f, g] = ∇z_f · v_g. So z(t) is a matrix exponential applied to z(0), and the path leaves through
the face opposite node f at the first t with z_f(t) = 0. On crossing, the nodes of the common face
keep their weights, and the remainder of z_f is distributed over the new nodes. A position is looked
up only at the start, and v is continuous, so the path is too.

Derivatives come from one pass back along the path. With c(s) = c(1) Dφ_{1-s}, the derivative of
c(1)·φ_1 with respect to the velocity at node f is ∫ c(s) z_f(s) ds, and c(0) is the derivative with
respect to the point. In reversed time u = 1 - s: c' = c A.

In 1-D, paths have a closed form; see ``line``.
"""

from __future__ import annotations

import numpy as np

from dreamwarp.core.compiled import kernel, part
from dreamwarp.space.line import follow_on_line
from dreamwarp.space.mesh import WEIGHT_SLACK, enter

# Order of the exponential's power series over a step of length h with |A| h <= 1. The first omitted
# term is below 1 / 20!, a hundredth of the rounding of the sum.
ORDER = 19
# Points per task: enough to hide scheduling, few enough to split one large volume among threads.
CHUNK = 256
# After this many crossings without progress (a path through a vertex makes a few), take one tiny
# step in the current cell. Its error is of second order.
STALLED, STALLED_STEP = 64, 1e-7

# Newton steps toward a face before the series is recomputed; a typical crossing takes about five.
MAX_NEWTON_STEPS = 50

_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(8)
# Eight nodes integrate c z over |A| h <= 1 with a remainder of about 1e-18.
GAUSS_NODES, GAUSS_WEIGHTS = 0.5 * (_GAUSS_NODES + 1.0), 0.5 * _GAUSS_WEIGHTS


@part
def gradient_matrix(mesh, velocities, region, matrix):
    """Write A, the velocity gradient in a region, to ``matrix``; return its Frobenius norm."""
    ndim = len(mesh.cells)
    squared = 0.0
    for k in range(ndim):
        for j in range(ndim):
            entry = 0.0
            for g in range(ndim + 1):
                entry += velocities[mesh.regions[region, g], k] * mesh.weights[region, g, j]
            matrix[k, j] = entry
            squared += entry * entry
    return np.sqrt(squared)


@part
def weight_series(mesh, velocities, region, weights, matrix, step, terms, series):
    """Write the coefficients of z(t) on [0, step] to ``series``; return the order needed.

    z(t) = z + Σ_k ∇z · A^{k-1} v t^k / k!
    """
    ndim = len(mesh.cells)
    for k in range(ndim):
        terms[0, k] = 0.0
        for g in range(ndim + 1):
            terms[0, k] += velocities[mesh.regions[region, g], k] * weights[g]
    for f in range(ndim + 1):
        series[0, f] = weights[f]
    power = 1.0
    for order in range(1, ORDER + 1):
        power *= step
        largest = 0.0
        for f in range(ndim + 1):
            coefficient = 0.0
            for k in range(ndim):
                coefficient += mesh.weights[region, f, k] * terms[order - 1, k]
            series[order, f] = coefficient
            largest = max(largest, abs(coefficient))
        if largest * power < 1e-18:
            return order
        for k in range(ndim):
            entry = 0.0
            for j in range(ndim):
                entry += matrix[k, j] * terms[order - 1, j]
            terms[order, k] = entry / (order + 1)
    return ORDER


@part
def horner(series, order, f, t):
    """Value of one column of a series at t."""
    value = series[order, f]
    for k in range(order - 1, -1, -1):
        value = value * t + series[k, f]
    return value


@part
def first_crossing(series, order, f, end):
    """First time in [0, end) at which weight f falls below -WEIGHT_SLACK, and whether it does.

    Newton's method with a parabola below z_f, whose curvature bounds |z_f''|: no root is missed,
    however briefly the path is beyond the face, and convergence is quadratic. If it is slow because
    slope and curvature vanish with the value, a time before the crossing is returned; the caller
    recomputes the series there.
    """
    bound = 0.0
    for k in range(order, 1, -1):
        bound = bound * end + k * (k - 1) * abs(series[k, f])
    t, value, slope = 0.0, series[0, f], series[1, f]
    for _ in range(MAX_NEWTON_STEPS):
        value += WEIGHT_SLACK
        if value <= 0.01 * WEIGHT_SLACK and slope < 0.0:
            return t, True
        value = max(value, 0.0)
        root = np.sqrt(slope * slope + 2.0 * bound * value)
        if slope < 0.0:
            t += 2.0 * value / (root - slope)
        elif bound > 0.0:
            t += (slope + root) / bound
        else:
            return end, False
        if t >= end:
            return end, False
        value, slope = series[order, f], 0.0
        for k in range(order - 1, -1, -1):
            slope = slope * t + value
            value = value * t + series[k, f]
    return t, False


@part
def next_segment(mesh, velocities, region, weights, time_left, matrix, terms, series):
    """Length of the path until its time, its cell or the range of its series ends.

    Returns (length, order of the series, face crossed or -1). ``weights`` are not changed.
    """
    rate = gradient_matrix(mesh, velocities, region, matrix)
    length = time_left if rate * time_left <= 1.0 else 1.0 / rate
    order = weight_series(mesh, velocities, region, weights, matrix, length, terms, series)
    face = -1
    for f in range(len(mesh.cells) + 1):
        if mesh.neighbor[region, f] >= 0:
            t, found = first_crossing(series, order, f, length)
            if t < length:
                length, face = t, f if found else -1
    return length, order, face


@part
def cross(mesh, region, face, weights, moved, travelled):
    """Convert the weights to those of the region across a face; returns that region."""
    ndim = len(mesh.cells)
    for g in range(ndim + 1):
        kept = 0.0 if g == face else weights[g]
        moved[mesh.position[region, face, g]] = kept + mesh.fold[region, face, g] * weights[face]
    for g in range(ndim + 1):
        weights[g] = moved[g]
    for k in range(ndim):
        travelled[k] += mesh.shift[region, face, k]
    return mesh.neighbor[region, face]


@part
def follow(mesh, velocities, point, scratch, costate, gradient, end):
    """Follow the path from ``point`` for unit time and write its end to ``end``.

    The rows of ``costate`` (rows, ndim) are carried along by c' = -c A, and ∫ c z_f dt is added to
    ``gradient`` (rows, nodes, ndim) for every node f; either may be empty. On the way back
    (``velocities`` negated, ``point`` = φ_1(p)) these are the derivatives with respect to p and to
    the node velocities.
    """
    ndim = len(mesh.cells)
    if ndim == 1:
        follow_on_line(mesh, velocities, point, scratch, costate, gradient, end)
        return
    local, travelled, weights, moved, matrix, terms, series, powers = scratch
    region = enter(mesh, point, local, weights, travelled)
    time_left = 1.0
    stalled = 0
    while time_left > 0.0:
        length, order, face = next_segment(
            mesh, velocities, region, weights, time_left, matrix, terms, series
        )
        stalled = stalled + 1 if length < 1e-12 else 0
        if stalled > STALLED:
            length, face, stalled = min(time_left, STALLED_STEP), -1, 0
        if costate.size > 0:
            carry(mesh, region, length, matrix, series, order, powers, costate, gradient)
        for f in range(ndim + 1):
            weights[f] = horner(series, order, f, length)
        time_left -= length
        if face >= 0:
            region = cross(mesh, region, face, weights, moved, travelled)
    for k in range(ndim):
        end[k] = travelled[k]
        for g in range(ndim + 1):
            end[k] += weights[g] * mesh.nodes[mesh.regions[region, g], k]


@part
def carry(mesh, region, length, matrix, series, order, powers, costate, gradient):
    """Carry ``costate`` over one segment and add the integrals to ``gradient``; see ``follow``."""
    rows, ndim = len(costate), len(mesh.cells)
    for r in range(rows):
        for k in range(ndim):
            powers[0, r * ndim + k] = costate[r, k]
    for p in range(1, ORDER + 1):
        for r in range(rows):
            for k in range(ndim):
                entry = 0.0
                for j in range(ndim):
                    entry -= powers[p - 1, r * ndim + j] * matrix[j, k]
                powers[p, r * ndim + k] = entry / p
    if gradient.size > 0:
        for q in range(len(GAUSS_NODES)):
            t = GAUSS_NODES[q] * length
            for rk in range(rows * ndim):
                share = GAUSS_WEIGHTS[q] * length * horner(powers, ORDER, rk, t)
                for f in range(ndim + 1):
                    node = mesh.regions[region, f]
                    gradient[rk // ndim, node, rk % ndim] += share * horner(series, order, f, t)
    for rk in range(rows * ndim):
        costate[rk // ndim, rk % ndim] = horner(powers, ORDER, rk, length)


@kernel
def follow_all(first, last, mesh, velocities, points, out, costates, gradients):
    """Follow paths for unit time; one task is a θ and a chunk of points.

    Parameters
    ----------
    velocities : (n, nodes, ndim)
    points : (n or 1, m, ndim)
    out : (n, m, ndim) or empty
        Receives φ_1(p).
    costates : (n, m, rows, ndim)
        Carried along the paths and overwritten; see ``follow``. May have no rows.
    gradients : (n, chunks, rows, nodes, ndim)
        Zeros on entry; receives ∫ c z_f dt, one sum per chunk of ``m / chunks`` points, so that
        sums do not depend on the threads. May have no nodes.
    """
    n_chunks, m, ndim = gradients.shape[1], points.shape[1], len(mesh.cells)
    size = (m + n_chunks - 1) // n_chunks
    end = np.empty(ndim)
    scratch = (
        np.empty(ndim),
        np.empty(ndim),
        np.empty(ndim + 1),
        np.empty(ndim + 1),
        np.empty((ndim, ndim)),
        np.empty((ORDER + 1, ndim)),
        np.empty((ORDER + 1, ndim + 1)),
        np.empty((ORDER + 1, ndim * ndim)),
    )
    for task in range(first, last):
        t, chunk = task // n_chunks, task % n_chunks
        for i in range(chunk * size, min((chunk + 1) * size, m)):
            point = points[t % len(points), i]
            follow(mesh, velocities[t], point, scratch, costates[t, i], gradients[t, chunk], end)
            if out.size > 0:
                out[t, i] = end
