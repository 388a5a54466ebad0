"""The flow to machine precision: one matrix exponential per cell, exact crossing times.

Inside a region the weights z of its nodes obey the linear equation z' = M z with
M[f, g] = ∇z_f · v_g, so z(t) is a matrix exponential applied to z(0), and the path leaves through
the face opposite node f at the first t with z_f(t) = 0. Crossing renames weights: the nodes of the
common face keep theirs, and what is left of z_f is shared out. No position is ever looked up again,
and v is continuous, so nothing jumps.

Derivatives come from one pass back along the path. With c(s) = c(1) Dφ_{1-s}, the derivative of
c(1)·φ_1 by the velocity at node f is ∫ c(s) z_f(s) ds, and c(0) is the derivative by the point.
Running back in u = 1 - s: c' = c A.
"""

from __future__ import annotations

import numpy as np

from dreamwarp.core.compiled import kernel, part
from dreamwarp.space.mesh import WEIGHT_SLACK, enter

# The exponential's power series over a step of length h with |A| h <= 1: the first term left out is
# below 1 / 20!, a hundredth of the rounding of the sum.
ORDER = 19
# Points per task: enough to hide scheduling, few enough to share one large volume among threads.
CHUNK = 256
# After this many crossings without progress (a path through a vertex makes a few) one tiny step is
# taken in the cell at hand; it errs by its square.
STALLED, STALLED_STEP = 64, 1e-7

# Newton steps toward a face before the series is set up anew; a plain crossing takes about five.
PATIENCE = 50

_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(8)
# Eight nodes integrate c z over |A| h <= 1 with a remainder near 1e-18.
GAUSS_NODES, GAUSS_WEIGHTS = 0.5 * (_GAUSS_NODES + 1.0), 0.5 * _GAUSS_WEIGHTS


@part
def gradient_matrix(mesh, velocities, region, matrix):
    """Put A, the velocity gradient in a region, into ``matrix``; return its Frobenius norm."""
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
    """Put the coefficients of z(t) on [0, step] into ``series``; return the order reached.

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

    Newton's method on the parabola that lies below z_f: its curvature is a bound on |z_f''|, so no
    root is ever stepped over, however brief the visit beyond the face, and at a root convergence is
    quadratic. Where it creeps, because slope and curvature vanish with the value, it gives up at a
    time that is safe, for the series to be set up anew there.
    """
    bound = 0.0
    for k in range(order, 1, -1):
        bound = bound * end + k * (k - 1) * abs(series[k, f])
    t, value, slope = 0.0, series[0, f], series[1, f]
    for _ in range(PATIENCE):
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
    """Follow the path to the end of its time, its cell or the series' reach.

    Returns (length, order of the series, face crossed or -1). ``weights`` stay those at the start.
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
    """Rename the weights for the region across a face; returns that region."""
    ndim = len(mesh.cells)
    for g in range(ndim + 1):
        kept = 0.0 if g == face else weights[g]
        moved[mesh.position[region, face, g]] = kept + mesh.fold[region, face, g] * weights[face]
    for g in range(ndim + 1):
        weights[g] = moved[g]
    for k in range(ndim):
        travelled[k] += mesh.shift[region, face, k]
    return mesh.neighbor[region, face]


@kernel
def scratch_space(ndim):
    """Work arrays for one thread's paths."""
    return (
        np.empty(ndim),
        np.empty(ndim),
        np.empty(ndim + 1),
        np.empty(ndim + 1),
        np.empty((ndim, ndim)),
        np.empty((ORDER + 1, ndim)),
        np.empty((ORDER + 1, ndim + 1)),
        np.empty((ORDER + 1, ndim * ndim)),
    )


@part
def follow(mesh, velocities, point, time, scratch, costate, gradient, end):
    """Follow the path from ``point`` and put where it ends into ``end``.

    The rows of ``costate`` (rows, ndim) are carried along by c' = -c A, and ∫ c z_f dt is added to
    ``gradient`` (rows, nodes, ndim) for every node f; either may have no entries. On the way back
    (``velocities`` negated, ``point`` = φ_time(p)) these are the derivatives by p and by the node
    velocities.
    """
    ndim = len(mesh.cells)
    local, travelled, weights, moved, matrix, terms, series, powers = scratch
    region = enter(mesh, point, local, weights, travelled)
    time_left = time
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
    """Carry ``costate`` over one segment and add its integrals to ``gradient``; see ``follow``."""
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
def flow(first, last, mesh, velocities, points, time, out):
    """φ_time(p), float64; one task is a θ and ``CHUNK`` points.

    Parameters
    ----------
    velocities : (n, nodes, ndim)
    points : (n or 1, m, ndim)
    out : (n, m, ndim)
    """
    n, m, ndim = out.shape
    n_chunks = (m + CHUNK - 1) // CHUNK
    scratch = scratch_space(ndim)
    no_costate, no_gradient = np.empty((0, 0)), np.empty((0, 0, 0))
    for task in range(first, last):
        t, start = task // n_chunks, (task % n_chunks) * CHUNK
        for i in range(start, min(start + CHUNK, m)):
            point = points[t % len(points), i]
            follow(mesh, velocities[t], point, time, scratch, no_costate, no_gradient, out[t, i])


@kernel
def pull_back(first, last, mesh, velocities, ends, time, costates, gradients):
    """Carry cotangents back from the ends of the paths; one task is a θ and a run of points.

    Parameters
    ----------
    velocities : (n, nodes, ndim)
        Of the forward flow, negated.
    ends : (n, m, ndim)
        φ_time(p).
    costates : (n, m, rows, ndim)
        Rows of a cotangent each; overwritten with the derivative by p.
    gradients : (n, chunks, rows, nodes, ndim)
        Zeros on entry; receives the derivatives by the node velocities, one sum for each run of
        ``m / chunks`` points, so that the sums do not depend on the threads. May have no nodes.
    """
    n, m, ndim = ends.shape
    n_chunks = gradients.shape[1]
    size = (m + n_chunks - 1) // n_chunks
    scratch, start = scratch_space(ndim), np.empty(ndim)
    for task in range(first, last):
        t, chunk = task // n_chunks, task % n_chunks
        for i in range(chunk * size, min((chunk + 1) * size, m)):
            follow(
                mesh, velocities[t], ends[t, i], time, scratch,
                costates[t, i], gradients[t, chunk], start,
            )  # fmt: skip
