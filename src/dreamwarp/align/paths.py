"""Paths of points under a velocity field, as alignment needs them: the fast walk, with a memory.

The walk is that of ``space.fast``. What is added: a path may note which nodes' velocities it felt,
so that a change at one node only has points re-flowed that can notice; and a cotangent carried
along leaves a log of what it collected in each region, from which the derivative of one point by
all node velocities is put together: a sparse row, because a path sees few nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.space.compiled import part
from dreamwarp.space.fast import rename
from dreamwarp.space.lanes import LANES, read, write
from dreamwarp.space.passes import advance, advance_cotangent, layout, row_length

# Bits per word of a set of nodes.
WORD = 64


class Lanes(NamedTuple):
    """The paths under way, one per lane."""

    work: NDArray[np.float32]  # see passes.Layout
    regions: NDArray[np.int64]
    rows: NDArray[np.uint32]  # where the region's row starts in the table
    owners: NDArray[np.int64]  # the path in this lane
    picked: NDArray[np.int64]  # lanes that something is to be done with


class Paths(NamedTuple):
    """The paths of one field: where they start and, once followed, where they end."""

    regions: NDArray[np.int32]  # (paths,)
    weights: NDArray[np.float32]  # (paths, ndim), ξ
    turns: NDArray[np.float32]  # (paths, ndim), turns round the torus
    felt: NDArray[np.uint64]  # (paths, words), the set of nodes felt on the way; or empty
    cotangents: NDArray[np.float32]  # (paths, ndim), carried along; or empty


class Log(NamedTuple):
    """What cotangents collected, ∫ η_k z_f dt, an entry per path and region on its way."""

    regions: NDArray[np.int32]  # (capacity,)
    sums: NDArray[np.float32]  # (capacity, (ndim + 1) ndim)
    before: NDArray[np.int32]  # (capacity,), the same path's entry before this one, or -1
    last: NDArray[np.int32]  # (paths,), the last entry of each path, or -1
    count: NDArray[np.int64]  # (1,), entries made; those past the capacity are lost


@part
def feel(mesh, region, path, paths):
    """Note that a path feels the nodes of a region."""
    for f in range(len(mesh.cells) + 1):
        node = mesh.regions[region, f]
        paths.felt[path, node // WORD] |= np.uint64(1) << np.uint64(node % WORD)


@part
def seat(mesh, lanes, lane, path, paths):
    """Put a path into a lane, with all of its time ahead."""
    cells, at = mesh.cells, layout(mesh.cells)
    region = np.int64(paths.regions[path])
    for k in range(len(cells)):
        write(lanes.work, at.xi + k, lane, paths.weights[path, k])
    write(lanes.work, at.time, lane, np.float32(1.0))
    lanes.regions[lane], lanes.owners[lane] = region, path
    lanes.rows[lane] = region * row_length(len(cells))
    if paths.felt.size > 0:
        for word in range(paths.felt.shape[1]):
            paths.felt[path, word] = 0
        feel(mesh, region, path, paths)
    if paths.cotangents.size > 0:
        seat_cotangent(mesh, lanes, lane, paths)


@part
def seat_cotangent(mesh, lanes, lane, paths):
    """Express a path's cotangent in its region's coordinates, and clear the lane's sums."""
    n, kind = len(mesh.cells), mesh.kinds.of[lanes.regions[lane]]
    at = layout(mesh.cells)
    for k in range(n):
        eta = np.float32(0.0)
        for c in range(n):
            eta += paths.cotangents[lanes.owners[lane], c] * mesh.kinds.edges[kind, k, c]
        write(lanes.work, at.eta + k, lane, eta)
        for f in range(n + 1):
            write(lanes.work, at.sums + f * n + k, lane, np.float32(0.0))


@part
def unseat_cotangent(mesh, lanes, lane, paths, log):
    """The way back, and an entry in the log."""
    n, region, path = len(mesh.cells), lanes.regions[lane], lanes.owners[lane]
    kind, at = mesh.kinds.of[region], layout(mesh.cells)
    for c in range(n):
        total = 0.0
        for k in range(n):
            total += read(lanes.work, at.eta + k, lane) * mesh.kinds.slopes[kind, k, c]
        paths.cotangents[path, c] = np.float32(total)
    entry = log.count[0]
    log.count[0] += 1
    if entry < len(log.regions):
        log.regions[entry] = region
        for fk in range((n + 1) * n):
            log.sums[entry, fk] = read(lanes.work, at.sums + fk, lane)
        log.before[entry], log.last[path] = log.last[path], entry


@part
def cross_faces(mesh, lanes, active, paths, log):
    """Move the lanes that have reached a face into the region across it."""
    cells, kinds, at = mesh.cells, mesh.kinds, layout(mesh.cells)
    n_picked = 0
    for lane in range(active):
        lanes.picked[n_picked] = lane
        n_picked += read(lanes.work, at.face, lane) >= np.float32(0.0)
    for i in range(n_picked):
        lane = lanes.picked[i]
        region, face = lanes.regions[lane], int(read(lanes.work, at.face, lane))
        across, path = mesh.neighbor[region, face], lanes.owners[lane]
        rename(cells, kinds, kinds.of[region], face, lane, lanes.work)
        if paths.cotangents.size > 0:
            unseat_cotangent(mesh, lanes, lane, paths, log)
        if mesh.periodic:
            for k in range(len(cells)):
                paths.turns[path, k] += mesh.shift[region, face, k]
        lanes.regions[lane] = across
        lanes.rows[lane] = across * row_length(len(cells))
        if paths.felt.size > 0:
            feel(mesh, across, path, paths)
        if paths.cotangents.size > 0:
            seat_cotangent(mesh, lanes, lane, paths)


@part
def unseat(mesh, lanes, lane, paths, log):
    """Note where a path has ended."""
    at, path = layout(mesh.cells), lanes.owners[lane]
    paths.regions[path] = lanes.regions[lane]
    for k in range(len(mesh.cells)):
        paths.weights[path, k] = read(lanes.work, at.xi + k, lane)
    if paths.cotangents.size > 0:
        unseat_cotangent(mesh, lanes, lane, paths, log)


@part
def hand_over(mesh, lanes, active, waiting, todo, n_todo, paths, log):
    """Let out the paths that have ended, and those that wait in; returns (active, waiting)."""
    at = layout(mesh.cells)
    n_picked = 0
    for lane in range(active):
        lanes.picked[n_picked] = lane
        n_picked += read(lanes.work, at.time, lane) <= np.float32(0.0)
    for i in range(n_picked - 1, -1, -1):
        lane = lanes.picked[i]
        unseat(mesh, lanes, lane, paths, log)
        if waiting < n_todo:
            seat(mesh, lanes, lane, todo[waiting], paths)
            waiting += 1
            continue
        active -= 1  # nobody waits: the last lane moves up
        lanes.regions[lane], lanes.rows[lane] = lanes.regions[active], lanes.rows[active]
        lanes.owners[lane] = lanes.owners[active]
        for quantity in range(at.map):
            write(lanes.work, quantity, lane, read(lanes.work, quantity, active))
    return active, waiting


@part
def follow(mesh, table, longest, lanes, todo, n_todo, paths, log):
    """Follow some paths for unit time.

    Parameters
    ----------
    table : the field, see ``space.fast.fill_table``
    longest : float32
        Longest step.
    todo : (n_todo or more,)
        Numbers of the paths to follow.
    paths, log
        Changed in place. The log is used only if the paths carry cotangents.
    """
    active = min(LANES, n_todo)
    waiting = active
    for lane in range(active):
        seat(mesh, lanes, lane, todo[lane], paths)
    while active > 0:
        advance(mesh.cells, table, lanes.rows, longest, active, lanes.work)
        if paths.cotangents.size > 0:
            advance_cotangent(mesh.cells, active, lanes.work)
        cross_faces(mesh, lanes, active, paths, log)
        active, waiting = hand_over(mesh, lanes, active, waiting, todo, n_todo, paths, log)


@part
def place(mesh, path, paths, positions):
    """Put where a path is into its place in flat positions (paths * ndim,)."""
    n, region = len(mesh.cells), np.int64(paths.regions[path])
    kind = mesh.kinds.of[region]
    for c in range(n):
        x = paths.turns[path, c] + mesh.origins[region, c]
        for k in range(n):
            x += paths.weights[path, k] * mesh.kinds.edges[kind, k, c]
        positions[path * n + c] = x
