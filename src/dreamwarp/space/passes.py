"""The steps of the fast flow, each a loop over lanes.

Every pass does one operation on all lanes. One lane is a long chain of dependent operations; short
loops over many lanes let the processor overlap them.

The method is that of ``exact``, in float32 and with a shorter series. The state of a lane is ξ: the
weights of its region's nodes except the first, whose weight is 1 - w·ξ (w_k is 1 for a vertex and 0
for a direction). The table of a field has a row per region: w, then [A | b] of ξ' = A ξ + b,
row-major.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dreamwarp.core.compiled import inlined, lane_kernel
from dreamwarp.core.lanes import LANES, ROW, read, transpose_rows, write

# Order of the power series: high enough that a warp of typical size takes one step per cell.
ORDER = 7
# A path is beyond a face when its weight is below minus this: ten times float32 rounding.
SLACK = np.float32(1e-6)
# A path may cross a face when its weight is below this. The velocities on the two sides differ by
# an amount proportional to the distance from the face, so the error is of second order in it.
NEAR = np.float32(1e-4)
# Shortest step, so that every path ends. It may overshoot a face; the error is of second order.
SHORTEST = np.float32(1e-7)
# Steps that divide the time evenly leave a remainder by rounding: the last step may be this much
# longer.
ALMOST_ONE = np.float32(1.0001)
# A step that is too long is multiplied by this factor, at most this many times.
SHORTENING, N_SHORTENINGS = np.float32(0.65), 3

_NEVER, _TINY = np.float32(1e30), np.float32(1e-30)
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
GAUSS_NODES = tuple(np.float32(0.5 * (node + 1.0)) for node in _NODES)
GAUSS_WEIGHTS = tuple(np.float32(0.5 * weight) for weight in _WEIGHTS)


class Layout(NamedTuple):
    """Offsets of quantities in the work array, in rows of ``LANES``.

    Rows before ``map`` are kept from step to step; the others are recomputed.
    """

    eta: int  # cotangent, ndim rows
    sums: int  # ∫ η_k z_f dt since the region was entered, (ndim + 1) ndim rows
    xi: int  # weights, ndim rows
    time: int  # time left
    face: int  # face just reached, or -1
    row: int  # table row: w, then the map
    map: int
    step: int  # length of this step
    series: int  # coefficients of all weights, order by order
    crossing: int  # time of the next crossing
    safe: int  # lower bound on the time at which any other face is reached
    chosen: int  # coefficients of the weight that vanishes on the next face
    bend: int  # bound on half its second derivative
    powers: int  # coefficients of η
    size: int


@inlined
def row_length(n):
    """Numbers per table row, padded to whole vectors."""
    return ROW * ((n * (n + 2) + ROW - 1) // ROW)


@inlined
def layout(cells):
    """The layout for a space with these cells."""
    n = len(cells)
    xi = n + (n + 1) * n
    row = xi + n + 2
    step = row + row_length(n)
    crossing = step + 1 + (ORDER + 1) * (n + 1)
    bend = crossing + 2 + ORDER + 1
    size = bend + 1 + (ORDER + 1) * n
    return Layout(
        0, n, xi, xi + n, xi + n + 1, row, row + n, step, step + 1,
        crossing, crossing + 1, crossing + 2, bend, bend + 1, size,
    )  # fmt: skip


@lane_kernel
def fetch(cells, table, rows, target, work):
    """Load the table row of every lane into the rows of ``work`` from ``target`` on."""
    for lane in range(0, LANES, ROW):
        transpose_rows(table, rows, lane, work, target * LANES)
        if len(cells) == 3:
            transpose_rows(table[ROW:], rows, lane, work, (target + ROW) * LANES)


@lane_kernel
def change_coordinates(cells, work):
    """Replace ξ of every lane by M ξ + m, with [M | m] in the rows from ``series`` on."""
    n = len(cells)
    at = layout(cells)
    for i in range(LANES):
        for k in range(n):
            x = read(work, at.series + k * (n + 1) + n, i)
            for j in range(n):
                x += read(work, at.series + k * (n + 1) + j, i) * read(work, at.xi + j, i)
            write(work, at.chosen + k, i, x)
        for k in range(n):
            write(work, at.xi + k, i, read(work, at.chosen + k, i))


@lane_kernel
def expand(cells, work):
    """Power series of every weight."""
    n = len(cells)
    at = layout(cells)
    for i in range(LANES):
        first = _ONE
        for k in range(n):
            x = read(work, at.xi + k, i)
            first -= read(work, at.row + k, i) * x
            write(work, at.series + k + 1, i, x)
            speed = read(work, at.map + k * (n + 1) + n, i)
            for j in range(n):
                speed += read(work, at.map + k * (n + 1) + j, i) * read(work, at.xi + j, i)
            write(work, at.series + (n + 1) + k + 1, i, speed)
        write(work, at.series, i, first)
        for p in range(2, ORDER + 1):
            before, here = at.series + (p - 1) * (n + 1) + 1, at.series + p * (n + 1) + 1
            for k in range(n):
                entry = _ZERO
                for j in range(n):
                    entry += read(work, at.map + k * (n + 1) + j, i) * read(work, before + j, i)
                write(work, here + k, i, entry * (_ONE / np.float32(p)))
        for p in range(1, ORDER + 1):
            first = _ZERO
            for k in range(n):
                first -= read(work, at.row + k, i) * read(work, at.series + p * (n + 1) + k + 1, i)
            write(work, at.series + p * (n + 1), i, first)


@lane_kernel
def choose_step(cells, longest, easy, edge, work):
    """Length of the step: as much of the time left as the last term of a lane's series allows.

    See ``fast.step_lengths``. The length of an edge is at most ``edge``, and 1 for a direction.
    """
    n = len(cells)
    at = layout(cells)
    for i in range(LANES):
        time = read(work, at.time, i)
        last = _ZERO
        for k in range(n):
            length = _ONE + read(work, at.row + k, i) * (edge - _ONE)
            last += abs(read(work, at.series + ORDER * (n + 1) + k + 1, i)) * length
        for _ in range(ORDER):
            last *= time
        step = time
        for _ in range(N_SHORTENINGS):
            step = step if last <= easy else step * SHORTENING
            last = last if last <= easy else last * SHORTENING**ORDER
        step = step if last <= easy else _ZERO
        write(work, at.step, i, time if time <= longest * ALMOST_ONE else max(step, longest))


@lane_kernel
def lowest_root(value, slope, bend):
    """First t > 0 with value + slope t - bend t² = 0, for value >= 0; _NEVER if there is none."""
    inside = slope * slope + np.float32(4.0) * value * bend
    root = np.sqrt(max(inside, _ZERO))
    falling = slope < _ZERO
    above = value + value if falling else slope + root
    below = root - slope if falling else bend + bend
    # With a bend below _TINY the parabola can't fall by SLACK, and its products underflow.
    exists = bend > _TINY or (falling and inside >= _ZERO)
    return above / max(below, _TINY) if exists else _NEVER


@lane_kernel
def find_faces(cells, work):
    """First face that each lane may reach, and lower bounds on the crossing times of all faces.

    A parabola that replaces all terms past the second by their worst case lies below the weight's
    series, so its root comes first.
    """
    n = len(cells)
    at = layout(cells)
    for i in range(LANES):
        step = read(work, at.step, i)
        first, second, face = _NEVER, _NEVER, _ZERO
        for f in range(n + 1):
            rest = _ZERO
            for p in range(ORDER, 2, -1):
                rest = (rest + abs(read(work, at.series + p * (n + 1) + f, i))) * step
            value = max(read(work, at.series + f, i), _ZERO) + SLACK
            slope = read(work, at.series + (n + 1) + f, i)
            t = lowest_root(value, slope, rest - read(work, at.series + 2 * (n + 1) + f, i))
            second = min(second, max(first, t))
            face = np.float32(f) if t < first else face
            first = min(first, t)
        write(work, at.face, i, face)
        write(work, at.crossing, i, min(first, step))
        write(work, at.safe, i, min(second, step))


@lane_kernel
def choose_face(cells, work):
    """Copy the series of the weight that may vanish first, and bound its second derivative."""
    n = len(cells)
    at = layout(cells)
    for i in range(LANES):
        face, step = read(work, at.face, i), read(work, at.step, i)
        bend = _ZERO
        for p in range(ORDER, -1, -1):
            chosen = read(work, at.series + p * (n + 1), i)
            for f in range(1, n + 1):
                other = read(work, at.series + p * (n + 1) + f, i)
                chosen = other if face == np.float32(f) else chosen
            write(work, at.chosen + p, i, chosen)
            if p >= 2:
                bend = bend * step + np.float32(0.5 * p * (p - 1)) * abs(chosen)
        write(work, at.bend, i, bend)


@lane_kernel
def evaluate_chosen(cells, work, i, t):
    """Value and slope at t of the weight that may vanish first."""
    first = layout(cells).chosen
    value, slope = read(work, first + ORDER, i), _ZERO
    for p in range(ORDER - 1, -1, -1):
        slope = slope * t + value
        value = value * t + read(work, first + p, i)
    return value, slope


@lane_kernel
def approach_face(cells, work):
    """Increase the crossing time to the root of a parabola that touches the weight from below."""
    at = layout(cells)
    for i in range(LANES):
        t = read(work, at.crossing, i)
        value, slope = evaluate_chosen(cells, work, i, t)
        root = lowest_root(max(value + SLACK, _ZERO), slope, read(work, at.bend, i))
        write(work, at.crossing, i, min(t + root, read(work, at.safe, i)))


@lane_kernel
def land(cells, work):
    """End the step at the crossing time; store the face reached, or -1 if none is."""
    at = layout(cells)
    for i in range(LANES):
        t = read(work, at.crossing, i)
        value, slope = evaluate_chosen(cells, work, i, t)
        reached = value <= NEAR and slope < _ZERO
        t = max(t, min(read(work, at.step, i), SHORTEST))
        write(work, at.face, i, read(work, at.face, i) if reached else -_ONE)
        write(work, at.time, i, read(work, at.time, i) - t)
        write(work, at.step, i, t)


@inlined
def evaluate(work, first, stride, i, t):
    """Value at t of a power series whose coefficients are in every ``stride``-th row."""
    value = read(work, first + ORDER * stride, i)
    for p in range(ORDER - 1, -1, -1):
        value = value * t + read(work, first + p * stride, i)
    return value


@lane_kernel
def move(cells, work):
    """Evaluate the series of every lane at the end of the step."""
    n = len(cells)
    at = layout(cells)
    for i in range(LANES):
        for k in range(n):
            x = evaluate(work, at.series + k + 1, n + 1, i, read(work, at.step, i))
            write(work, at.xi + k, i, x)


@lane_kernel
def expand_cotangent(cells, work):
    """Power series of η over the step: η' = -η A."""
    n = len(cells)
    at = layout(cells)
    for i in range(LANES):
        for k in range(n):
            write(work, at.powers + k, i, read(work, at.eta + k, i))
        for p in range(1, ORDER + 1):
            before = at.powers + (p - 1) * n
            for k in range(n):
                entry = _ZERO
                for j in range(n):
                    entry -= read(work, before + j, i) * read(work, at.map + j * (n + 1) + k, i)
                write(work, before + n + k, i, entry * (_ONE / np.float32(p)))


@lane_kernel
def add_products(cells, node, weight, work):
    """Add one Gauss quadrature node to ∫ η_k z_f dt."""
    n = len(cells)
    at = layout(cells)
    for i in range(LANES):
        step = read(work, at.step, i)
        t = step * node
        for k in range(n):
            eta = evaluate(work, at.powers + k, n, i, t)
            write(work, at.eta + k, i, eta * step * weight)
        for f in range(n + 1):
            z = evaluate(work, at.series + f, n + 1, i, t)
            for k in range(n):
                into = at.sums + f * n + k
                write(work, into, i, read(work, into, i) + z * read(work, at.eta + k, i))


@lane_kernel
def move_cotangent(cells, work):
    """Evaluate the series of η at the end of the step."""
    n = len(cells)
    at = layout(cells)
    for i in range(LANES):
        for k in range(n):
            eta = evaluate(work, at.powers + k, n, i, read(work, at.step, i))
            write(work, at.eta + k, i, eta)


@inlined
def advance(cells, table, rows, longest, easy, edge, careful, work):
    """Advance every lane to the end of its time, of its cell or of the step its series allows."""
    fetch(cells, table, rows, layout(cells).row, work)
    expand(cells, work)
    choose_step(cells, longest, easy, edge, work)
    find_faces(cells, work)
    choose_face(cells, work)
    approach_face(cells, work)
    if careful:  # derivatives have a first-order error in the distance from a face
        approach_face(cells, work)
    land(cells, work)
    move(cells, work)


@inlined
def advance_cotangent(cells, work):
    """Carry the cotangents over the last step."""
    expand_cotangent(cells, work)
    for q in range(len(GAUSS_NODES)):
        add_products(cells, GAUSS_NODES[q], GAUSS_WEIGHTS[q], work)
    move_cotangent(cells, work)
