"""The flow in float32, many points at a time, to a stated tolerance.

``LANES`` paths advance together, each at its own time and in its own cell; a path that ends hands
its lane to the next point. Operations on all lanes are in ``passes``; the change of coordinates at
a face is one, and is the identity for lanes that reach none. Operations on some lanes, such as
lookups and refills, are here. How the tolerance is kept: see :func:`step_lengths`.

``read`` and ``write`` with quantity 0 are plain accesses to a flat array, without numba's check
for negative indices, which costs more than the access itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.compiled import kernel, part
from dreamwarp.core.lanes import LANES, ROW, read, sum_rows, write
from dreamwarp.space.mesh import enter
from dreamwarp.space.passes import (
    ORDER,
    advance,
    advance_cotangent,
    fetch,
    layout,
    rename,
    row_length,
)

# Rounding of a path in float32, before it grows, in the unit domain and per unit of speed: somewhat
# more than the most that was found in 1, 2 and 3 dimensions.
ROUNDING = (2.5e-7, 2e-7, 7e-7)
# Points per task: every task builds the table of its θ, whose cost so many points make negligible.
CHUNK = 4096


@kernel
def step_lengths(first, last, cells, speed, rate, growth, tolerance, lengths, ease):
    """Longest step of each θ for which the series keeps the tolerance; 0 where float32 can't.

    A step of length h leaves out at most |v| h (L h)^p / (p + 1)! of a path, where L bounds |A|.
    What is left out early grows by e^{μ (1 - t)} until the end, where μ bounds the rate at which
    paths part. Summed over the steps that is |v| (L h)^p / (p + 1)! (e^μ - 1) / μ, and h is chosen
    to make it half the tolerance. The other half is for rounding: that of a position, and that of
    the time left, which a path of N crossings gathers like a random walk, ``ROUNDING`` (1 + |v| √N)
    e^μ. If that is too much, the θ is left to the exact flow.

    That is for the worst place of a field. Elsewhere a path knows better: with c the last term of
    its own series over a longer step, it leaves out at most |c| (L h / (p + 1) + ...), where every
    term is less than L / (p + 2) of the one before. ``ease`` receives the |c| that is allowed.
    """
    finest = 0
    for k in range(len(cells)):
        finest = max(finest, cells[k])
    factorial = 1.0
    for k in range(2, ORDER + 2):
        factorial *= k
    for t in range(first, last):
        crossings = 1.0 + 4.0 * finest * speed[t]
        rounding = ROUNDING[len(cells) - 1] * np.exp(growth[t])
        rounding *= 1.0 + speed[t] * np.sqrt(crossings)
        lengths[t], ease[t] = 0.0, 0.0
        if rounding > 0.5 * tolerance:
            continue
        total = np.expm1(growth[t]) / growth[t] if growth[t] > 1e-6 else 1.0
        allowed = 0.5 * tolerance / total
        slowest, steepest = max(speed[t], 1e-30), max(rate[t], 1e-30)
        h = (allowed * factorial / slowest) ** (1.0 / ORDER) / steepest
        lengths[t] = 1.0 / np.ceil(1.0 / h) if h < 1.0 else 1.0
        if rate[t] < ORDER + 2:
            ease[t] = allowed * (ORDER + 1) / steepest * (1.0 - rate[t] / (ORDER + 2))


@kernel
def enter_all(first, last, mesh, points, chosen, regions, weights, turns):
    """Region, ξ and turns round the torus of points; one task is a point of a chosen set.

    Parameters
    ----------
    points : (n, m, ndim), float32 or float64
    chosen : (k,)
        Numbers of the sets to do.
    regions, weights, turns : (k, m), (k, m, ndim), (k, m, ndim) or empty
        Receive what ``walk`` starts from. Turns are all 0 unless the mesh is periodic.
    """
    n, m = len(mesh.cells), points.shape[1]
    local, travelled, all_weights, point = np.empty(n), np.empty(n), np.empty(n + 1), np.empty(n)
    for task in range(first, last):
        source = (chosen[task // m] * m + task % m) * n
        for c in range(n):
            point[c] = read(points, 0, source + c)
        write(regions, 0, task, np.uint32(enter(mesh, point, local, all_weights, travelled)))
        for c in range(n):
            write(weights, 0, task * n + c, np.float32(all_weights[c + 1]))
            if mesh.periodic:
                write(turns, 0, task * n + c, np.float32(travelled[c]))


@part
def fill_table(mesh, velocities, sign, factors, table):
    """Put the affine maps of one field (nodes, ndim) into the rows that ``passes`` reads.

    A row is a sum of the kind's ``columns``, with factors 1 and then velocities times a sign.
    """
    n, kinds = len(mesh.cells), mesh.kinds
    length, n_columns = row_length(n), 1 + (n + 1) * n
    for r in range(len(mesh.regions)):
        kind = read(kinds.of, 0, r)
        write(factors, 0, 0, np.float32(1.0))
        for c in range(n):
            first = sign * read(velocities, 0, read(mesh.regions, 0, r * (n + 1)) * n + c)
            write(factors, 0, 1 + c, np.float32(first))
            for g in range(n):
                node = read(mesh.regions, 0, r * (n + 1) + g + 1)
                more = sign * read(velocities, 0, node * n + c)
                more -= first * read(kinds.finite, 0, kind * n + g)
                write(factors, 0, 1 + (g + 1) * n + c, np.float32(more))
        columns = kind * n_columns * length
        for k in range(0, length, ROW):
            sum_rows(
                factors, 0, kinds.columns, columns + k, length, n_columns, table, r * length + k
            )


class Lanes(NamedTuple):
    """The paths under way, one per lane."""

    work: NDArray[np.float32]  # see passes.Layout
    regions: NDArray[np.uint32]
    rows: NDArray[np.uint32]  # where the region's row starts in the table
    ways: NDArray[np.uint32]  # where the way's row starts in the table of renames
    owners: NDArray[np.uint32]  # the point whose path this is
    turns: NDArray[np.float32]  # (LANES, ndim), turns round the torus
    picked: NDArray[np.uint32]  # lanes to be processed


class Starts(NamedTuple):
    """Where paths begin, one set of points."""

    regions: NDArray[np.uint32]  # (m,)
    weights: NDArray[np.float32]  # (m, ndim), ξ
    turns: NDArray[np.float32]  # (m, ndim), turns round the torus; empty if there is none


class Pull(NamedTuple):
    """Cotangents carried along the paths of one field; all empty if there are none."""

    cotangents: NDArray[np.float64]  # (m, ndim)
    sums: NDArray[np.float64]  # (regions, (ndim + 1) ndim), ∫ η_k z_f dt


@part
def put_position(mesh, lane, lanes, out):
    """Write a lane's position to its owner's row of ``out`` (m, ndim)."""
    n, region, owner = len(mesh.cells), read(lanes.regions, 0, lane), read(lanes.owners, 0, lane)
    at, kind = layout(mesh.cells), read(mesh.kinds.of, 0, region)
    for c in range(n):
        x = read(mesh.origins, 0, region * n + c)
        if mesh.periodic:
            x += read(lanes.turns, 0, lane * n + c)
        for k in range(n):
            edge = read(mesh.kinds.edges, 0, (kind * n + k) * n + c)
            x += read(lanes.work, at.xi + k, lane) * edge
        write(out, 0, owner * n + c, np.float32(x))


@part
def load_cotangent(mesh, lane, lanes, pull):
    """Express the owner's cotangent in the coordinates of the lane's region; clear its sums."""
    n, at, owner = len(mesh.cells), layout(mesh.cells), read(lanes.owners, 0, lane)
    kind = read(mesh.kinds.of, 0, read(lanes.regions, 0, lane))
    for k in range(n):
        eta = 0.0
        for c in range(n):
            edge = read(mesh.kinds.edges, 0, (kind * n + k) * n + c)
            eta += read(pull.cotangents, 0, owner * n + c) * edge
        write(lanes.work, at.eta + k, lane, np.float32(eta))
    for fk in range((n + 1) * n):
        write(lanes.work, at.sums + fk, lane, np.float32(0.0))


@part
def flush_cotangent(mesh, lane, lanes, pull):
    """Write a lane's cotangent to its owner, in the coordinates of points."""
    n, at, owner = len(mesh.cells), layout(mesh.cells), read(lanes.owners, 0, lane)
    kind = read(mesh.kinds.of, 0, read(lanes.regions, 0, lane))
    for c in range(n):
        total = 0.0
        for k in range(n):
            slope = read(mesh.kinds.slopes, 0, (kind * n + k) * n + c)
            total += read(lanes.work, at.eta + k, lane) * slope
        write(pull.cotangents, 0, owner * n + c, total)


@part
def deliver_sums(mesh, lane, lanes, pull):
    """Add a lane's sums to those of its region, and set them to 0."""
    n, at = len(mesh.cells), layout(mesh.cells)
    first = read(lanes.regions, 0, lane) * ((n + 1) * n)
    for fk in range((n + 1) * n):
        total = read(pull.sums, 0, first + fk) + read(lanes.work, at.sums + fk, lane)
        write(pull.sums, 0, first + fk, total)
        write(lanes.work, at.sums + fk, lane, np.float32(0.0))


@part
def renew_cotangent(mesh, lane, way, lanes):
    """Express a lane's cotangent in the coordinates of the region across."""
    n, at = len(mesh.cells), layout(mesh.cells)
    for k in range(n):
        eta = np.float32(0.0)
        for j in range(n):
            entry = read(mesh.kinds.cotangent_maps, 0, (way * n + k) * n + j)
            eta += read(lanes.work, at.eta + j, lane) * entry
        write(lanes.work, at.chosen + k, lane, eta)
    for k in range(n):
        write(lanes.work, at.eta + k, lane, read(lanes.work, at.chosen + k, lane))


@part
def flush_sums(mesh, lanes, active, pull):
    """Before lanes cross a face: deliver sums, renew cotangents, count turns round the torus."""
    n, at = len(mesh.cells), layout(mesh.cells)
    n_picked = 0
    for lane in range(active):  # a list of lanes first, instead of a branch per lane
        write(lanes.picked, 0, n_picked, np.uint32(lane))
        n_picked += read(lanes.work, at.face, lane) >= np.float32(0.0)
    for i in range(n_picked):
        lane = read(lanes.picked, 0, i)
        region, face = read(lanes.regions, 0, lane), int(read(lanes.work, at.face, lane))
        if pull.sums.size > 0:
            deliver_sums(mesh, lane, lanes, pull)
            renew_cotangent(mesh, lane, read(mesh.ways, 0, region * (n + 2) + face + 1), lanes)
        if mesh.periodic:
            for k in range(n):
                lanes.turns[lane, k] += mesh.shift[region, face, k]


@part
def cross_faces(mesh, lanes, active):
    """Move the lanes that have reached a face into the region across it.

    Also lists the lanes whose time is up, and returns their number.
    """
    n, at = len(mesh.cells), layout(mesh.cells)
    n_ended = 0
    for lane in range(active):  # face -1, none, leads to the region itself
        write(lanes.picked, 0, n_ended, np.uint32(lane))
        n_ended += read(lanes.work, at.time, lane) <= np.float32(0.0)
        step = read(lanes.regions, 0, lane) * (n + 2) + int(read(lanes.work, at.face, lane)) + 1
        region = read(mesh.across, 0, step)
        write(lanes.regions, 0, lane, region)
        write(lanes.rows, 0, lane, np.uint32(region * row_length(n)))
        write(lanes.ways, 0, lane, np.uint32(read(mesh.ways, 0, step) * row_length(n)))
    fetch(mesh.cells, mesh.kinds.renames, lanes.ways, at.series, lanes.work)
    rename(mesh.cells, lanes.work)
    return n_ended


@part
def load_lane(mesh, lanes, lane, point, starts, pull):
    """Start a point in a lane, at time 0."""
    n, at = len(mesh.cells), layout(mesh.cells)
    for k in range(n):
        write(lanes.work, at.xi + k, lane, read(starts.weights, 0, point * n + k))
        if mesh.periodic:
            write(lanes.turns, 0, lane * n + k, read(starts.turns, 0, point * n + k))
    region = read(starts.regions, 0, point)
    write(lanes.work, at.time, lane, np.float32(1.0))
    write(lanes.regions, 0, lane, region)
    write(lanes.owners, 0, lane, np.uint32(point))
    write(lanes.rows, 0, lane, np.uint32(region * row_length(n)))
    if pull.sums.size > 0:
        load_cotangent(mesh, lane, lanes, pull)


@part
def move_lane(mesh, lanes, source, target):
    """Move a path from one lane to another."""
    n, at = len(mesh.cells), layout(mesh.cells)
    write(lanes.regions, 0, target, read(lanes.regions, 0, source))
    write(lanes.rows, 0, target, read(lanes.rows, 0, source))
    write(lanes.owners, 0, target, read(lanes.owners, 0, source))
    for k in range(n):
        write(lanes.turns, 0, target * n + k, read(lanes.turns, 0, source * n + k))
    for quantity in range(at.map):
        write(lanes.work, quantity, target, read(lanes.work, quantity, source))


@part
def refill_lanes(mesh, lanes, n_ended, active, point, stop, starts, pull, out):
    """Store ended paths, and start others in their lanes; returns (active, next point)."""
    for i in range(n_ended - 1, -1, -1):
        lane = read(lanes.picked, 0, i)
        if out.size > 0:
            put_position(mesh, lane, lanes, out)
        if pull.sums.size > 0:
            flush_cotangent(mesh, lane, lanes, pull)
            deliver_sums(mesh, lane, lanes, pull)
        if point < stop:
            load_lane(mesh, lanes, lane, point, starts, pull)
            point += 1
        else:  # none waits: the last active lane moves here
            active -= 1
            move_lane(mesh, lanes, active, lane)
    return active, point


@part
def add_sums(mesh, sums, gradient):
    """Turn ∫ η_k z_f dt of every region into derivatives by its nodes' velocities."""
    n = len(mesh.cells)
    for r in range(len(sums)):
        kind = read(mesh.kinds.of, 0, r)
        for f in range(n + 1):
            node = read(mesh.regions, 0, r * (n + 1) + f)
            for c in range(n):
                total = read(gradient, 0, node * n + c)
                for k in range(n):
                    slope = read(mesh.kinds.slopes, 0, (kind * n + k) * n + c)
                    total += read(sums, 0, (r * (n + 1) + f) * n + k) * slope
                write(gradient, 0, node * n + c, total)


@kernel
def walk(
    first, last, mesh, velocities, sign, chosen, starts, lengths, ease, out, cotangents, gradients
):
    """Follow paths for unit time; one task is a chosen θ and ``CHUNK`` points.

    Parameters
    ----------
    velocities : (n, nodes, ndim)
    sign : float
        1 to follow the fields, -1 to follow their reverse.
    chosen : (k,)
        Numbers of the θ to do.
    starts : (k or 1, m), (k or 1, m, ndim), (k or 1, m, ndim) or empty
        Region, ξ and turns round the torus of the points.
    lengths, ease : (n,)
        Longest step of each θ, and what makes it longer; see ``step_lengths``.
    out : (n, m, ndim) or empty
        Receives φ_1(p).
    cotangents : (n, m, ndim) or empty
        Carried along the paths and overwritten; see ``exact.pull_back``.
    gradients : (n, chunks, nodes, ndim) or empty
        Zeros on entry; receives the derivatives by the node velocities, one sum per task.
    """
    cells, n, m = mesh.cells, len(mesh.cells), starts[0].shape[1]
    n_regions, n_chunks = len(mesh.regions), (m + CHUNK - 1) // CHUNK
    table = np.empty(n_regions * row_length(n), np.float32)
    factors = np.empty(1 + (n + 1) * n, np.float32)
    carries = cotangents.size > 0
    sums = np.zeros((n_regions if carries else 0, (n + 1) * n))
    lanes = Lanes(
        np.zeros(layout(cells).size * LANES, np.float32), np.zeros(LANES, np.uint32),
        np.zeros(LANES, np.uint32), np.zeros(LANES, np.uint32), np.zeros(LANES, np.uint32),
        np.zeros((LANES, n), np.float32), np.zeros(LANES, np.uint32),
    )  # fmt: skip
    edge = np.float32(mesh.longest_edge)
    for task in range(first, last):
        k, chunk = task // n_chunks, task % n_chunks
        t, s = chosen[k], k % len(starts[0])
        begin, pull = Starts(starts[0][s], starts[1][s], starts[2][s]), Pull(cotangents[t], sums)
        fill_table(mesh, velocities[t], sign, factors, table)
        sums[:] = 0.0
        longest, easy = np.float32(lengths[t]), np.float32(min(ease[t], 1e30))
        point, stop = chunk * CHUNK, min((chunk + 1) * CHUNK, m)
        active = min(LANES, stop - point)
        for lane in range(active):
            load_lane(mesh, lanes, lane, point, begin, pull)
            point += 1
        while active > 0:
            advance(cells, table, lanes.rows, longest, easy, edge, carries, lanes.work)
            if carries:
                advance_cotangent(cells, lanes.work)
            if carries or mesh.periodic:
                flush_sums(mesh, lanes, active, pull)
            n_ended = cross_faces(mesh, lanes, active)
            active, point = refill_lanes(
                mesh, lanes, n_ended, active, point, stop, begin, pull, out[t]
            )
        if carries:
            add_sums(mesh, sums, gradients[t, chunk])
