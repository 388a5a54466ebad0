"""Slow, obvious references: plain loops and general-purpose solvers.

Nothing here uses the library, so what it says about cells, fields and flows is a second opinion.

What a warp is: ``simplices``, ``affine_basis``, ``Field``, ``follow``. Which pairs to align:
``neighbor_edges``. What is plausible: ``smooth_covariance``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import exp

import numpy as np
import scipy.integrate
import scipy.linalg
import scipy.optimize
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# -- what a warp is


def simplices(cells: Sequence[int]) -> Array:
    """Corner points of all cells, by the words of the definition: (n_cells, ndim + 1, ndim).

    A box is one interval, or its centre with each side, or its centre with each face centre with
    each edge of that face.
    """
    found = []
    for index in np.ndindex(*cells):
        low = np.array(index) / np.array(cells)
        high = (np.array(index) + 1) / np.array(cells)
        found.extend(_box_simplices(low, high))
    return np.array(found)


def _box_simplices(low: Array, high: Array) -> list[list[Array]]:
    ndim, centre = len(low), (low + high) / 2
    if ndim == 1:
        return [[low, high]]
    corners = [np.array(corner) for corner in product(*zip(low, high, strict=True))]
    found = []
    for axis in range(ndim):
        for side in (low[axis], high[axis]):
            face = [corner for corner in corners if corner[axis] == side]
            if ndim == 2:
                found.append([centre, *face])
                continue
            for one, other in _edges(face):
                found.append([centre, np.mean(face, axis=0), one, other])
    return found


def _edges(face: list[Array]) -> list[tuple[Array, Array]]:
    """Pairs of corners of a rectangle that differ along one axis only."""
    return [
        (face[i], face[j]) for i in range(4) for j in range(i) if (face[i] != face[j]).sum() == 1
    ]


def affine_basis(corners: Array, boundary: str) -> Array:
    """Orthonormal columns that span the allowed fields, as null space of every rule: (D, d).

    Parameters
    ----------
    corners : (n_cells, ndim + 1, ndim)
        Corner points of the cells, in the order in which the affine maps are listed.
    """
    n_cells, _, ndim = corners.shape
    rules: list[Array] = []
    seen: dict[tuple[float, ...], tuple[int, Array]] = {}

    def velocity(cell: int, point: Array) -> Array:
        """Rows (ndim, D) that take the listed affine maps to the velocity of a cell at a point."""
        rows = np.zeros((ndim, n_cells, ndim, ndim + 1))
        for k in range(ndim):
            rows[k, cell, k] = [*point, 1.0]
        return rows.reshape(ndim, -1)

    for cell in range(n_cells):
        for point in corners[cell]:
            name = tuple(np.round(point, 9) % (1.0 if boundary == "periodic" else np.inf))
            if name in seen:
                rules.extend(velocity(cell, point) - velocity(*seen[name]))
            else:
                seen[name] = cell, point
            on_border = (point == 0.0) | (point == 1.0)
            if boundary == "zero" and on_border.any():
                rules.extend(velocity(cell, point))
            if boundary == "slip":
                rules.extend(velocity(cell, point)[on_border])
    if not rules:
        return np.eye(n_cells * ndim * (ndim + 1))
    return np.asarray(scipy.linalg.null_space(np.array(rules)))


class Field:
    """A velocity field, by interpolation between vertices.

    Parameters
    ----------
    cells : sequence of int
    vertices, velocities : (n_vertices, ndim)
    periodic : bool
        Whether points wrap round; otherwise those outside take the velocity of the nearest point
        of the domain.
    """

    def __init__(
        self, cells: Sequence[int], vertices: Array, velocities: Array, *, periodic: bool
    ) -> None:
        self.periodic = periodic
        corners = simplices(cells)
        n_cells, n_corners, _ = corners.shape
        homogeneous = np.concatenate([corners, np.ones((n_cells, n_corners, 1))], axis=2)
        self._to_weights = np.linalg.inv(np.swapaxes(homogeneous, 1, 2))
        distances = np.abs(corners[:, :, None] - vertices).max(axis=-1)
        assert distances.min(axis=-1).max() < 1e-12, "a cell's corner is not among the vertices"
        self._values = velocities[distances.argmin(axis=-1)]

    def __call__(self, point: ArrayLike) -> Array:
        """v at one point."""
        point = np.asarray(point, dtype=np.float64)
        velocity, _ = self.piece(point)
        return velocity(point)

    def piece(self, point: Array) -> tuple[Affine, Affine]:
        """The velocity near a point as an affine map, and margins that are >= 0 where it holds."""
        to_domain = self._nearest(point)
        weights = self._to_weights @ to_domain @ np.append(point, 1.0)
        cell = weights.min(axis=1).argmax()
        assert weights[cell].min() > -1e-9, f"{point} lies in no cell"
        to_weights = self._to_weights[cell] @ to_domain
        margins = np.vstack([to_weights, *self._sides(point)])
        return Affine(self._values[cell].T @ to_weights), Affine(margins)

    def _nearest(self, point: Array) -> Array:
        """The map to the domain point whose velocity counts, homogeneous: (ndim + 1, ndim + 1)."""
        matrix = np.eye(len(point) + 1)
        if self.periodic:
            matrix[:-1, -1] = -np.floor(point)
        else:
            for k in np.flatnonzero((point < 0.0) | (point > 1.0)):
                matrix[k, k], matrix[k, -1] = 0.0, float(point[k] > 1.0)
        return matrix

    def _sides(self, point: Array) -> list[Array]:
        """Rows that are >= 0 on this side of the domain's borders."""
        rows = []
        for k in range(0 if self.periodic else len(point)):
            for side in (0.0, 1.0):
                row = np.zeros(len(point) + 1)
                row[k], row[-1] = 1.0, -side
                rows.append(row if point[k] >= side else -row)
        return rows


class Affine:
    """x -> matrix [x, 1], for one point (ndim,) or many (ndim, m)."""

    def __init__(self, matrix: Array) -> None:
        self._matrix, self._constant = matrix[:, :-1], matrix[:, -1]

    def __call__(self, points: Array) -> Array:
        constant = self._constant if points.ndim == 1 else self._constant[:, None]
        return np.asarray(self._matrix @ points + constant)


# A path runs at least this long in a piece, so it can't stall at a vertex; the error is its square.
SHORTEST = 1e-7


def follow(field: Field, point: ArrayLike, *, tolerance: float = 1e-12) -> Array:
    """Where the flow of a field carries a point in unit time, by an adaptive Runge-Kutta method.

    The field bends at cell borders, where no solver's error estimate can be trusted, so it is
    started anew at each of them.
    """
    time, position = 0.0, np.asarray(point, dtype=np.float64)
    while time < 1.0:
        velocity, margins = field.piece(position + SHORTEST * field(position))
        path = scipy.integrate.solve_ivp(
            lambda _, x, velocity=velocity: velocity(x),
            (time, min(time + 0.1, 1.0)),
            position,
            method="DOP853",
            rtol=tolerance,
            atol=tolerance,
            max_step=0.01,
            dense_output=True,
        )
        assert path.success, path.message
        time = _first_exit(path.sol, margins, time, path.t[-1])
        position = path.sol(time)
    return np.asarray(position)


def _first_exit(
    path: Callable[[ArrayLike], Array], margins: Affine, start: float, end: float
) -> float:
    """First time at which a margin turns negative, looking every 1e-4; else ``end``."""

    def lowest(time: ArrayLike) -> Array:
        return margins(path(time)).min(axis=0) + 1e-13

    first = min(start + SHORTEST, end)
    times = np.linspace(first, end, 2 + int((end - first) / 1e-4))
    outside = np.flatnonzero(lowest(times) < 0.0)
    if len(outside) == 0:
        return end
    if outside[0] == 0:
        return first
    bracket = times[outside[0] - 1], times[outside[0]]
    return float(scipy.optimize.brentq(lowest, *bracket, xtol=1e-15))


# -- values at moved points


def resample_at(
    image: Array,
    position: ArrayLike,
    interpolation: str = "linear",
    fill: str = "edge",
    fill_value: float = 0.0,
) -> float:
    """Value of one image (*spatial) at one point of the unit domain, pixel by pixel.

    A sum over all pixels near enough to count, each weighed by its distance along every axis.
    """
    places = np.asarray(position) * image.shape - 0.5
    if interpolation == "nearest":
        return _pixel(image, np.floor(places + 0.5).astype(int), fill, fill_value)
    kernel = {"linear": _hat, "cubic": _keys}[interpolation]
    total = 0.0
    for steps in product(range(-2, 4), repeat=image.ndim):
        index = np.floor(places).astype(int) + steps
        weight = np.prod([kernel(abs(x - i)) for x, i in zip(places, index, strict=True)])
        if weight != 0.0:
            total += weight * _pixel(image, index, fill, fill_value)
    return total


def _pixel(image: Array, index: NDArray[np.int64], fill: str, fill_value: float) -> float:
    found = []
    for i, n in zip(index, image.shape, strict=True):
        if fill == "constant" and not 0 <= i < n:
            return fill_value
        if fill == "edge":
            i = min(max(i, 0), n - 1)
        while not 0 <= i < n:
            if fill == "wrap":
                i = i + n if i < 0 else i - n
            else:
                i = -1 - i if i < 0 else 2 * n - 1 - i
        found.append(i)
    return image[tuple(found)]


def _hat(distance: float) -> float:
    return max(0.0, 1.0 - distance)


def _keys(distance: float) -> float:
    """The interpolating cubic kernel with a = -1/2 (Keys 1981)."""
    r = distance
    if r < 1.0:
        return 1.5 * r**3 - 2.5 * r**2 + 1.0
    return -0.5 * r**3 + 2.5 * r**2 - 4.0 * r + 2.0 if r < 2.0 else 0.0


# -- which pairs to align


def neighbor_edges(samples: Array, n_neighbors: int) -> list[tuple[int, int]]:
    """Edges i < j where one is among the nearest of the other, the lower index first in a tie."""
    edges = set()
    for i, sample in enumerate(samples):
        distances = [float(((sample - other) ** 2).sum()) for other in samples]
        others = [j for j in range(len(samples)) if j != i]
        others.sort(key=lambda j, distances=distances: (distances[j], j))
        edges |= {(min(i, j), max(i, j)) for j in others[:n_neighbors]}
    return sorted(edges)


# -- what is plausible


def smooth_covariance(
    corners: Array, basis: Array, length: float, nugget: float, *, periodic: bool
) -> Array:
    """Bᵀ Σ_PA B up to scale, with the affine maps written as [A | v(centroid) / length].

    Parameters
    ----------
    corners : (n_cells, ndim + 1, ndim)
    basis : (D, d)
        Affine maps [A | b] about the origin, cell by cell, of the fields that θ are weights of.
    """
    n_cells, _, ndim = corners.shape
    centroids = corners.mean(axis=1)
    entries = basis.reshape(n_cells, ndim, ndim + 1, -1).copy()
    for cell, centroid in enumerate(centroids):
        for k in range(ndim):
            entries[cell, k, -1] += centroid @ entries[cell, k, :-1]
            entries[cell, k, -1] /= length
    covariance = np.zeros((n_cells, ndim, ndim + 1, n_cells, ndim, ndim + 1))
    for one in range(n_cells):
        for other in range(n_cells):
            value = _alikeness(centroids[one] - centroids[other], length, periodic)
            value = 1.0 if one == other else (1.0 - nugget) * value
            for k in range(ndim):
                for j in range(ndim + 1):
                    covariance[one, k, j, other, k, j] = value
    size = n_cells * ndim * (ndim + 1)
    orthonormal, triangle = np.linalg.qr(entries.reshape(size, -1))
    projected = orthonormal.T @ covariance.reshape(size, size) @ orthonormal
    to_theta = np.linalg.inv(triangle)
    return to_theta @ projected @ to_theta.T


def _alikeness(step: Array, length: float, periodic: bool) -> float:
    """Squared-exponential correlation; on a torus summed over more turns than count."""
    turns = range(-6, 7) if periodic else range(1)
    value = 1.0
    for component in step.tolist():
        along = sum(exp(-((component + turn) ** 2) / (2 * length**2)) for turn in turns)
        value *= along / sum(exp(-(turn**2) / (2 * length**2)) for turn in turns)
    return value
