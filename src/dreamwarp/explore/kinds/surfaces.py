"""Surfaces to draw, and their simplification."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align.points import thin
from dreamwarp.data.shapes import ShapeSet

# Cells per axis of the finest grid that is tried, and the factor to the next.
FINEST, COARSER = 128, 0.8


class Surface(NamedTuple):
    """Points (m, 3) of the unit cube and triangles (f, 3); without triangles, a set of points."""

    points: NDArray[np.float64]
    faces: NDArray[np.int64]


def surface_of(shapes: ShapeSet, index: int) -> Surface:
    """A shape in the unit cube."""
    points = shapes.boxes[index].to_unit(shapes.points[index])
    faces = getattr(shapes.meshes[index], "faces", None) if shapes.meshes else None
    return Surface(points, np.asarray(np.empty((0, 3)) if faces is None else faces, np.int64))


def simplify(surface: Surface, n_most: int) -> Surface:
    """A surface of at most ``n_most`` triangles, or points if it has no triangles.

    Points in the same cell of a grid are merged into the first, and triangles that collapse are
    dropped. The grid is made coarser until few enough are left.
    """
    points, faces = surface
    if not len(faces):
        return Surface(thin(points, n_most), faces)
    n_cells = FINEST
    while len(faces) > n_most and n_cells > 2:
        cells = np.floor(surface.points * n_cells).astype(np.int64)
        _, firsts, merged = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        faces = merged.ravel()[surface.faces]
        a, b, c = faces.T
        faces = faces[(a != b) & (b != c) & (c != a)]
        # Triangles of the same corners, in whatever order, are one.
        faces = faces[np.unique(np.sort(faces, axis=1), axis=0, return_index=True)[1]]
        points, n_cells = surface.points[firsts], int(COARSER * n_cells)
    return Surface(points, faces[:n_most])
