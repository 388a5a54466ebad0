"""The tessellation as plain arrays, and lookups in it, for compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.space.compiled import part
from dreamwarp.space.tessellation import Tessellation

# A point this far outside a cell, in barycentric weight, still counts as inside. It is far above
# float64 rounding of a weight and far below anything a velocity could notice.
WEIGHT_SLACK = 1e-13


class Kinds(NamedTuple):
    """What regions of the same shape have in common, once for all of them.

    Boxes are alike, so a mesh has thousands of regions but only a handful of kinds, and tables that
    a path looks things up in at every crossing stay in the processor's nearest cache.
    """

    of: NDArray[np.int32]  # (regions,), the kind of each
    position: NDArray[np.int32]  # (kinds, ndim + 1, ndim + 1), as in Mesh
    fold: NDArray[np.float32]  # (kinds, ndim + 1, ndim + 1), as in Mesh
    edges: NDArray[np.float32]  # (kinds, ndim, ndim): ∂p / ∂ξ, a row per node but the first
    slopes: NDArray[np.float64]  # (kinds, ndim, ndim): ∂ξ / ∂p, likewise
    finite: NDArray[np.float32]  # (kinds, ndim): 1 for a vertex, 0 for a direction


class Mesh(NamedTuple):
    """Arrays of a :class:`Tessellation`; see its properties for their meaning.

    ``origins[r]`` is the position of a region's first node. ``fold[r, f, g]`` says how the weight
    of node f, small when a path is at the face opposite f, is shared out on crossing: it goes to
    the node that stands at ``position[r, f, g]`` in the neighbour with this factor.
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
    kinds: Kinds


def build_mesh(tessellation: Tessellation) -> Mesh:
    """The arrays of a tessellation."""
    neighbor, position, shift = tessellation.neighbors
    weights = np.ascontiguousarray(tessellation.barycentric)
    nodes = tessellation.nodes[tessellation.regions]
    fold = _fold(tessellation)
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
        _find_kinds(nodes, weights, position, fold),
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
    return Kinds(
        kind.reshape(-1).astype(np.int32),
        position[example].astype(np.int32),
        fold[example].astype(np.float32),
        edges[example].astype(np.float32),
        np.ascontiguousarray(weights[example, 1:, :-1]),
        nodes[example, 1:, -1].astype(np.float32),
    )


def _fold(tessellation: Tessellation) -> NDArray[np.float64]:
    """Every node in the weights of the region across the face opposite to it."""
    neighbor, position, shift = tessellation.neighbors
    node = tessellation.nodes[tessellation.regions]
    node[:, :, :-1] -= shift * node[:, :, -1:]
    weights = np.einsum("rfgh,rfh->rfg", tessellation.barycentric[neighbor], node)
    return np.take_along_axis(weights, np.maximum(position, 0), axis=2)


@part
def simplex_in_box(cells, point):
    """Number of the bounded simplex that holds a point of the domain."""
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
        # Axes ranked by distance from the centre; their signs ride along in the low bit.
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
    """Region of a point, inside or outside the domain; its node weights are put in ``weights``.

    Starts from the bounded cell nearest the point and walks across the face it lies beyond most.
    """
    ndim = len(mesh.cells)
    region = simplex_in_box(mesh.cells, point)
    for _ in range(8 * (ndim + 1)):
        worst = 0
        for f in range(ndim + 1):
            weight = mesh.weights[region, f, ndim]
            for k in range(ndim):
                weight += mesh.weights[region, f, k] * point[k]
            weights[f] = weight
            if weight < weights[worst]:
                worst = f
        if weights[worst] >= -WEIGHT_SLACK or mesh.periodic or mesh.neighbor[region, worst] < 0:
            break
        region = mesh.neighbor[region, worst]
    return region


@part
def enter(mesh, point, local, weights, travelled):
    """Region, weights and turns round the torus of a point."""
    for k in range(len(mesh.cells)):
        travelled[k] = np.floor(point[k]) if mesh.periodic else 0.0
        local[k] = point[k] - travelled[k]
    return locate(mesh, local, weights)
