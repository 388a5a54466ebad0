"""Kernels of alignment: sources seen through warps, and derivatives of what is seen.

One task is a pair. Unknowns are the free velocities at the vertices (``space.basis.Basis``), in
which the derivative of a pixel is a short sparse row. Dimensions of shared arrays:

fields       velocities (n, nodes, ndim); lengths, ease (n,): see ``space.fast.step_lengths``
states       of all n pairs, see ``States``
sources      (n, channels, pixels), float32
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align.recorded_paths import Field, Log, Paths, follow, place
from dreamwarp.core.compiled import inlined, kernel, part
from dreamwarp.core.interpolation import LINEAR, combine, find_taps
from dreamwarp.core.interpolation import layout as interpolation_layout
from dreamwarp.core.interpolation import scratch as interpolation_scratch
from dreamwarp.core.lanes import LANES, read
from dreamwarp.space.fast import Lanes, fill_table
from dreamwarp.space.passes import layout, row_length


class States(NamedTuple):
    """Positions of the pixels of every pair, and the values of the source there."""

    regions: NDArray[np.uint32]  # (n, m)
    weights: NDArray[np.float32]  # (n, m, ndim)
    turns: NDArray[np.float32]  # (n, m, ndim)
    nodes_met: NDArray[np.uint64]  # (n, m, words) or (n, 0, 0)
    positions: NDArray[np.float32]  # (n, m * ndim)
    values: NDArray[np.float32]  # (n, channels, m)


class Grid(NamedTuple):
    """Pixels before any warp, and how images between them are read."""

    regions: NDArray[np.uint32]  # (m,)
    weights: NDArray[np.float32]  # (m, ndim)
    turns: NDArray[np.float32]  # (m, ndim)
    every: NDArray[np.int64]  # (m,), the numbers 0 to m - 1
    shape: tuple[int, ...]
    sizes: NDArray[np.float32]  # the shape, as numbers
    rule: int  # for pixels beyond the border, see ``interpolation``


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
def make_table(mesh):
    """Work arrays for the table of a field."""
    n = len(mesh.cells)
    table = np.empty(len(mesh.regions) * row_length(n), np.float32)
    return table, np.empty(1 + (n + 1) * n, np.float32)


@inlined
def make_log(ndim, capacity, n_paths):
    """An empty log."""
    return Log(
        np.empty(capacity, np.uint32), np.empty((capacity, (ndim + 1) * ndim), np.float32),
        np.empty(capacity, np.int32), np.full(n_paths, -1, np.int32), np.zeros(1, np.int64),
    )  # fmt: skip


@part
def restart(grid, todo, n_todo, paths):
    """Put paths back to where the pixels are."""
    for j in range(n_todo):
        i = todo[j]
        paths.regions[i] = grid.regions[i]
        for k in range(len(grid.shape)):
            paths.weights[i, k] = grid.weights[i, k]
            paths.turns[i, k] = grid.turns[i, k]


@part
def see(grid, source, positions, start, count, places, work, out, offset):
    """Values of a source at ``count`` positions from ``start`` on, all channels."""
    stencil, zero = LINEAR, np.float32(0.0)
    result = interpolation_layout(stencil, grid.shape).levels
    find_taps(stencil, grid.shape, grid.sizes, grid.rule, 0, positions, start, count, places, work)
    for c in range(len(source)):
        combine(stencil, grid.shape, grid.rule, 0, source[c], zero, places, work)
        for i in range(count):
            out[c, offset + i] = read(work, result, i)


@kernel
def trace(first, last, mesh, grid, velocities, lengths, ease, chosen, sources, states):
    """Follow every pixel and see the source where it ends; one task is a chosen pair."""
    n, m = len(mesh.cells), len(grid.every)
    table, factors = make_table(mesh)
    lanes, log = make_lanes(mesh), make_log(n, 0, 0)
    places, work = interpolation_scratch(LINEAR, grid.shape, grid.sizes)
    no_cotangents = np.empty((0, 0), np.float32)
    for task in range(first, last):
        t = chosen[task]
        paths = Paths(
            states.regions[t],
            states.weights[t],
            states.turns[t],
            states.nodes_met[t],
            no_cotangents,
        )
        positions, values, source = states.positions[t], states.values[t], sources[t]
        fill_table(mesh, velocities[task], 1.0, factors, table)
        field = Field(table, np.float32(lengths[task]), np.float32(min(ease[task], 1e30)))
        restart(grid, grid.every, m, paths)
        follow(mesh, field, lanes, grid.every, m, paths, log)
        for i in range(m):
            place(mesh, i, paths, positions)
        for start in range(0, m, LANES):
            count = min(LANES, m - start)
            see(grid, source, positions, start, count, places, work, values, start)


class Rows(NamedTuple):
    """Cotangents to pull back, and what to do with the derivatives that they turn into."""

    regions: NDArray[np.uint32]  # (capacity,)
    weights: NDArray[np.float32]  # (capacity, ndim)
    cotangents: NDArray[np.float32]  # (capacity, ndim)
    slopes: NDArray[np.float64]  # (capacity,), times a row goes into the gradient
    curvatures: NDArray[np.float64]  # (capacity,), times a row squared goes into the Hessian


@part
def add_row(path, i, regions, weights, slope, curvature, rows):
    """Add a cotangent at pixel i."""
    rows.regions[path] = regions[i]
    for k in range(weights.shape[1]):
        rows.weights[path, k] = weights[i, k]
    rows.slopes[path], rows.curvatures[path] = slope, curvature
    return path + 1


@part
def split_channels(force, metric, i, path, regions, weights, rows):
    """Turn Σ_c u_c g_c and Σ_c w_c g_c g_cᵀ of a pixel into rows, by L D Lᵀ of the second."""
    n = len(force)
    floor = 0.0
    for k in range(n):
        floor += 1e-12 * metric[k, k]
    for k in range(n):
        pivot = metric[k, k]
        for j in range(n):
            below = metric[j, k] / pivot if pivot > floor and j > k else 0.0
            rows.cotangents[path, j] = np.float32(1.0 if j == k else below)
        slope = force[k]
        for j in range(k + 1, n):
            factor = metric[j, k] / pivot if pivot > floor else 0.0
            force[j] -= factor * slope
            for q in range(k + 1, n):
                metric[j, q] -= factor * metric[k, q]
        if pivot > floor or slope != 0.0:
            path = add_row(path, i, regions, weights, slope, max(pivot, 0.0), rows)
    return path


@part
def choose_rows(grid, source, t, states, slopes, curvatures, places, work, force, metric, rows):
    """The cotangents of one pair: gradients of the source where pixels see any; how many."""
    stencil, n, n_channels = LINEAR, len(grid.shape), len(source)
    n_taps, zero = len(stencil), np.float32(0.0)
    result = interpolation_layout(stencil, grid.shape).levels
    regions, weights, positions = states.regions[t], states.weights[t], states.positions[t]
    m, path = len(regions), 0
    for start in range(0, m, LANES):
        count = min(LANES, m - start)
        find_taps(
            stencil, grid.shape, grid.sizes, grid.rule, n, positions, start, count, places, work
        )
        if n_channels == 1:
            combine(stencil, grid.shape, grid.rule, n, source[0], zero, places, work)
            for i in range(count):
                steep = False
                for k in range(n):
                    g = read(work, result + (k + 1) * n_taps, i)
                    rows.cotangents[path, k] = g
                    steep = steep or g != zero
                if steep:
                    slope, curvature = slopes[0, start + i], curvatures[0, start + i]
                    path = add_row(path, start + i, regions, weights, slope, curvature, rows)
            continue
        force[:] = 0.0
        metric[:] = 0.0
        for c in range(n_channels):
            combine(stencil, grid.shape, grid.rule, n, source[c], zero, places, work)
            for i in range(count):
                for k in range(n):
                    g = read(work, result + (k + 1) * n_taps, i)
                    force[i, k] += slopes[c, start + i] * g
                    for j in range(n):
                        h = read(work, result + (j + 1) * n_taps, i)
                        metric[i, k, j] += curvatures[c, start + i] * g * h
        for i in range(count):
            path = split_channels(force[i], metric[i], start + i, path, regions, weights, rows)
    return path


@part
def collect_row(mesh, unknown, path, log, row, touched):
    """Derivative of one path by the unknowns, into ``row``; returns how many are touched."""
    n, n_vertices, n_touched = len(mesh.cells), unknown.shape[1], 0
    entry = log.last[path]
    while entry >= 0:
        region = np.int64(log.regions[entry])
        kind = mesh.kinds.of[region]
        for f in range(n + 1):
            node = mesh.regions[region, f]
            if node >= n_vertices:
                continue
            for c in range(n):
                at = unknown[c, node]
                if at < 0:
                    continue
                value = 0.0
                for k in range(n):
                    value += log.sums[entry, f * n + k] * mesh.kinds.slopes[kind, k, c]
                if row[at] == 0.0:
                    touched[n_touched] = at
                    n_touched += 1
                    value += 1e-300  # never zero, so that it is listed once
                row[at] += value
        entry = log.before[entry]
    return n_touched


@part
def add_square(row, touched, n_touched, slope, curvature, gradient, hessian):
    """Add slope times a row to the gradient, and curvature times its square to the Hessian."""
    for i in range(n_touched):
        a = touched[i]
        gradient[a] += slope * row[a]
        if hessian.size > 0:
            scaled = curvature * row[a]
            for j in range(i + 1):
                b = touched[j]
                hessian[min(a, b), max(a, b)] += scaled * row[b]


@kernel
def linearise(
    first, last, mesh, grid, unknown, velocities, lengths, chosen, sources, states,
    slopes, curvatures, capacity, into, gradients, hessians, entries,
):  # fmt: skip
    """Gradient of the log-likelihood by the unknowns, and minus its Gauss-Newton Hessian.

    Parameters
    ----------
    velocities : (k, nodes, ndim)
        Of the chosen pairs. Paths are followed back.
    slopes, curvatures : (k, channels, m)
        Derivative of the log-likelihood by every value seen, and minus its curvature.
    capacity : int
        Entries that the log of a pair's paths can hold.
    into : (k,)
        Where results go.
    gradients, hessians : (n, unknowns), (n, unknowns, unknowns) or (n, 0, 0)
        Of a Hessian the upper triangle is filled.
    entries : (k,)
        Receives the entries that the log needed: past the capacity, results are void.
    """
    n, m = len(mesh.cells), len(grid.every)
    n_paths = m if sources.shape[1] == 1 else n * m
    table, factors = make_table(mesh)
    lanes, log = make_lanes(mesh), make_log(n, capacity, n_paths + 1)
    places, work = interpolation_scratch(LINEAR, grid.shape, grid.sizes)
    rows = Rows(
        np.empty(n_paths + 1, np.uint32), np.empty((n_paths + 1, n), np.float32),
        np.empty((n_paths + 1, n), np.float32), np.empty(n_paths + 1), np.empty(n_paths + 1),
    )  # fmt: skip
    turns = np.zeros((n_paths + 1, n), np.float32)
    force, metric = np.empty((LANES, n)), np.empty((LANES, n, n))
    row, touched = np.zeros(gradients.shape[1]), np.empty(gradients.shape[1], np.int64)
    every, no_felt = np.arange(n_paths), np.empty((0, 0), np.uint64)
    paths = Paths(rows.regions, rows.weights, turns, no_felt, rows.cotangents)
    for task in range(first, last):
        t = chosen[task]
        count = choose_rows(
            grid, sources[t], t, states, slopes[task], curvatures[task], places, work, force,
            metric, rows,
        )  # fmt: skip
        fill_table(mesh, velocities[task], -1.0, factors, table)
        field = Field(table, np.float32(lengths[task]), np.float32(0.0))
        log.last[:count] = -1
        log.n_entries[0] = 0
        follow(mesh, field, lanes, every, count, paths, log)
        entries[task] = log.n_entries[0]
        if log.n_entries[0] > capacity:
            continue
        gradient, hessian = gradients[into[task]], hessians[into[task]]
        gradient[:] = 0.0
        hessian[:] = 0.0
        for path in range(count):
            n_touched = collect_row(mesh, unknown, path, log, row, touched)
            slope, curvature = rows.slopes[path], rows.curvatures[path]
            add_square(row, touched, n_touched, slope, curvature, gradient, hessian)
            for i in range(n_touched):
                row[touched[i]] = 0.0


# -- changes at a few nodes


class Backup(NamedTuple):
    """States of the listed pixels before a change."""

    todo: NDArray[np.int64]  # (n, m), numbers of the pixels
    n_listed: NDArray[np.int64]  # (n,), how many are listed
    old: States


@part
def list_affected(nodes_met, changed, todo):
    """List pixels whose paths met any of the changed nodes; returns how many."""
    count = 0
    for i in range(len(nodes_met)):
        hit = np.uint64(0)
        for word in range(len(changed)):
            hit |= nodes_met[i, word] & changed[word]
        todo[count] = i
        count += hit != 0
    return count


@part
def copy_pixels(todo, count, t, source, target):
    """Copy what is known of some pixels of pair t from one set of states to another."""
    ndim = source.weights.shape[2]
    for j in range(count):
        i = todo[j]
        target.regions[t, i] = source.regions[t, i]
        for k in range(ndim):
            target.weights[t, i, k] = source.weights[t, i, k]
            target.turns[t, i, k] = source.turns[t, i, k]
            target.positions[t, i * ndim + k] = source.positions[t, i * ndim + k]
        for word in range(source.nodes_met.shape[2]):
            target.nodes_met[t, i, word] = source.nodes_met[t, i, word]
        for c in range(source.values.shape[1]):
            target.values[t, c, i] = source.values[t, c, i]


@kernel
def retrace(
    first, last, mesh, grid, velocities, lengths, ease, chosen, changed, sources, states, backup
):
    """:func:`trace` after a change at some nodes: only pixels that it affects are followed anew.

    Parameters
    ----------
    changed : (k, words)
        The set of nodes whose velocities have changed, for each chosen pair.
    backup : Backup
        Receives what the pixels followed anew were before.
    """
    n = len(mesh.cells)
    table, factors = make_table(mesh)
    lanes, log = make_lanes(mesh), make_log(n, 0, 0)
    places, work = interpolation_scratch(LINEAR, grid.shape, grid.sizes)
    together = np.empty(LANES * n, np.float32)
    seen = np.empty((sources.shape[1], LANES), np.float32)
    no_cotangents = np.empty((0, 0), np.float32)
    for task in range(first, last):
        t = chosen[task]
        todo, positions, values = backup.todo[t], states.positions[t], states.values[t]
        paths = Paths(
            states.regions[t],
            states.weights[t],
            states.turns[t],
            states.nodes_met[t],
            no_cotangents,
        )
        count = list_affected(states.nodes_met[t], changed[task], todo)
        backup.n_listed[t] = count
        copy_pixels(todo, count, t, states, backup.old)
        fill_table(mesh, velocities[task], 1.0, factors, table)
        field = Field(table, np.float32(lengths[task]), np.float32(min(ease[task], 1e30)))
        restart(grid, todo, count, paths)
        follow(mesh, field, lanes, todo, count, paths, log)
        for start in range(0, count, LANES):
            here = min(LANES, count - start)
            for j in range(here):
                i = todo[start + j]
                place(mesh, i, paths, positions)
                for k in range(n):
                    together[j * n + k] = positions[i * n + k]
            see(grid, sources[t], together, 0, here, places, work, seen, 0)
            for j in range(here):
                for c in range(len(seen)):
                    values[c, todo[start + j]] = seen[c, j]


@kernel
def restore(first, last, chosen, backup, states):
    """Undo :func:`retrace` for the chosen pairs."""
    for task in range(first, last):
        t = chosen[task]
        copy_pixels(backup.todo[t], backup.n_listed[t], t, backup.old, states)
