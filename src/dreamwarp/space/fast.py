"""The flow in float32, many points at a time, to a stated tolerance.

The method is that of ``exact``: walk the mesh from cell to cell by power series and true crossing times.
What differs is how it is laid out. ``LANES`` paths advance together, each at its own time and in its
own cell; a path that ends hands its lane to the next point. All arithmetic is loops over lanes that
the compiler turns into vector instructions; only crossings and hand-overs go lane by lane.

A lane's state is ξ, the weights of its region's nodes but the first, whose weight is 1 - w·ξ (w_k = 1,
or 0 for a direction). A row of the table that θ is turned into holds, for one region, the affine map
[A | b] of ξ' = A ξ + b, row-major, and then w.

How the tolerance is kept: see :func:`step_lengths`.
"""

from __future__ import annotations

import numpy as np

from dreamwarp.space.compiled import inlined, kernel, lane_kernel
from dreamwarp.space.lanes import LANES, ROW, read, transpose_rows, write
from dreamwarp.space.mesh import enter

# Order of the power series: high enough that a warp of natural strength takes one step per cell.
ORDER = 7
# A path counts as beyond a face when its weight is below this; ten times float32 rounding.
SLACK = np.float32(1e-6)

# Rounding of a path in float32, before it grows: positions are kept relative to a cell, so this is
# mostly that of the result itself, and of faces found to within SLACK of a cell.
ROUNDING = 3e-7
# Points per task.
CHUNK = 4096

_NEVER = np.float32(1e30)
_TINY = np.float32(1e-30)


@inlined
def row_length(ndim):
    """Numbers per table row: ndim (ndim + 1) of the map and ndim of w, filled up to whole vectors."""
    return ROW * ((ndim * (ndim + 2) + ROW - 1) // ROW)


@inlined
def layout(cells):
    """Where quantities stand in the work array, in rows of ``LANES``.

    ξ (ndim rows), time left, step, table row, series (coefficient by coefficient, all weights), then
    the face, the time and the latest safe time of the next crossing, then that face's series
    and the bound on its curvature.
    Returns the offsets and the number of rows.
    """
    n = len(cells)
    time_left, step, row = n, n + 1, n + 2
    series = row + row_length(n)
    face = series + (ORDER + 1) * (n + 1)
    chosen = face + 3
    return time_left, step, row, series, face, chosen, chosen + ORDER + 2


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


@inlined
def region_rows(mesh, velocities, table):
    """Fill a table (regions * row,) with the affine maps of one field."""
    n = len(mesh.cells)
    row = row_length(n)
    for r in range(len(mesh.regions)):
        base = mesh.regions[r, 0]
        for k in range(n):
            at = r * row + k * (n + 1)
            constant = 0.0
            for c in range(n):
                constant += mesh.weights[r, k + 1, c] * velocities[base, c]
            for j in range(n):
                node = mesh.regions[r, j + 1]
                entry = -mesh.nodes[node, n] * constant
                for c in range(n):
                    entry += mesh.weights[r, k + 1, c] * velocities[node, c]
                table[at + j] = entry
            table[at + n] = constant
            table[r * row + n * (n + 1) + k] = mesh.nodes[mesh.regions[r, k + 1], n]


@lane_kernel
def fetch(cells, table, rows, active, work, target):
    for lane in range(0, active, ROW):
        transpose_rows(table, rows, lane, work, target)
        if len(cells) == 3:
            transpose_rows(table[ROW:], rows, lane, work, target + ROW * LANES)


@lane_kernel
def expand(cells, active, longest, work):
    """Coefficients of every weight's series, face by face, and this step's length."""
    n = len(cells)
    X, (T, H, M, S, _, _, _) = 0, layout(cells)
    one, zero = np.float32(1.0), np.float32(0.0)
    for i in range(active):
        write(work, H, i, min(read(work, T, i), longest))
        total = one
        for k in range(n):
            w = read(work, M + n * (n + 1) + k, i)
            x = read(work, X + k, i)
            total -= w * x
            write(work, S + k + 1, i, x)
            speed = read(work, M + k * (n + 1) + n, i)
            for j in range(n):
                speed += read(work, M + k * (n + 1) + j, i) * read(work, X + j, i)
            write(work, S + n + 1 + k + 1, i, speed)
        write(work, S, i, total)
        for p in range(2, ORDER + 1):
            scale = one / np.float32(p)
            for k in range(n):
                entry = zero
                for j in range(n):
                    entry += (
                        read(work, M + k * (n + 1) + j, i)
                        * read(work, S + (p - 1) * (n + 1) + j + 1, i)
                    )
                write(work, S + p * (n + 1) + k + 1, i, entry * scale)
        for p in range(1, ORDER + 1):
            total = zero
            for k in range(n):
                total -= (
                    read(work, M + n * (n + 1) + k, i)
                    * read(work, S + p * (n + 1) + k + 1, i)
                )
            write(work, S + p * (n + 1), i, total)


@lane_kernel
def lowest_root(value, slope, bend):
    """First t > 0 with value + slope t - bend t² = 0, for value >= 0; ``_NEVER`` if none."""
    zero, two, four = np.float32(0.0), np.float32(2.0), np.float32(4.0)
    inside = slope * slope + four * value * bend
    root = np.sqrt(max(inside, zero))
    falling = slope < zero
    above = two * value if falling else slope + root
    below = root - slope if falling else two * bend
    exists = bend > zero or (falling and inside >= zero)
    return above / max(below, _TINY) if exists else _NEVER


@lane_kernel
def find_faces(cells, active, work):
    """For every lane the face it may reach first, and times before which it reaches none.

    A weight's series is bounded below by the parabola that takes every term past the second at its
    worst, so no face is reached before the parabola's root.
    """
    n = len(cells)
    _, H, _, S, F, _, _ = layout(cells)
    for i in range(active):
        h = read(work, H, i)
        first, second, face = _NEVER, _NEVER, np.float32(0.0)
        for f in range(n + 1):
            rest = np.float32(0.0)
            for p in range(ORDER, 2, -1):
                rest = (rest + abs(read(work, S + p * (n + 1) + f, i))) * h
            value = max(read(work, S + f, i), np.float32(0.0)) + SLACK
            bend = rest - read(work, S + 2 * (n + 1) + f, i)
            t = lowest_root(value, read(work, S + (n + 1) + f, i), bend)
            second = min(second, max(first, t))
            face = np.float32(f) if t < first else face
            first = min(first, t)
        write(work, F, i, face)
        write(work, F + 1, i, min(first, h))
        write(work, F + 2, i, min(second, h))


@lane_kernel
def choose_face(cells, active, work):
    """Copy the series of the face that may be reached first, and bound its curvature."""
    n = len(cells)
    _, H, _, S, F, C, _ = layout(cells)
    for i in range(active):
        face, h = read(work, F, i), read(work, H, i)
        bend = np.float32(0.0)
        for p in range(ORDER, -1, -1):
            chosen = read(work, S + p * (n + 1), i)
            for f in range(1, n + 1):
                other = read(work, S + p * (n + 1) + f, i)
                chosen = other if face == np.float32(f) else chosen
            write(work, C + p, i, chosen)
            if p >= 2:
                bend = bend * h + np.float32(0.5 * p * (p - 1)) * abs(chosen)
        write(work, C + ORDER + 1, i, bend)


@lane_kernel
def approach_face(cells, active, work):
    """Move the crossing time to the root of a parabola that lies below the weight and touches it."""
    _, _, _, _, F, C, _ = layout(cells)
    for i in range(active):
        t = read(work, F + 1, i)
        value, slope = read(work, C + ORDER, i), np.float32(0.0)
        for p in range(ORDER - 1, -1, -1):
            slope = slope * t + value
            value = value * t + read(work, C + p, i)
        value = max(value + SLACK, np.float32(0.0))
        root = lowest_root(value, slope, read(work, C + ORDER + 1, i))
        write(work, F + 1, i, min(t + root, read(work, F + 2, i)))


@lane_kernel
def land(cells, active, work):
    """Say whether the face is reached, and spend the time."""
    _, H, _, _, F, C, _ = layout(cells)
    T = len(cells)
    for i in range(active):
        t = read(work, F + 1, i)
        value, slope = read(work, C + ORDER, i), np.float32(0.0)
        for p in range(ORDER - 1, -1, -1):
            slope = slope * t + value
            value = value * t + read(work, C + p, i)
        reached = value <= SLACK and slope < np.float32(0.0)
        write(work, F, i, read(work, F, i) if reached else np.float32(-1.0))
        write(work, T, i, read(work, T, i) - t)
        write(work, H, i, t)


@lane_kernel
def move(cells, active, work):
    """Put every lane where its series says it is after the step."""
    n = len(cells)
    _, H, _, S, _, _, _ = layout(cells)
    for i in range(active):
        t = read(work, H, i)
        for k in range(n):
            x = read(work, S + ORDER * (n + 1) + k + 1, i)
            for p in range(ORDER - 1, -1, -1):
                x = x * t + read(work, S + p * (n + 1) + k + 1, i)
            write(work, k, i, x)


@inlined
def rename(mesh, region, face, lane, work, turns):
    """Move a lane across a face; returns its new region. See ``exact.cross``."""
    n = len(mesh.cells)
    _, _, row, _, _, _, size = layout(mesh.cells)
    total = np.float32(1.0)
    for k in range(n):
        x = read(work, k, lane)
        total -= read(work, row + n * (n + 1) + k, lane) * x
        write(work, size + k + 1, lane, x)
    write(work, size, lane, total)
    write(work, size + face, lane, np.float32(0.0))
    for g in range(n + 1):
        at = mesh.position[region, face, g]
        if at > 0:
            write(work, at - 1, lane, read(work, size + g, lane))
    if mesh.periodic:
        for k in range(n):
            turns[lane, k] += mesh.shift[region, face, k]
    return mesh.neighbor[region, face]


@inlined
def unseat(mesh, region, lane, work, turns, out):
    """Put the position of a lane into ``out``."""
    n = len(mesh.cells)
    for c in range(n):
        x = turns[lane, c] + mesh.frames[region, 0, c]
        for k in range(n):
            x += read(work, k, lane) * mesh.frames[region, k + 1, c]
        out[c] = x


@kernel
def flow(first, last, mesh, velocities, chosen, lengths, starts, start_weights, start_turns, out):
    """φ_1(p), float32; one task is a chosen θ and ``CHUNK`` points.

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
    """
    n, m = len(mesh.cells), out.shape[1]
    row = row_length(n)
    time_left, _, row_at, _, face_at, _, size = layout(mesh.cells)
    n_chunks = (m + CHUNK - 1) // CHUNK
    table = np.empty(len(mesh.regions) * row, np.float32)
    work = np.zeros((size + n + 1) * LANES, np.float32)
    rows = np.zeros(LANES, np.uint32)
    regions = np.zeros(LANES, np.int64)
    owners = np.zeros(LANES, np.int64)
    turns = np.zeros((LANES, n), np.float32)
    for task in range(first, last):
        t, point = chosen[task // n_chunks], (task % n_chunks) * CHUNK
        stop = min(point + CHUNK, m)
        s = task // n_chunks % len(starts)
        region_rows(mesh, velocities[t], table)
        active = 0
        while True:
            lane = 0
            while lane < active:  # cross, hand over, close ranks
                face = read(work, face_at, lane)
                if face >= np.float32(0.0):
                    regions[lane] = rename(mesh, regions[lane], int(face), lane, work, turns)
                    rows[lane] = regions[lane] * row
                if read(work, time_left, lane) > np.float32(0.0):
                    lane += 1
                    continue
                unseat(mesh, regions[lane], lane, work, turns, out[t, owners[lane]])
                active -= 1
                regions[lane], rows[lane] = regions[active], rows[active]
                owners[lane] = owners[active]
                for k in range(n):
                    turns[lane, k] = turns[active, k]
                    write(work, k, lane, read(work, k, active))
                    w = row_at + n * (n + 1) + k
                    write(work, w, lane, read(work, w, active))
                write(work, time_left, lane, read(work, time_left, active))
                write(work, face_at, lane, read(work, face_at, active))
            while active < LANES and point < stop:
                for k in range(n):
                    write(work, k, active, start_weights[s, point, k])
                    turns[active, k] = start_turns[s, point, k]
                write(work, time_left, active, np.float32(1.0))
                regions[active] = starts[s, point]
                rows[active] = regions[active] * row
                owners[active] = point
                active += 1
                point += 1
            if active == 0:
                break
            fetch(mesh.cells, table, rows, active, work, row_at * LANES)
            expand(mesh.cells, active, np.float32(lengths[t]), work)
            find_faces(mesh.cells, active, work)
            choose_face(mesh.cells, active, work)
            approach_face(mesh.cells, active, work)
            approach_face(mesh.cells, active, work)
            land(mesh.cells, active, work)
            move(mesh.cells, active, work)


@kernel
def enter_all(first, last, mesh, points, starts, start_weights, start_turns):
    """Region, ξ and turns round the torus of points (m, ndim)."""
    ndim = len(mesh.cells)
    local, travelled, weights = np.empty(ndim), np.empty(ndim), np.empty(ndim + 1)
    for i in range(first, last):
        starts[i] = enter(mesh, points[i], local, weights, travelled)
        for k in range(ndim):
            start_weights[i, k] = weights[k + 1]
            start_turns[i, k] = travelled[k]
