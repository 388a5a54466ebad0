"""Orthonormal coordinates θ for the continuous piecewise-affine fields (equation 1 of the paper).

A continuous field is determined by its velocities at the vertices. Let K map vertex velocities to
affine maps. Its columns span the space, and B = K L⁻ᵀ has orthonormal columns, where L Lᵀ = Kᵀ K is
the Cholesky factorisation. This is Gram-Schmidt on the vertices in row-major order. Unlike singular
vectors it has no free sign or order, so every machine gets the same basis. K is sparse and
components of the velocity do not mix, so L is a band matrix, and converting θ to vertex velocities
takes O(d x bandwidth) operations instead of O(d x D).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dreamwarp.core.compiled import kernel
from dreamwarp.space.tessellation import Tessellation

BOUNDARIES = ("zero", "slip", "free", "periodic")


@dataclass(frozen=True)
class Basis:
    """The relation between θ and the vertex velocities: θ = Lᵀ u for unknowns u.

    ``unknown`` (ndim, n_vertices) is the index of the unknown that is component k of the velocity
    at a vertex, -1 where it is zero. ``factor`` (d, bandwidth + 1) are the rows of the banded
    factor L, diagonal last.
    """

    unknown: NDArray[np.int64]
    factor: NDArray[np.float64]

    @cached_property
    def columns(self) -> NDArray[np.float64]:
        """L rearranged for back substitution: (d, bandwidth + 1).

        u_i = Σ_q columns[i, q] x_{i + q}, from the last i to the first, solves Lᵀ u = x if each u_j
        overwrites x_j.
        """
        n, width = self.factor.shape
        below = np.arange(n)[:, None] + np.arange(width)
        inside = below < n
        entries = self.factor[np.where(inside, below, 0), width - 1 - np.arange(width)]
        entries = np.where(inside, -entries, 0.0)
        entries[:, 0] = 1.0
        return np.ascontiguousarray(entries / self.factor[:, -1:])

    @cached_property
    def rows(self) -> NDArray[np.float64]:
        """L rearranged for forward substitution: u_i = Σ_q rows[i, q] x_{i - bandwidth + q}."""
        entries = -self.factor
        entries[:, -1] = 1.0
        return entries / self.factor[:, -1:]


def build_basis(tessellation: Tessellation, boundary: str) -> Basis:
    """Orthonormal basis of the fields that obey a boundary condition."""
    unknown = _number_unknowns(tessellation, boundary)
    return Basis(unknown, _cholesky_rows(tessellation, unknown))


def _number_unknowns(tessellation: Tessellation, boundary: str) -> NDArray[np.int64]:
    lattice, end = tessellation.lattice, 2 * np.asarray(tessellation.cells)
    on_side = (lattice == 0) | (lattice == end)
    ndim, n_vertices = tessellation.ndim, len(lattice)
    if boundary == "periodic":
        glued = np.ravel_multi_index(tuple((lattice % end).T), tuple(end + 1))
        kept, number = np.unique(glued, return_inverse=True)
        return number + len(kept) * np.arange(ndim)[:, None]
    free = {
        "zero": np.broadcast_to(~on_side.any(axis=1), (ndim, n_vertices)),
        "slip": ~on_side.T,
        "free": np.ones((ndim, n_vertices), bool),
    }[boundary]
    return np.where(free, np.cumsum(free).reshape(free.shape) - 1, -1)


def _cholesky_rows(tessellation: Tessellation, unknown: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rows of the factor of Kᵀ K, assembled cell by cell."""
    n = int(unknown.max(initial=-1)) + 1
    if n == 0:
        return np.ones((0, 1))
    simplices = tessellation.simplices
    weights = tessellation.barycentric[: len(simplices)]
    local = weights @ np.swapaxes(weights, 1, 2)
    rows = np.broadcast_to(unknown[:, simplices][..., :, None], (len(unknown), *local.shape))
    columns = np.broadcast_to(unknown[:, simplices][..., None, :], rows.shape)
    values = np.broadcast_to(local, rows.shape)
    lower = (columns >= 0) & (rows >= columns)
    rows, columns, values = rows[lower], columns[lower], values[lower]
    bandwidth = int((rows - columns).max())
    band = np.zeros((n, bandwidth + 1))
    np.add.at(band, (rows, bandwidth - rows + columns), values)
    factorise_rows(band)
    return band


@kernel
def factorise_rows(band):
    """Cholesky factorisation in place, of the rows of a band matrix with the diagonal last.

    LAPACK is not used: its order of summation depends on the library and its threads.
    """
    n, width = band.shape
    for i in range(n):
        for j in range(max(0, i - width + 1), i + 1):
            total = band[i, width - 1 - i + j]
            for k in range(max(0, i - width + 1, j - width + 1), j):
                total -= band[i, width - 1 - i + k] * band[j, width - 1 - j + k]
            diagonal = band[j, width - 1]
            band[i, width - 1 - i + j] = np.sqrt(total) if i == j else total / diagonal
