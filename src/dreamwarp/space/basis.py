"""Orthonormal coordinates θ for the continuous piecewise-affine fields (equation 1 of the paper).

A continuous field is fixed by its velocities at the vertices, so continuity needs no constraints:
if K takes vertex velocities to affine maps, the columns of K span the space, and orthonormal
columns are B = K L⁻ᵀ, where L Lᵀ = Kᵀ K is the Cholesky factorisation. That is Gram-Schmidt on the
vertices in row-major order: unlike singular vectors it leaves no choice of sign or order, so every
machine gets the same basis. K is sparse and components of the velocity do not mix, so L is a band
matrix, and θ turns into vertex velocities in O(d x bandwidth) instead of O(d x D).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dreamwarp.core.compiled import kernel
from dreamwarp.space.tessellation import Tessellation

BOUNDARIES = ("zero", "slip", "free", "periodic")


@dataclass(frozen=True)
class Basis:
    """How θ fixes the vertex velocities.

    Attributes
    ----------
    unknown : (ndim, n_vertices)
        Number of the unknown that is component k of the velocity at a vertex; -1 where it is zero.
    factor : (n_unknowns, bandwidth + 1)
        Rows of the banded factor L; the diagonal stands last. θ = Lᵀ u for unknowns u.
    mixing : (n_unknowns, d) or None
        Under volume preservation, u = mixing θ; ``factor`` is then the identity.
    """

    unknown: NDArray[np.int64]
    factor: NDArray[np.float64]
    mixing: NDArray[np.float64] | None

    @cached_property
    def columns(self) -> NDArray[np.float64]:
        """L made ready for back substitution: (n_unknowns, bandwidth + 1).

        u_i = Σ_q columns[i, q] x_{i + q} solves Lᵀ u = x, from the last i to the first, if u_j
        takes the place of x_j as soon as it is known.
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
        """The same for forward substitution: u_i = Σ_q rows[i, q] x_{i - bandwidth + q}."""
        entries = -self.factor
        entries[:, -1] = 1.0
        return entries / self.factor[:, -1:]

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.factor) if self.mixing is None else self.mixing.shape[1]


def build_basis(tessellation: Tessellation, boundary: str, volume_preserving: bool) -> Basis:
    """Orthonormal basis of the fields that obey a boundary rule."""
    unknown = _number_unknowns(tessellation, boundary)
    n_unknowns = int(unknown.max(initial=-1)) + 1
    if not volume_preserving:
        return Basis(unknown, _cholesky_rows(tessellation, unknown), None)
    with threadpool_limits(1):  # small matrices: threads would only wait for each other
        mixing = _divergence_free(tessellation, unknown)
    return Basis(unknown, np.ones((n_unknowns, 1)), mixing)


def _number_unknowns(tessellation: Tessellation, boundary: str) -> NDArray[np.int64]:
    lattice, end = tessellation.lattice, 2 * np.asarray(tessellation.cells)
    on_side = (lattice == 0) | (lattice == end)
    ndim, n_vertices = tessellation.ndim, len(lattice)
    if boundary == "periodic":
        shape = tuple(end + 1)
        own = np.ravel_multi_index(tuple(lattice.T), shape)
        glued = np.ravel_multi_index(tuple((lattice % end).T), shape)
        kept = own == glued
        number = np.cumsum(kept) - 1
        representative = number[np.searchsorted(own, glued)]
        return representative + kept.sum() * np.arange(ndim)[:, None]
    free = {
        "zero": np.broadcast_to(~on_side.any(axis=1), (ndim, n_vertices)),
        "slip": ~on_side.T,
        "free": np.ones((ndim, n_vertices), bool),
    }[boundary]
    return np.where(free, np.cumsum(free).reshape(free.shape) - 1, -1)


def _gram_entries(
    tessellation: Tessellation, unknown: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Rows, columns and values of Kᵀ K, entries to be summed."""
    simplices = tessellation.simplices
    weights = tessellation.barycentric[: len(simplices)]
    local = weights @ np.swapaxes(weights, 1, 2)
    rows = np.broadcast_to(unknown[:, simplices][..., :, None], (len(unknown), *local.shape))
    columns = np.broadcast_to(unknown[:, simplices][..., None, :], rows.shape)
    values = np.broadcast_to(local, rows.shape)
    kept = (rows >= 0) & (columns >= 0)
    return rows[kept], columns[kept], values[kept]


def _cholesky_rows(tessellation: Tessellation, unknown: NDArray[np.int64]) -> NDArray[np.float64]:
    rows, columns, values = _gram_entries(tessellation, unknown)
    n = int(unknown.max(initial=-1)) + 1
    if n == 0:
        return np.ones((0, 1))
    lower = rows >= columns
    rows, columns, values = rows[lower], columns[lower], values[lower]
    bandwidth = int((rows - columns).max())
    band = np.zeros((n, bandwidth + 1))
    np.add.at(band, (rows, bandwidth - rows + columns), values)
    factorise_rows(band)
    return band


@kernel
def factorise_rows(band):
    """Cholesky factorisation in place, rows of a band matrix with the diagonal last.

    Not LAPACK's: that sums in an order, and on threads, of its own choice.
    """
    n, width = band.shape
    for i in range(n):
        for j in range(max(0, i - width + 1), i + 1):
            total = band[i, width - 1 - i + j]
            for k in range(max(0, i - width + 1, j - width + 1), j):
                total -= band[i, width - 1 - i + k] * band[j, width - 1 - j + k]
            diagonal = band[j, width - 1]
            band[i, width - 1 - i + j] = np.sqrt(total) if i == j else total / diagonal


def _divergence_free(tessellation: Tessellation, unknown: NDArray[np.int64]) -> NDArray[np.float64]:
    """Unknowns of orthonormal fields without divergence in any cell: (n_unknowns, d)."""
    simplices, ndim = tessellation.simplices, tessellation.ndim
    weights = tessellation.barycentric[: len(simplices)]
    n = int(unknown.max(initial=-1)) + 1
    divergence = np.zeros((len(simplices), n))
    to_affine = np.zeros((len(simplices), ndim, ndim + 1, n))
    for k in range(ndim):
        column = unknown[k][simplices]
        for node in range(ndim + 1):
            cell = np.flatnonzero(column[:, node] >= 0)
            at = column[cell, node]
            np.add.at(divergence, (cell, at), weights[cell, node, k])
            for j in range(ndim + 1):
                np.add.at(to_affine[:, k, j], (cell, at), weights[cell, node, j])
    null = scipy.linalg.null_space(divergence) if n else np.zeros((0, 0))
    # Only null's span is unique. Its reduced echelon form is canonical, and so is what
    # Gram-Schmidt (QR with positive diagonal) makes of that.
    free = _independent_rows(null)
    echelon = null @ np.linalg.inv(null[free])
    triangular = np.linalg.qr(to_affine.reshape(-1, n) @ echelon, mode="r")
    signs = np.where(np.diag(triangular) < 0, -1.0, 1.0)[:, None]
    solution = scipy.linalg.solve_triangular((signs * triangular).T, echelon.T, lower=True)
    return np.ascontiguousarray(solution.T)


def _independent_rows(matrix: NDArray[np.float64]) -> list[int]:
    """The last rows, counted from the end, that are independent of those after them."""
    chosen: list[int] = []
    residual = matrix.copy()
    for row in range(len(matrix) - 1, -1, -1):
        length = np.linalg.norm(residual[row])
        if length > 1e-8:
            chosen.append(row)
            direction = residual[row] / length
            residual -= np.outer(residual @ direction, direction)
    return chosen[::-1]
