"""Paths of points under a velocity field, with the record of them that alignment needs.

The walk is that of ``space.fast``. Two things are added. A path may record the nodes of all regions
that it passes, so that after a change at one node only the points are followed anew whose paths can
change. And a cotangent that is carried along logs what it collects in each region, from which the
derivative of one point by all node velocities is put together: a sparse row, because a path passes
few nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.compiled import part
from dreamwarp.core.lanes import LANES, read, write
from dreamwarp.space.fast import cross_faces, move_lane, renew_cotangent
from dreamwarp.space.passes import advance, advance_cotangent, layout, row_length

# Bits per word of a set of nodes.
WORD = 64


class Field(NamedTuple):
    """A field to follow: its table (``space.fast.fill_table``), and how long steps may be."""

    table: NDArray[np.float32]
    longest: np.float32
    easy: np.float32


class Paths(NamedTuple):
    """The paths of one field: where they start and, once followed, where they end."""

    regions: NDArray[np.uint32]  # (paths,)
    weights: NDArray[np.float32]  # (paths, ndim), ξ
    turns: NDArray[np.float32]  # (paths, ndim), turns round the torus
    nodes_met: NDArray[
        np.uint64
    ]  # (paths, words), the set of nodes of the regions passed; or empty
    cotangents: NDArray[np.float32]  # (paths, ndim), to carry along; or empty


class Log(NamedTuple):
    """What cotangents collected, ∫ η_k z_f dt, an entry per path and region on its way."""

    regions: NDArray[np.uint32]  # (capacity,)
    sums: NDArray[np.float32]  # (capacity, (ndim + 1) ndim)
    before: NDArray[np.int32]  # (capacity,), the same path's entry before this one, or -1
    last: NDArray[np.int32]  # (paths,), the last entry of each path, or -1
    n_entries: NDArray[np.int64]  # (1,), entries made; those past the capacity are lost


@part
def record_nodes(mesh, region, path, paths):
    """Record the nodes of a region that a path enters."""
    for f in range(len(mesh.cells) + 1):
        node = mesh.regions[region, f]
        paths.nodes_met[path, node // WORD] |= np.uint64(1) << np.uint64(node % WORD)


@part
def load_lane(mesh, lanes, lane, path, paths):
    """Start a path in a lane, at time 0."""
    n, at, region = len(mesh.cells), layout(mesh.cells), paths.regions[path]
    for k in range(n):
        write(lanes.work, at.xi + k, lane, paths.weights[path, k])
        lanes.turns[lane, k] = paths.turns[path, k]
    write(lanes.work, at.time, lane, np.float32(1.0))
    lanes.regions[lane], lanes.owners[lane] = region, path
    lanes.rows[lane] = region * row_length(n)
    if paths.nodes_met.size > 0:
        for word in range(paths.nodes_met.shape[1]):
            paths.nodes_met[path, word] = 0
        record_nodes(mesh, region, path, paths)
    if paths.cotangents.size > 0:
        load_cotangent(mesh, lanes, lane, paths)


@part
def load_cotangent(mesh, lanes, lane, paths):
    """Express a path's cotangent in its region's coordinates, and clear the lane's sums."""
    n, kind = len(mesh.cells), mesh.kinds.of[lanes.regions[lane]]
    at = layout(mesh.cells)
    for k in range(n):
        eta = np.float32(0.0)
        for c in range(n):
            eta += paths.cotangents[lanes.owners[lane], c] * mesh.kinds.edges[kind, k, c]
        write(lanes.work, at.eta + k, lane, eta)
    for fk in range((n + 1) * n):
        write(lanes.work, at.sums + fk, lane, np.float32(0.0))


@part
def log_sums(mesh, lanes, lane, log):
    """Log the sums of a lane, and set them to 0."""
    n, at, path = len(mesh.cells), layout(mesh.cells), lanes.owners[lane]
    entry = log.n_entries[0]
    log.n_entries[0] += 1
    kept = entry < len(log.regions)
    if kept:
        log.regions[entry] = lanes.regions[lane]
        log.before[entry], log.last[path] = log.last[path], entry
    for fk in range((n + 1) * n):
        if kept:
            log.sums[entry, fk] = read(lanes.work, at.sums + fk, lane)
        write(lanes.work, at.sums + fk, lane, np.float32(0.0))


@part
def flush_sums(mesh, lanes, active, paths, log):
    """Before lanes cross a face: log sums, record nodes, count turns round the torus."""
    n, at = len(mesh.cells), layout(mesh.cells)
    n_picked = 0
    for lane in range(active):
        lanes.picked[n_picked] = lane
        n_picked += read(lanes.work, at.face, lane) >= np.float32(0.0)
    for i in range(n_picked):
        lane = lanes.picked[i]
        region, face = lanes.regions[lane], int(read(lanes.work, at.face, lane))
        if paths.cotangents.size > 0:
            log_sums(mesh, lanes, lane, log)
            renew_cotangent(mesh, lane, mesh.ways[region, face + 1], lanes)
        if paths.nodes_met.size > 0:
            record_nodes(mesh, mesh.across[region, face + 1], lanes.owners[lane], paths)
        if mesh.periodic:
            for k in range(n):
                lanes.turns[lane, k] += mesh.shift[region, face, k]


@part
def unload_lane(mesh, lanes, lane, paths, log):
    """Store where a path has ended."""
    at, path = layout(mesh.cells), lanes.owners[lane]
    paths.regions[path] = lanes.regions[lane]
    for k in range(len(mesh.cells)):
        paths.weights[path, k] = read(lanes.work, at.xi + k, lane)
        paths.turns[path, k] = lanes.turns[lane, k]
    if paths.cotangents.size > 0:
        log_sums(mesh, lanes, lane, log)


@part
def refill_lanes(mesh, lanes, n_ended, active, waiting, todo, n_todo, paths, log):
    """Give the lanes of paths that have ended to paths that wait; returns (active, waiting)."""
    for i in range(n_ended - 1, -1, -1):
        lane = lanes.picked[i]
        unload_lane(mesh, lanes, lane, paths, log)
        if waiting < n_todo:
            load_lane(mesh, lanes, lane, todo[waiting], paths)
            waiting += 1
        else:  # none waits: the last active lane moves here
            active -= 1
            move_lane(mesh, lanes, active, lane)
    return active, waiting


@part
def follow(mesh, field, lanes, todo, n_todo, paths, log):
    """Follow some paths for unit time.

    Parameters
    ----------
    field : Field
    todo : (n_todo or more,)
        Numbers of the paths to follow.
    paths, log
        Changed in place. The log is used only if the paths carry cotangents.
    """
    carries, edge = paths.cotangents.size > 0, np.float32(mesh.longest_edge)
    active = min(LANES, n_todo)
    waiting = active
    for lane in range(active):
        load_lane(mesh, lanes, lane, todo[lane], paths)
    while active > 0:
        advance(
            mesh.cells, field.table, lanes.rows, field.longest, field.easy, edge, carries,
            lanes.work,
        )  # fmt: skip
        if carries:
            advance_cotangent(mesh.cells, lanes.work)
        if carries or mesh.periodic or paths.nodes_met.size > 0:
            flush_sums(mesh, lanes, active, paths, log)
        n_ended = cross_faces(mesh, lanes, active)
        active, waiting = refill_lanes(
            mesh, lanes, n_ended, active, waiting, todo, n_todo, paths, log
        )


@part
def place(mesh, path, paths, positions):
    """Write the position of a path to flat positions (paths * ndim,)."""
    n, region = len(mesh.cells), paths.regions[path]
    kind = mesh.kinds.of[region]
    for c in range(n):
        x = paths.turns[path, c] + mesh.origins[region, c]
        for k in range(n):
            x += paths.weights[path, k] * mesh.kinds.edges[kind, k, c]
        positions[path * n + c] = x
