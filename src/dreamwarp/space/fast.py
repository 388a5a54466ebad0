"""The flow in float32, many points at a time, to a stated tolerance.

``LANES`` paths advance together, each at its own time and in its own cell; a path that ends hands its
lane to the next point. What all lanes do is in ``passes``; crossings and hand-overs, which only some
do, go lane by lane here. How the tolerance is kept: see :func:`step_lengths`.
"""

from __future__ import annotations

import numpy as np

from dreamwarp.space.compiled import inlined, kernel
from dreamwarp.space.lanes import LANES, read, write
from dreamwarp.space.mesh import enter
from dreamwarp.space.passes import ORDER, advance, advance_cotangent, layout, row_length

# Rounding of a path in float32, before it grows: positions are kept relative to a cell, so this is
# mostly that of the result itself, and of faces found to within a millionth of a cell.
ROUNDING = 3e-7
# Points per task: a task turns θ into a table anew, which this many points make negligible.
CHUNK = 4096


@kernel
def step_lengths(first, last, speed, rate, growth, tolerance, lengths):
    """Longest step of each θ for which the series keeps the tolerance; 0 where float32 can't.

    A step of length h leaves out at most |v| h (L h)^p / (p + 1)! of a path, where L bounds |A|. What is
    left out early grows by e^{μ (1 - t)} until the end, where μ bounds the rate at which paths part.
    Summed over the steps that is |v| (L h)^p / (p + 1)! (e^μ - 1) / μ, and h is chosen to make it half
    the tolerance. The other half is for rounding, ``ROUNDING`` e^μ; if that is too much for it, the θ
    is left to the exact flow.
    """
    factorial = 1.0
    for k in range(2, ORDER + 2):
        factorial *= k
    for t in range(first, last):
        if ROUNDING * np.exp(growth[t]) > 0.5 * tolerance:
            lengths[t] = 0.0
            continue
        total = np.expm1(growth[t]) / growth[t] if growth[t] > 1e-6 else 1.0
        allowed = 0.5 * tolerance * factorial / max(speed[t] * total, 1e-30)
        h = allowed ** (1.0 / ORDER) / max(rate[t], 1e-30)
        lengths[t] = 1.0 / np.ceil(1.0 / h) if h < 1.0 else 1.0


@kernel
def enter_all(first, last, mesh, points, regions, weights, turns):
    """Region, ξ and turns round the torus of points (m, ndim)."""
    ndim = len(mesh.cells)
    local, travelled, all_weights = np.empty(ndim), np.empty(ndim), np.empty(ndim + 1)
    for i in range(first, last):
        regions[i] = enter(mesh, points[i], local, all_weights, travelled)
        for k in range(ndim):
            weights[i, k] = all_weights[k + 1]
            turns[i, k] = travelled[k]


@kernel
def fill_table(mesh, velocities, table):
    """Put the affine maps of one field (nodes, ndim) into the rows that ``passes`` reads."""
    n = len(mesh.cells)
    for r in range(len(mesh.regions)):
        at = r * row_length(n)
        base = mesh.regions[r, 0]
        for k in range(n):
            table[at + k] = mesh.nodes[mesh.regions[r, k + 1], n]
            constant = 0.0
            for c in range(n):
                constant += mesh.weights[r, k + 1, c] * velocities[base, c]
            for j in range(n):
                node = mesh.regions[r, j + 1]
                entry = -mesh.nodes[node, n] * constant
                for c in range(n):
                    entry += mesh.weights[r, k + 1, c] * velocities[node, c]
                table[at + n + k * (n + 1) + j] = entry
            table[at + n + k * (n + 1) + n] = constant


@inlined
def cross(mesh, region, face, lane, work, turns):
    """Rename a lane's weights for the region across a face; returns that region."""
    n = len(mesh.cells)
    at = layout(mesh.cells)
    first = np.float32(1.0)
    for k in range(n):
        x = read(work, at.xi + k, lane)
        first -= read(work, at.row + k, lane) * x
        write(work, at.chosen + k + 1, lane, x)
    write(work, at.chosen, lane, first)
    write(work, at.chosen + face, lane, np.float32(0.0))
    for g in range(n + 1):
        place = mesh.position[region, face, g]
        if place > 0:
            write(work, at.xi + place - 1, lane, read(work, at.chosen + g, lane))
    if mesh.periodic:
        for k in range(n):
            turns[lane, k] += mesh.shift[region, face, k]
    return mesh.neighbor[region, face]


@inlined
def position(mesh, region, lane, work, turns, out):
    """Put where a lane is into ``out``."""
    n = len(mesh.cells)
    at = layout(mesh.cells)
    for c in range(n):
        x = turns[lane, c] + mesh.frames[region, 0, c]
        for k in range(n):
            x += read(work, at.xi + k, lane) * mesh.frames[region, k + 1, c]
        out[c] = x


@inlined
def seat_cotangent(mesh, region, cotangent, lane, work):
    """Express a cotangent (ndim,) in a region's coordinates, and clear the lane's sums."""
    n = len(mesh.cells)
    at = layout(mesh.cells)
    for k in range(n):
        eta = 0.0
        for c in range(n):
            eta += cotangent[c] * mesh.frames[region, k + 1, c]
        write(work, at.eta + k, lane, np.float32(eta))
        for f in range(n + 1):
            write(work, at.sums + f * n + k, lane, np.float32(0.0))


@inlined
def unseat_cotangent(mesh, region, lane, work, gradient, cotangent):
    """Add a lane's sums to ``gradient`` (nodes, ndim) and put its cotangent into ``cotangent``."""
    n = len(mesh.cells)
    at = layout(mesh.cells)
    for c in range(n):
        total = 0.0
        for k in range(n):
            slope = mesh.weights[region, k + 1, c]
            total += read(work, at.eta + k, lane) * slope
            for f in range(n + 1):
                gradient[mesh.regions[region, f], c] += read(work, at.sums + f * n + k, lane) * slope
        cotangent[c] = total


@kernel
def walk(
    first, last, mesh, velocities, chosen, lengths,
    starts, start_weights, start_turns, out, cotangents, gradients,
):  # fmt: skip
    """Follow paths for unit time; one task is a chosen θ and ``CHUNK`` points.

    Parameters
    ----------
    velocities : (n, nodes, ndim)
    chosen : (k,)
        Numbers of the θ to do.
    lengths : (n,)
        Longest step of each θ.
    starts, start_weights, start_turns : (k or 1, m), (k or 1, m, ndim), (k or 1, m, ndim)
        Region, ξ and turns round the torus of the points.
    out : (n, m, ndim)
        Receives φ_1(p).
    cotangents : (n, m, ndim) or empty
        Carried along the paths and overwritten; see ``exact.pull_back``.
    gradients : (n, chunks, nodes, ndim) or empty
        Zeros on entry; receives the derivatives by the node velocities, one sum per task.
    """
    n, m, cells = len(mesh.cells), out.shape[1], mesh.cells
    at, row, pulling = layout(mesh.cells), row_length(n), cotangents.size > 0
    n_chunks = (m + CHUNK - 1) // CHUNK
    table = np.empty(len(mesh.regions) * row, np.float32)
    work = np.zeros(at.size * LANES, np.float32)
    regions, owners = np.zeros(LANES, np.int64), np.zeros(LANES, np.int64)
    rows, turns = np.zeros(LANES, np.uint32), np.zeros((LANES, n), np.float32)
    cotangent = np.zeros(n)
    for task in range(first, last):
        t, chunk = chosen[task // n_chunks], task % n_chunks
        s, point, stop = task // n_chunks % len(starts), chunk * CHUNK, min((chunk + 1) * CHUNK, m)
        fill_table(mesh, velocities[t], table)
        active = 0
        while True:
            lane = 0
            while lane < active:
                face = read(work, at.face, lane)
                crossing = face >= np.float32(0.0)
                ended = read(work, at.time, lane) <= np.float32(0.0)
                if pulling and (crossing or ended):
                    into = gradients[t, chunk]
                    unseat_cotangent(mesh, regions[lane], lane, work, into, cotangent)
                if crossing:
                    regions[lane] = cross(mesh, regions[lane], int(face), lane, work, turns)
                    rows[lane] = regions[lane] * row
                    if pulling:
                        seat_cotangent(mesh, regions[lane], cotangent, lane, work)
                if not ended:
                    lane += 1
                    continue
                position(mesh, regions[lane], lane, work, turns, out[t, owners[lane]])
                if pulling:
                    for k in range(n):
                        cotangents[t, owners[lane], k] = cotangent[k]
                active -= 1  # the last lane moves up
                regions[lane], rows[lane] = regions[active], rows[active]
                owners[lane] = owners[active]
                for k in range(n):
                    turns[lane, k] = turns[active, k]
                for k in range(0 if pulling else at.xi, at.map):
                    write(work, k, lane, read(work, k, active))
            while active < LANES and point < stop:
                for k in range(n):
                    write(work, at.xi + k, active, start_weights[s, point, k])
                    turns[active, k] = start_turns[s, point, k]
                write(work, at.time, active, np.float32(1.0))
                regions[active], owners[active] = starts[s, point], point
                rows[active] = regions[active] * row
                if pulling:
                    seat_cotangent(mesh, regions[active], cotangents[t, point], active, work)
                active += 1
                point += 1
            if active == 0:
                break
            advance(cells, table, rows, np.float32(lengths[t]), active, work)
            if pulling:
                advance_cotangent(cells, active, work)
