"""The tessellation as plain arrays, and lookups in it, for compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.compiled import part
from dreamwarp.core.lanes import ROW, read
from dreamwarp.space.tessellation import Tessellation

# A point this far outside a cell, in barycentric weight, counts as inside: far above float64
# rounding of a weight, and too small to change a velocity.
WEIGHT_SLACK = 1e-13


class Kinds(NamedTuple):
    """Data shared by all regions of the same shape.

    All boxes are equal, so a mesh of thousands of regions has only a few kinds, and tables that are
    read at every crossing stay in the fastest cache. A way is a kind and a face to cross; way 0 is
    to stay in the region.
    """

    of: NDArray[np.int32]  # (regions,), kind of each region
    edges: NDArray[np.float32]  # (kinds, ndim, ndim): ∂p / ∂ξ, a row per node except the first
    slopes: NDArray[np.float64]  # (kinds, ndim, ndim): ∂ξ / ∂p, likewise
    gradients: NDArray[np.float32]  # (kinds, ndim, ndim + 1): ∂z / ∂p of all weights z, transposed
    finite: NDArray[np.float32]  # (kinds, ndim): 1 for a vertex, 0 for a direction
    columns: NDArray[np.float32]  # (kinds, 1 + (ndim + 1) ndim, row_length): see fast.fill_table
    renames: NDArray[np.float32]  # (ways x row_length,): [M | m] of ξ -> M ξ + m on crossing
    cotangent_maps: NDArray[np.float32]  # (ways, ndim, ndim): M⁻ᵀ


class Mesh(NamedTuple):
    """Arrays of a :class:`Tessellation`; see its properties for their meaning.

    ``origins[r]`` is the position of a region's first node; no other vertex of the region is
    further than ``longest_edge`` from it. On crossing the face opposite node f, the (small) weight
    of f is distributed: node ``position[r, f, g]`` of the neighbour gets ``fold[r, f, g]`` times
    it. ``across[r, f + 1]`` is the neighbour and ``ways[r, f + 1]`` the way to cross (see
    ``Kinds``); column 0 is for paths that stay in the region.
    """

    cells: tuple[int, ...]
    periodic: bool
    nodes: NDArray[np.float64]
    regions: NDArray[np.int64]
    weights: NDArray[np.float64]
    neighbor: NDArray[np.int64]
    position: NDArray[np.int64]
    shift: NDArray[np.float64]
    fold: NDArray[np.float64]
    origins: NDArray[np.float64]
    longest_edge: float
    across: NDArray[np.uint32]
    ways: NDArray[np.uint32]
    kinds: Kinds


def build_mesh(tessellation: Tessellation) -> Mesh:
    """The arrays of a tessellation."""
    neighbor, position, shift = tessellation.neighbors
    weights = np.ascontiguousarray(tessellation.barycentric)
    nodes = tessellation.nodes[tessellation.regions]
    fold = _fold(tessellation)
    kinds = _find_kinds(nodes, weights, position, fold)
    across, ways = _crossings(neighbor, kinds.of)
    return Mesh(
        tessellation.cells,
        tessellation.periodic,
        tessellation.nodes,
        tessellation.regions,
        weights,
        neighbor,
        position,
        shift,
        fold,
        np.ascontiguousarray(nodes[:, 0, :-1]),
        float(np.linalg.norm(kinds.edges * kinds.finite[..., None], axis=2).max()),
        across,
        ways,
        kinds,
    )


def _find_kinds(
    nodes: NDArray[np.float64],
    weights: NDArray[np.float64],
    position: NDArray[np.int64],
    fold: NDArray[np.float64],
) -> Kinds:
    edges = (nodes[:, 1:] - nodes[:, 1:, -1:] * nodes[:, :1])[:, :, :-1]
    shape = np.concatenate([table.reshape(len(nodes), -1) for table in (edges, position, fold)], 1)
    _, example, kind = np.unique(shape.round(9), axis=0, return_index=True, return_inverse=True)
    slopes = np.ascontiguousarray(weights[example, 1:, :-1])
    finite = nodes[example, 1:, -1]
    renames = _rename_maps(position[example], fold[example], finite)
    square = renames[..., :-1]
    return Kinds(
        kind.reshape(-1).astype(np.int32),
        edges[example].astype(np.float32),
        slopes,
        np.swapaxes(weights[example, :, :-1], 1, 2).astype(np.float32, order="C"),
        finite.astype(np.float32),
        _table_columns(slopes, finite),
        _pad_rows(renames.reshape(len(renames), -1)).reshape(-1),
        np.swapaxes(np.linalg.inv(square), 1, 2).astype(np.float32, order="C"),
    )


def _crossings(
    neighbor: NDArray[np.int64], kind: NDArray[np.int32]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    n_regions, n_faces = neighbor.shape
    itself = np.arange(n_regions)[:, None]
    ways = 1 + n_faces * kind[:, None] + np.arange(n_faces)
    inside = neighbor >= 0  # no path reaches a face at infinity
    across = np.hstack([itself, np.where(inside, neighbor, itself)])
    return across.astype(np.uint32), np.pad(ways * inside, ((0, 0), (1, 0))).astype(np.uint32)


def _rename_maps(
    position: NDArray[np.int64], fold: NDArray[np.float64], finite: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The map [M | m] of ξ for every way: (ways, ndim, ndim + 1)."""
    n_kinds, ndim = finite.shape
    # All weights from (ξ, 1): the first is 1 - w·ξ.
    weights = np.zeros((n_kinds, ndim + 1, ndim + 1))
    weights[:, 0, :-1], weights[:, 0, -1] = -finite, 1.0
    weights[:, 1:, :-1] = np.eye(ndim)
    ways = [np.eye(ndim, ndim + 1)]
    for kind, face in np.ndindex(n_kinds, ndim + 1):
        shared = weights[kind].copy()
        shared[face] = 0.0
        shared += fold[kind, face][:, None] * weights[kind, face]
        renamed = np.empty_like(shared)
        renamed[position[kind, face]] = shared
        at_infinity = position[kind, face, 0] < 0
        ways.append(ways[0] if at_infinity else renamed[1:])
    return np.asarray(ways)


def _table_columns(slopes: NDArray[np.float64], finite: NDArray[np.float64]) -> NDArray[np.float32]:
    """Terms of a region's table row: (kinds, 1 + (ndim + 1) ndim, row_length).

    The first is w, which does not depend on the field. The others, one per node and component, are
    multiplied by a velocity: that of the first node, or that of another node minus that of the
    first.
    """
    n_kinds, ndim = finite.shape
    maps = np.zeros((n_kinds, ndim + 1, ndim, ndim, ndim + 1))
    for node in range(ndim + 1):
        maps[:, node, :, :, node - 1] = np.swapaxes(slopes, 1, 2)
    columns = np.zeros((n_kinds, 1 + (ndim + 1) * ndim, ndim * (ndim + 2)))
    columns[:, 0, :ndim] = finite
    columns[:, 1:, ndim:] = maps.reshape(n_kinds, (ndim + 1) * ndim, ndim * (ndim + 1))
    return _pad_rows(columns)


def _pad_rows(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Rows padded to whole vectors, in float32."""
    missing = -values.shape[-1] % ROW
    padding = [(0, 0)] * (values.ndim - 1) + [(0, missing)]
    return np.pad(values, padding).astype(np.float32)


def _fold(tessellation: Tessellation) -> NDArray[np.float64]:
    """Each node's weights in the region across the face opposite to it."""
    neighbor, position, shift = tessellation.neighbors
    node = tessellation.nodes[tessellation.regions]
    node[:, :, :-1] -= shift * node[:, :, -1:]
    weights = np.einsum("rfgh,rfh->rfg", tessellation.barycentric[neighbor], node)
    return np.take_along_axis(weights, np.maximum(position, 0), axis=2)


@part
def simplex_in_box(cells, point):
    """Index of the bounded simplex that contains a point of the domain."""
    ndim = len(cells)
    box = 0
    first = 0
    offset_first = -1.0
    second = 0
    offset_second = -1.0
    for k in range(ndim):
        scaled = point[k] * cells[k]
        index = int(min(max(scaled, 0.0), cells[k] - 0.5))
        box = box * cells[k] + index
        offset = scaled - index - 0.5
        # The two axes with the largest distances from the centre; the low bit is the sign.
        here, size = 2 * k + (offset > 0.0), abs(offset)
        above, between = size > offset_first, size > offset_second
        second = first if above else (here if between else second)
        offset_second = offset_first if above else (size if between else offset_second)
        first = here if above else first
        offset_first = size if above else offset_first
    if ndim == 1:
        return box
    if ndim == 2:
        return box * 4 + first
    axis, second_axis = first // 2, second // 2
    rank = second_axis - (second_axis > axis)
    return box * 24 + first * 4 + rank * 2 + second % 2


@part
def locate(mesh, point, weights):
    """Region of a point inside or outside the domain; its node weights go to ``weights``.

    Starts at the bounded cell nearest to the point. While a weight is negative, crosses the face of
    the lowest weight.
    """
    ndim = len(mesh.cells)
    region = simplex_in_box(mesh.cells, point)
    for _ in range(8 * (ndim + 1)):
        worst, lowest = 0, np.inf
        for f in range(ndim + 1):
            at = (region * (ndim + 1) + f) * (ndim + 1)
            weight = read(mesh.weights, 0, at + ndim)
            for k in range(ndim):
                weight += read(mesh.weights, 0, at + k) * point[k]
            weights[f] = weight
            worst = f if weight < lowest else worst
            lowest = min(lowest, weight)
        if lowest >= -WEIGHT_SLACK or mesh.periodic or mesh.neighbor[region, worst] < 0:
            break
        region = mesh.neighbor[region, worst]
    return region


@part
def enter(mesh, point, local, weights, travelled):
    """Region, weights and number of turns round the torus of a point."""
    for k in range(len(mesh.cells)):
        travelled[k] = np.floor(point[k]) if mesh.periodic else 0.0
        local[k] = point[k] - travelled[k]
    return locate(mesh, local, weights)
