"""The cells on which velocity fields are affine.

The unit interval, square or cube is cut into a grid of boxes, and each box into simplices:

====  ===============================  ==================================================
axes  simplices per box                a simplex is spanned by
====  ===============================  ==================================================
1     1 (the interval)                 its two ends
2     4 (the paper's, its figure 2a)   the box centre and one side
3     24                               the box centre, a face centre and one edge of it
====  ===============================  ==================================================

The 3-D cut extends the 2-D one: every face of a box is cut like the paper's square. The cut is
conforming and treats all axes alike. The signs of a point's coordinates relative to the box centre,
and the order of their magnitudes, determine the simplex that contains it, so lookup is O(1) in
every dimension.

Outside the domain the velocity is that of the nearest domain point. This extension is piecewise
affine too, on unbounded cells that are simplices with some vertices at infinity: the strip beyond
a border side of a box is spanned by the two ends of the side and the outward direction. In
homogeneous coordinates a vertex is ``(position, 1)`` and a direction ``(direction, 0)``, so the
rest of the library treats both alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

MAX_AXES = 3


@dataclass(frozen=True)
class Tessellation:
    """A grid of boxes over the unit domain, cut into simplices."""

    cells: tuple[int, ...]  # boxes per axis
    periodic: bool = False  # opposite sides are identified; the domain then has no outside

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.cells)

    @property
    def n_cells(self) -> int:
        """Number of bounded simplices, N_c in the paper."""
        return int(np.prod(self.cells)) * (1, 4, 24)[self.ndim - 1]

    @cached_property
    def lattice(self) -> NDArray[np.int64]:
        """Vertices as integers, in units of half a box, sorted row-major: (n_vertices, ndim).

        Corners are even in every coordinate, box centres odd; a 3-D face centre is odd in two.
        """
        odd_counts = ((0,), (0, 2), (0, 2, 3))[self.ndim - 1]
        grid = np.indices([2 * n + 1 for n in self.cells]).reshape(self.ndim, -1).T
        return grid[np.isin((grid % 2).sum(axis=1), odd_counts)]

    @cached_property
    def vertices(self) -> NDArray[np.float64]:
        """Vertex positions in the unit domain: (n_vertices, ndim)."""
        return self.lattice / (2.0 * np.asarray(self.cells))

    @cached_property
    def simplices(self) -> NDArray[np.int64]:
        """Vertex indices of the bounded simplices, boxes row-major: (n_cells, ndim + 1)."""
        corners = np.indices(self.cells).reshape(self.ndim, -1).T * 2
        points = (corners[:, None, None] + _box_simplices(self.ndim)).reshape(-1, self.ndim)
        shape = [2 * n + 1 for n in self.cells]
        lattice, places = (np.ravel_multi_index(tuple(p.T), shape) for p in (self.lattice, points))
        return np.searchsorted(lattice, places).reshape(-1, self.ndim + 1)

    @cached_property
    def regions(self) -> NDArray[np.int64]:
        """Node indices of all cells, bounded ones first: (n_regions, ndim + 1).

        Node ``n_vertices + 2 k`` is the negative direction of axis k, node ``n_vertices + 2 k + 1``
        the positive one.
        """
        if self.periodic:
            return self.simplices
        unbounded = []
        end = 2 * np.asarray(self.cells)
        for n_directions in range(1, self.ndim + 1):
            for axes in combinations(range(self.ndim), n_directions):
                for ups in product((0, 1), repeat=n_directions):
                    on_side = (self.lattice[:, axes] == end[list(axes)] * ups).all(axis=1)
                    directions = len(self.lattice) + 2 * np.asarray(axes) + ups
                    for face in self._faces_within(on_side, self.ndim + 1 - n_directions):
                        unbounded.append([*face, *directions])
        return np.vstack([self.simplices, np.asarray(unbounded, dtype=np.int64)])

    def _faces_within(self, selected: NDArray[np.bool_], size: int) -> NDArray[np.int64]:
        """Distinct faces whose ``size`` vertices are all selected."""
        touching = self.simplices[selected[self.simplices].sum(axis=1) >= size]
        faces = {
            tuple(sorted(face))
            for simplex in touching
            for face in combinations(simplex.tolist(), size)
            if selected[list(face)].all()
        }
        return np.asarray(sorted(faces), dtype=np.int64).reshape(-1, size)

    @cached_property
    def nodes(self) -> NDArray[np.float64]:
        """Vertices, then directions, in homogeneous coordinates: (n_nodes, ndim + 1)."""
        points = np.hstack([self.vertices, np.ones((len(self.vertices), 1))])
        directions = np.zeros((2 * self.ndim, self.ndim + 1))
        for axis in range(self.ndim):
            directions[2 * axis, axis], directions[2 * axis + 1, axis] = -1.0, 1.0
        return np.vstack([points, directions])

    @cached_property
    def barycentric(self) -> NDArray[np.float64]:
        """Maps from a homogeneous point to node weights: (n_regions, node, ndim + 1)."""
        spans = np.swapaxes(self.nodes[self.regions], 1, 2)
        return np.asarray(np.linalg.inv(spans), np.float64)

    @cached_property
    def neighbors(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """The region across each face.

        Returns
        -------
        region : (n_regions, ndim + 1)
            Region across the face opposite node f; -1 for a face at infinity.
        position : (n_regions, ndim + 1, ndim + 1)
            ``position[r, f, g]`` is the place of node g of region r among the nodes of the region
            across face f; for g = f, the place of that region's node opposite the face.
        shift : (n_regions, ndim + 1, ndim)
            Subtracted from a point's coordinates on crossing (non-zero on a torus only).
        """
        n_nodes = self.ndim + 1
        first, second = self._face_pairs()
        here = np.concatenate([first, second])
        there = np.concatenate([second, first])
        (r, f), (s, g) = np.divmod(here, n_nodes), np.divmod(there, n_nodes)

        coordinates = self._node_lattice[self.regions]
        shift_lattice = (self._face_sums[here] - self._face_sums[there]) // self.ndim
        moved = coordinates[r] - shift_lattice[:, None, :] * coordinates[r][:, :, -1:]
        same = (moved[:, :, None, :] == coordinates[s][:, None, :, :]).all(axis=-1)
        where = same.argmax(axis=2)
        where[np.arange(len(f)), f] = g

        region = np.full((len(self.regions), n_nodes), -1)
        position = np.full((len(self.regions), n_nodes, n_nodes), -1)
        shift = np.zeros((len(self.regions), n_nodes, self.ndim))
        region[r, f], position[r, f] = s, where
        shift[r, f] = shift_lattice[:, :-1] / (2.0 * np.asarray(self.cells))
        return region, position, shift

    @cached_property
    def _node_lattice(self) -> NDArray[np.int64]:
        """Nodes in homogeneous coordinates, in units of half a box: (n_nodes, ndim + 1)."""
        directions = self.nodes[len(self.lattice) :].astype(np.int64)
        ones = np.ones((len(self.lattice), 1), dtype=np.int64)
        return np.vstack([np.hstack([self.lattice, ones]), directions])

    @cached_property
    def _face_sums(self) -> NDArray[np.int64]:
        """Sum of the nodes of each face; faces are ordered by region."""
        coordinates = self._node_lattice[self.regions]
        sums = coordinates.sum(axis=1, keepdims=True) - coordinates
        return sums.reshape(-1, self.ndim + 1)

    def _face_pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Indices of the two copies of every face, without faces at infinity."""
        if self.periodic:  # identified faces have the same centroid, modulo the period
            period = np.append(2 * self.ndim * np.asarray(self.cells), self.ndim + 1)
            keys = self._face_sums % period
        else:
            n_nodes = self.ndim + 1
            rest = [[g for g in range(n_nodes) if g != f] for f in range(n_nodes)]
            keys = np.sort(self.regions[:, rest].reshape(-1, self.ndim), axis=1)
        bounded = np.flatnonzero(self._face_sums[:, -1])
        order = bounded[np.lexsort(keys[bounded].T)]
        return order[0::2], order[1::2]


def _box_simplices(ndim: int) -> NDArray[np.int64]:
    """Simplices of one box in half-box coordinates: (simplices, ndim + 1, ndim).

    They are in the order of ``mesh.simplex_in_box``: by the axis along which a point is furthest
    from the centre, by its sign there, then (3-D) the same for the next axis.
    """
    everywhere = np.arange(ndim)

    def cut(center: NDArray[np.int64], axes: list[int]) -> list[list[NDArray[np.int64]]]:
        """Simplices of the face with this centre, which extends along the axes."""
        sides = [(a, np.where(everywhere == a, end, center)) for a in axes for end in (0, 2)]
        if len(axes) == 1:
            return [[side for _, side in sides]]
        return [
            [center, *rest] for a, side in sides for rest in cut(side, [b for b in axes if b != a])
        ]

    return np.asarray(cut(np.ones(ndim, np.int64), list(range(ndim))))
