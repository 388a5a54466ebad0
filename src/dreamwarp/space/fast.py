"""The flow in float32, many points at a time, to a stated tolerance.

``LANES`` paths advance together, each at its own time and in its own cell; a path that ends hands
its lane to the next point. What all lanes do is in ``passes``; crossings and hand-overs, which only
some do, go lane by lane here. How the tolerance is kept: see :func:`step_lengths`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.space.compiled import kernel, part
from dreamwarp.space.lanes import LANES, read, write
from dreamwarp.space.mesh import enter
from dreamwarp.space.passes import ORDER, advance, advance_cotangent, layout, row_length

# Rounding of a path in float32, before it grows, in the unit domain and per unit of speed.
ROUNDING = 2e-7
# Points per task: a task turns θ into a table anew, which this many points make negligible.
CHUNK = 4096


@kernel
def step_lengths(first, last, cells, speed, rate, growth, tolerance, lengths):
    """Longest step of each θ for which the series keeps the tolerance; 0 where float32 can't.

    A step of length h leaves out at most |v| h (L h)^p / (p + 1)! of a path, where L bounds |A|.
    What is left out early grows by e^{μ (1 - t)} until the end, where μ bounds the rate at which
    paths part. Summed over the steps that is |v| (L h)^p / (p + 1)! (e^μ - 1) / μ, and h is chosen
    to make it half the tolerance. The other half is for rounding: that of a position, and that of
    the time left, which a path of N crossings gathers like a random walk, ``ROUNDING`` (1 + |v| √N)
    e^μ. If that is too much, the θ is left to the exact flow.
    """
    finest = 0
    for k in range(len(cells)):
        finest = max(finest, cells[k])
    factorial = 1.0
    for k in range(2, ORDER + 2):
        factorial *= k
    for t in range(first, last):
        crossings = 1.0 + 4.0 * finest * speed[t]
        rounding = ROUNDING * (1.0 + speed[t] * np.sqrt(crossings)) * np.exp(growth[t])
        if rounding > 0.5 * tolerance:
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
    point = np.empty(ndim)
    for i in range(first, last):
        for k in range(ndim):
            point[k] = points[i, k]
        regions[i] = enter(mesh, point, local, all_weights, travelled)
        for k in range(ndim):
            weights[i, k] = all_weights[k + 1]
            turns[i, k] = travelled[k]


@part
def fill_table(cells, regions, kinds, velocities, table):
    """Put the affine maps of one field (nodes, ndim) into the rows that ``passes`` reads."""
    n = len(cells)
    for r in range(len(regions)):
        kind, at = kinds.of[r], r * row_length(n)
        for k in range(n):
            constant = 0.0
            for c in range(n):
                constant += kinds.slopes[kind, k, c] * velocities[regions[r, 0], c]
            for j in range(n):
                entry = -kinds.finite[kind, j] * constant
                for c in range(n):
                    entry += kinds.slopes[kind, k, c] * velocities[regions[r, j + 1], c]
                table[at + n + k * (n + 1) + j] = entry
            table[at + n + k * (n + 1) + n] = constant
            table[at + k] = kinds.finite[kind, k]


class Lanes(NamedTuple):
    """The paths under way, one per lane."""

    work: NDArray[np.float32]  # see passes.Layout
    regions: NDArray[np.int64]
    rows: NDArray[np.uint32]  # where the region's row starts in the table
    owners: NDArray[np.int64]  # the point whose path this is
    turns: NDArray[np.float32]  # (LANES, ndim), turns round the torus
    picked: NDArray[np.int64]  # lanes that something is to be done with


class Pull(NamedTuple):
    """Cotangents carried along the paths; all empty if there are none."""

    cotangents: NDArray[np.float64]  # (n, m, ndim)
    sums: NDArray[np.float64]  # (regions, (ndim + 1) ndim), ∫ η_k z_f dt


@part
def rename(cells, kinds, kind, face, lane, work):
    """Give a lane the weights of the region across a face; see ``exact.cross``."""
    n = len(cells)
    at = layout(cells)
    first = np.float32(1.0)
    for k in range(n):
        x = read(work, at.xi + k, lane)
        first -= read(work, at.row + k, lane) * x
        write(work, at.chosen + k + 1, lane, x)
    write(work, at.chosen, lane, first)
    left = read(work, at.chosen + face, lane)
    write(work, at.chosen + face, lane, np.float32(0.0))
    for g in range(n + 1):  # the weight of the first node goes to ``spare``, just before ξ
        x = read(work, at.chosen + g, lane) + kinds.fold[kind, face, g] * left
        write(work, at.spare + kinds.position[kind, face, g], lane, x)


@part
def put_position(cells, kinds, origins, region, lane, lanes, out, t):
    """Put where a lane is into its owner's place in ``out``."""
    n, kind = len(cells), kinds.of[region]
    at = layout(cells)
    for c in range(n):
        x = lanes.turns[lane, c] + origins[region, c]
        for k in range(n):
            x += read(lanes.work, at.xi + k, lane) * kinds.edges[kind, k, c]
        out[t, lanes.owners[lane], c] = x


@part
def seat_cotangent(cells, kinds, kind, lane, lanes, pull, t):
    """Express the owner's cotangent in a region's coordinates, and clear the lane's sums."""
    n = len(cells)
    at = layout(cells)
    for k in range(n):
        eta = 0.0
        for c in range(n):
            eta += pull.cotangents[t, lanes.owners[lane], c] * kinds.edges[kind, k, c]
        write(lanes.work, at.eta + k, lane, np.float32(eta))
        for f in range(n + 1):
            write(lanes.work, at.sums + f * n + k, lane, np.float32(0.0))


@part
def unseat_cotangent(cells, kinds, region, lane, lanes, pull, t):
    """The way back: the owner's cotangent, and the lane's sums added to those of its region."""
    n = len(cells)
    at = layout(cells)
    for c in range(n):
        total = 0.0
        for k in range(n):
            total += read(lanes.work, at.eta + k, lane) * kinds.slopes[kinds.of[region], k, c]
        pull.cotangents[t, lanes.owners[lane], c] = total
    for fk in range((n + 1) * n):
        pull.sums[region, fk] += read(lanes.work, at.sums + fk, lane)


@part
def cross_faces(mesh, lanes, active, pull, t):
    """Move the lanes that have reached a face into the region across it."""
    cells, kinds, at = mesh.cells, mesh.kinds, layout(mesh.cells)
    n_picked = 0
    for lane in range(active):  # picking first spares the processor a guess per lane
        lanes.picked[n_picked] = lane
        n_picked += read(lanes.work, at.face, lane) >= np.float32(0.0)
    for i in range(n_picked):
        lane = lanes.picked[i]
        region, face = lanes.regions[lane], int(read(lanes.work, at.face, lane))
        across = mesh.neighbor[region, face]
        rename(cells, kinds, kinds.of[region], face, lane, lanes.work)
        if pull.sums.size > 0:
            unseat_cotangent(cells, kinds, region, lane, lanes, pull, t)
            seat_cotangent(cells, kinds, kinds.of[across], lane, lanes, pull, t)
        if mesh.periodic:
            for k in range(len(cells)):
                lanes.turns[lane, k] += mesh.shift[region, face, k]
        lanes.regions[lane] = across
        lanes.rows[lane] = across * row_length(len(cells))


@part
def take_seats(mesh, lanes, lane, last, points, starts, s, pull, t):
    """Put points, counted from ``points`` on, into lanes from ``lane`` on, before ``last``."""
    cells, at = mesh.cells, layout(mesh.cells)
    regions, weights, turns = starts
    for point in range(points, points + last - lane):
        for k in range(len(cells)):
            write(lanes.work, at.xi + k, lane, weights[s, point, k])
            lanes.turns[lane, k] = turns[s, point, k]
        write(lanes.work, at.time, lane, np.float32(1.0))
        lanes.regions[lane], lanes.owners[lane] = regions[s, point], point
        lanes.rows[lane] = regions[s, point] * row_length(len(cells))
        if pull.sums.size > 0:
            kind = mesh.kinds.of[lanes.regions[lane]]
            seat_cotangent(cells, mesh.kinds, kind, lane, lanes, pull, t)
        lane += 1


@part
def hand_over(mesh, lanes, active, point, stop, starts, s, pull, t, out):
    """Let out the paths that have ended, and points that wait in; returns (active, next point)."""
    cells, at = mesh.cells, layout(mesh.cells)
    n_picked = 0
    for lane in range(active):
        lanes.picked[n_picked] = lane
        n_picked += read(lanes.work, at.time, lane) <= np.float32(0.0)
    for i in range(n_picked - 1, -1, -1):
        lane, region = lanes.picked[i], lanes.regions[lanes.picked[i]]
        put_position(cells, mesh.kinds, mesh.origins, region, lane, lanes, out, t)
        if pull.sums.size > 0:
            unseat_cotangent(cells, mesh.kinds, region, lane, lanes, pull, t)
        if point < stop:
            take_seats(mesh, lanes, lane, lane + 1, point, starts, s, pull, t)
            point += 1
            continue
        active -= 1  # nobody waits: the last lane moves up
        lanes.regions[lane], lanes.rows[lane] = lanes.regions[active], lanes.rows[active]
        lanes.owners[lane] = lanes.owners[active]
        for k in range(len(cells)):
            lanes.turns[lane, k] = lanes.turns[active, k]
        for quantity in range(at.map):
            write(lanes.work, quantity, lane, read(lanes.work, quantity, active))
    return active, point


@part
def add_sums(cells, regions, kinds, sums, gradient):
    """Turn ∫ η_k z_f dt of every region into derivatives by its nodes' velocities."""
    n = len(cells)
    for r in range(len(sums)):
        for f in range(n + 1):
            for c in range(n):
                for k in range(n):
                    slope = kinds.slopes[kinds.of[r], k, c]
                    gradient[regions[r, f], c] += sums[r, f * n + k] * slope


@kernel
def walk(first, last, mesh, velocities, chosen, lengths, starts, out, cotangents, gradients):
    """Follow paths for unit time; one task is a chosen θ and ``CHUNK`` points.

    Parameters
    ----------
    velocities : (n, nodes, ndim)
    chosen : (k,)
        Numbers of the θ to do.
    lengths : (n,)
        Longest step of each θ.
    starts : (k or 1, m), (k or 1, m, ndim), (k or 1, m, ndim)
        Region, ξ and turns round the torus of the points.
    out : (n, m, ndim)
        Receives φ_1(p).
    cotangents : (n, m, ndim) or empty
        Carried along the paths and overwritten; see ``exact.pull_back``.
    gradients : (n, chunks, nodes, ndim) or empty
        Zeros on entry; receives the derivatives by the node velocities, one sum per task.
    """
    cells, n, m = mesh.cells, len(mesh.cells), out.shape[1]
    n_regions, n_chunks = len(mesh.regions), (m + CHUNK - 1) // CHUNK
    table = np.empty(n_regions * row_length(n), np.float32)
    pull = Pull(cotangents, np.zeros((n_regions if cotangents.size > 0 else 0, (n + 1) * n)))
    lanes = Lanes(
        np.zeros(layout(mesh.cells).size * LANES, np.float32), np.zeros(LANES, np.int64),
        np.zeros(LANES, np.uint32), np.zeros(LANES, np.int64),
        np.zeros((LANES, n), np.float32), np.zeros(LANES, np.int64),
    )  # fmt: skip
    for task in range(first, last):
        k, chunk = task // n_chunks, task % n_chunks
        t, s, stop = chosen[k], k % len(starts[0]), min((chunk + 1) * CHUNK, m)
        fill_table(cells, mesh.regions, mesh.kinds, velocities[t], table)
        pull.sums[:] = 0.0
        active = min(LANES, stop - chunk * CHUNK)
        point = chunk * CHUNK + active
        take_seats(mesh, lanes, 0, active, chunk * CHUNK, starts, s, pull, t)
        while active > 0:
            advance(cells, table, lanes.rows, np.float32(lengths[t]), active, lanes.work)
            if cotangents.size > 0:
                advance_cotangent(cells, active, lanes.work)
            cross_faces(mesh, lanes, active, pull, t)
            active, point = hand_over(mesh, lanes, active, point, stop, starts, s, pull, t, out)
        if cotangents.size > 0:
            add_sums(cells, mesh.regions, mesh.kinds, pull.sums, gradients[t, chunk])
