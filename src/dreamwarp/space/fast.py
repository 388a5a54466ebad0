"""The flow in float32, many points at a time, to a stated tolerance.

``LANES`` paths advance together, each at its own time and in its own cell. When a path ends, its
lane takes the next point. Operations on all lanes are in ``passes``; operations on some lanes, such
as lookups and refills, are here. :func:`step_lengths` explains how the tolerance is kept.

There is one walk, :func:`follow`. Its arguments choose what it records, and unused ones are empty:
end points (:class:`Ends`), and integrals of cotangents (:class:`Pull`), summed over all paths of a
region or logged path by path.

``read`` and ``write`` with quantity 0 access a flat array without numba's check for negative
indices, which costs more than the access itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.compiled import inlined, kernel, part
from dreamwarp.core.lanes import LANES, ROW, read, sum_rows, write
from dreamwarp.space.mesh import enter
from dreamwarp.space.passes import (
    ORDER,
    advance,
    advance_cotangent,
    change_coordinates,
    fetch,
    layout,
    row_length,
)

# Coefficients of the rounding error in ``step_lengths``, for 1, 2 and 3 axes: slightly above the
# largest error measured.
ROUNDING = (2.5e-7, 2e-7, 7e-7)
# Points per task. Each task builds the table of its θ; for this many points its cost is negligible.
CHUNK = 4096


@kernel
def step_lengths(first, last, cells, speed, rate, growth, tolerance, lengths, ease):
    """Longest step of each θ for which the series keeps the tolerance; 0 if float32 can't keep it.

    The remainder of a step of length h is at most |v| h (L h)^p / (p + 1)!, where L bounds |A|. It
    grows by e^{μ (1 - t)} until the end, where μ bounds the rate at which paths diverge. The sum
    over all steps is |v| (L h)^p / (p + 1)! (e^μ - 1) / μ; h makes it half the tolerance. The other
    half is for rounding of the position and of the time left, which accumulates over N crossings
    like a random walk: ``ROUNDING`` (1 + |v| √N) e^μ. If that exceeds half the tolerance, the exact
    flow is used for θ.

    These are worst-case bounds for a field. A path may take a longer step if the last term c of its
    own series is small: its remainder is at most |c| (L h / (p + 1) + ...), where each term is less
    than L / (p + 2) of the one before. ``ease`` receives the largest |c| allowed.
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
    """Region, ξ and number of turns round the torus of points; one task is a point.

    Parameters
    ----------
    points : (n, m, ndim), float32 or float64
    chosen : (k,)
        Indices of the point sets to process.
    regions, weights, turns : (k, m), (k, m, ndim), (k, m, ndim) or empty
        Output; see ``Starts``. Turns are written only if the mesh is periodic.
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


@inlined
def make_table(mesh):
    """Arrays for ``fill_table``: the table and its scratch space."""
    n = len(mesh.cells)
    table = np.empty(len(mesh.regions) * row_length(n), np.float32)
    return table, np.empty(1 + (n + 1) * n, np.float32)


@part
def fill_table(mesh, velocities, sign, factors, table):
    """Write the affine maps of one field (nodes, ndim) to the table rows that ``passes`` reads.

    A row is a sum of the kind's ``columns``, with factors 1 and the velocities times ``sign``.
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


class Field(NamedTuple):
    """A velocity field to follow."""

    table: NDArray[np.float32]  # see fill_table
    longest: np.float32  # see step_lengths
    ease: np.float32


class Lanes(NamedTuple):
    """The paths in progress, one per lane."""

    work: NDArray[np.float32]  # see passes.Layout
    regions: NDArray[np.uint32]
    rows: NDArray[np.uint32]  # offset of the region's row in the table
    ways: NDArray[np.uint32]  # offset of the way's row in kinds.renames
    owners: NDArray[np.uint32]  # index of the path's point
    turns: NDArray[np.float32]  # (LANES, ndim), turns round the torus
    picked: NDArray[np.uint32]  # list of lanes to process


class Starts(NamedTuple):
    """Start of each path. For several sets of points, arrays have one more axis, the first."""

    regions: NDArray[np.uint32]  # (m,)
    weights: NDArray[np.float32]  # (m, ndim), ξ
    turns: NDArray[np.float32]  # (m, ndim), turns round the torus; unused unless periodic


class Ends(NamedTuple):
    """Output: end of each path. Either part may be empty."""

    positions: NDArray[np.float32]  # (m, ndim)
    regions: NDArray[np.uint32]  # (m,)
    weights: NDArray[np.float32]  # (m, ndim), ξ


class Log(NamedTuple):
    """Integrals ∫ η_k z_f dt of single paths: one entry per path and region on its way."""

    regions: NDArray[np.uint32]  # (capacity,)
    sums: NDArray[np.float32]  # (capacity, (ndim + 1) ndim)
    before: NDArray[np.int32]  # (capacity,), previous entry of the same path, or -1
    last: NDArray[np.int32]  # (m,), last entry of each path, or -1
    n_entries: NDArray[np.int64]  # (1,), entries made; those past the capacity are lost


class Pull(NamedTuple):
    """Cotangents to carry along the paths of one field; all empty if there are none."""

    cotangents: NDArray[np.float64]  # (m, ndim), overwritten
    sums: NDArray[np.float64]  # (regions, (ndim + 1) ndim), ∫ η_k z_f dt over all paths; or empty
    log: Log  # used if there are no sums


@inlined
def make_lanes(mesh):
    """Empty lanes."""
    n = len(mesh.cells)
    return Lanes(
        np.zeros(layout(mesh.cells).size * LANES, np.float32), np.zeros(LANES, np.uint32),
        np.zeros(LANES, np.uint32), np.zeros(LANES, np.uint32), np.zeros(LANES, np.uint32),
        np.zeros((LANES, n), np.float32), np.zeros(LANES, np.uint32),
    )  # fmt: skip


@inlined
def make_log(ndim, capacity, n_paths):
    """An empty log."""
    return Log(
        np.empty(capacity, np.uint32), np.empty((capacity, (ndim + 1) * ndim), np.float32),
        np.empty(capacity, np.int32), np.full(n_paths, -1, np.int32), np.zeros(1, np.int64),
    )  # fmt: skip


@part
def store_end(mesh, lane, lanes, ends):
    """Store where the path of a lane has ended."""
    n, region, owner = len(mesh.cells), read(lanes.regions, 0, lane), read(lanes.owners, 0, lane)
    at, kind = layout(mesh.cells), read(mesh.kinds.of, 0, region)
    if ends.positions.size > 0:
        for c in range(n):
            x = read(mesh.origins, 0, region * n + c)
            if mesh.periodic:
                x += read(lanes.turns, 0, lane * n + c)
            for k in range(n):
                edge = read(mesh.kinds.edges, 0, (kind * n + k) * n + c)
                x += read(lanes.work, at.xi + k, lane) * edge
            write(ends.positions, 0, owner * n + c, np.float32(x))
    if ends.regions.size > 0:
        write(ends.regions, 0, owner, region)
        for k in range(n):
            write(ends.weights, 0, owner * n + k, read(lanes.work, at.xi + k, lane))


@part
def load_cotangent(mesh, lane, lanes, cotangents):
    """Load the cotangent of a lane's path, in the coordinates of the lane's region.

    Set the lane's sums to 0.
    """
    n, at, owner = len(mesh.cells), layout(mesh.cells), read(lanes.owners, 0, lane)
    kind = read(mesh.kinds.of, 0, read(lanes.regions, 0, lane))
    for k in range(n):
        eta = 0.0
        for c in range(n):
            edge = read(mesh.kinds.edges, 0, (kind * n + k) * n + c)
            eta += read(cotangents, 0, owner * n + c) * edge
        write(lanes.work, at.eta + k, lane, np.float32(eta))
    for fk in range((n + 1) * n):
        write(lanes.work, at.sums + fk, lane, np.float32(0.0))


@part
def store_cotangent(mesh, lane, lanes, cotangents):
    """Write a lane's cotangent to its owner, in the coordinates of points."""
    n, at, owner = len(mesh.cells), layout(mesh.cells), read(lanes.owners, 0, lane)
    kind = read(mesh.kinds.of, 0, read(lanes.regions, 0, lane))
    for c in range(n):
        total = 0.0
        for k in range(n):
            slope = read(mesh.kinds.slopes, 0, (kind * n + k) * n + c)
            total += read(lanes.work, at.eta + k, lane) * slope
        write(cotangents, 0, owner * n + c, total)


@part
def add_to_region(mesh, lane, lanes, sums):
    """Add a lane's sums to those of its region; then set the lane's sums to 0."""
    n, at = len(mesh.cells), layout(mesh.cells)
    first = read(lanes.regions, 0, lane) * ((n + 1) * n)
    for fk in range((n + 1) * n):
        total = read(sums, 0, first + fk) + read(lanes.work, at.sums + fk, lane)
        write(sums, 0, first + fk, total)
        write(lanes.work, at.sums + fk, lane, np.float32(0.0))


@part
def add_to_log(mesh, lane, lanes, log):
    """Log a lane's sums; then set them to 0."""
    n, at, path = len(mesh.cells), layout(mesh.cells), read(lanes.owners, 0, lane)
    entry, size = read(log.n_entries, 0, 0), (n + 1) * n
    write(log.n_entries, 0, 0, entry + 1)
    if entry < len(log.regions):
        write(log.regions, 0, entry, read(lanes.regions, 0, lane))
        write(log.before, 0, entry, read(log.last, 0, path))
        write(log.last, 0, path, np.int32(entry))
        for fk in range(size):
            write(log.sums, 0, entry * size + fk, read(lanes.work, at.sums + fk, lane))
    for fk in range(size):
        write(lanes.work, at.sums + fk, lane, np.float32(0.0))


@inlined
def record_sums(mesh, lane, lanes, pull):
    """Add a lane's sums to those of its region, or log them; then set the lane's sums to 0."""
    if pull.sums.size > 0:
        add_to_region(mesh, lane, lanes, pull.sums)
    else:
        add_to_log(mesh, lane, lanes, pull.log)


@part
def rename_cotangent(mesh, lane, way, lanes):
    """Express a lane's cotangent in the coordinates of the region across the face."""
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
def prepare_crossings(mesh, lanes, active, carries, pull):
    """Before lanes cross a face: record sums, rename cotangents, count turns round the torus."""
    n, at = len(mesh.cells), layout(mesh.cells)
    n_picked = 0
    for lane in range(active):  # a list of lanes first, instead of a branch per lane
        write(lanes.picked, 0, n_picked, np.uint32(lane))
        n_picked += read(lanes.work, at.face, lane) >= np.float32(0.0)
    for i in range(n_picked):
        lane = read(lanes.picked, 0, i)
        region, face = read(lanes.regions, 0, lane), int(read(lanes.work, at.face, lane))
        if carries:
            record_sums(mesh, lane, lanes, pull)
            rename_cotangent(mesh, lane, read(mesh.ways, 0, region * (n + 2) + face + 1), lanes)
        if mesh.periodic:
            for k in range(n):
                lanes.turns[lane, k] += mesh.shift[region, face, k]


@part
def cross_faces(mesh, lanes, active):
    """Move the lanes that have reached a face into the region across it.

    Lists the lanes whose time is up and returns their number.
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
    change_coordinates(mesh.cells, lanes.work)
    return n_ended


@part
def load_lane(mesh, lanes, lane, point, starts, carries, pull):
    """Start the path of a point in a lane, at time 0."""
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
    if carries:
        load_cotangent(mesh, lane, lanes, pull.cotangents)


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
def refill_lanes(mesh, lanes, n_ended, active, point, stop, starts, ends, carries, pull):
    """Store ended paths and start others in their lanes; returns (active, next point)."""
    for i in range(n_ended - 1, -1, -1):
        lane = read(lanes.picked, 0, i)
        store_end(mesh, lane, lanes, ends)
        if carries:
            store_cotangent(mesh, lane, lanes, pull.cotangents)
            record_sums(mesh, lane, lanes, pull)
        if point < stop:
            load_lane(mesh, lanes, lane, point, starts, carries, pull)
            point += 1
        else:  # no point is left: the last active lane moves here
            active -= 1
            move_lane(mesh, lanes, active, lane)
    return active, point


@part
def follow(mesh, field, lanes, starts, point, stop, ends, pull):
    """Follow the paths of the points from ``point`` to ``stop`` for unit time.

    ``lanes`` is scratch space; ``ends`` and ``pull`` receive the results.
    """
    carries, edge = pull.cotangents.size > 0, np.float32(mesh.longest_edge)
    active = min(LANES, stop - point)
    for lane in range(active):
        load_lane(mesh, lanes, lane, point, starts, carries, pull)
        point += 1
    while active > 0:
        advance(
            mesh.cells, field.table, lanes.rows, field.longest, field.ease, edge, carries,
            lanes.work,
        )  # fmt: skip
        if carries:
            advance_cotangent(mesh.cells, lanes.work)
        if carries or mesh.periodic:
            prepare_crossings(mesh, lanes, active, carries, pull)
        n_ended = cross_faces(mesh, lanes, active)
        active, point = refill_lanes(
            mesh, lanes, n_ended, active, point, stop, starts, ends, carries, pull
        )


@part
def add_sums(mesh, sums, gradient):
    """Convert ∫ η_k z_f dt of every region to derivatives with respect to node velocities."""
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
    sign : float
        1 to follow the fields, -1 to follow them backwards.
    chosen : (k,)
        Indices of the θ to process.
    starts : Starts
        Of k sets of points, or of one.
    lengths, ease : (n,)
        See ``step_lengths``.
    velocities, out, cotangents, gradients
        As for ``exact.follow_all``, without rows; the last three may be empty.
    """
    n, m = len(mesh.cells), starts.regions.shape[1]
    n_chunks = (m + CHUNK - 1) // CHUNK
    (table, factors), lanes, log = make_table(mesh), make_lanes(mesh), make_log(n, 0, 0)
    carries = cotangents.size > 0
    sums = np.zeros((len(mesh.regions) if carries else 0, (n + 1) * n))
    no_regions, no_weights = np.empty(0, np.uint32), np.empty((0, n), np.float32)
    for task in range(first, last):
        k, chunk = task // n_chunks, task % n_chunks
        t, s = chosen[k], k % len(starts.regions)
        fill_table(mesh, velocities[t], sign, factors, table)
        sums[:] = 0.0
        follow(
            mesh, Field(table, np.float32(lengths[t]), np.float32(min(ease[t], 1e30))), lanes,
            Starts(starts.regions[s], starts.weights[s], starts.turns[s]), chunk * CHUNK,
            min((chunk + 1) * CHUNK, m), Ends(out[t], no_regions, no_weights),
            Pull(cotangents[t], sums, log),
        )  # fmt: skip
        if carries:
            add_sums(mesh, sums, gradients[t, chunk])
