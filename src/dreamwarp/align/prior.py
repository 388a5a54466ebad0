"""What warps are plausible: Gaussian densities over θ.

Two of them. :class:`SmoothPrior` is the paper's: affine maps of cells near each other are alike.
:class:`GMRFPrior` is the paper's remark: only differences between neighbours count, so that moving
everything by the same amount costs nothing.

Both have a scale that means something, the ``displacement``: the root of the mean, over the domain
and over draws, of the squared velocity. That is how far points move in unit time, to first order.
With θ ~ N(0, C) and M the matrix of inner products ∫ v_i · v_j of the basis fields it is √tr(M C),
and no simulation is needed to set it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from dreamwarp.core.defaults import DISPLACEMENT, LENGTH
from dreamwarp.space import WarpSpace

Array = NDArray[np.float64]

# Share of an affine map's variance that is its own, correlated with no other cell's. A tenth of a
# thousandth moves nothing that could be seen, and bounds the condition of the covariance, which
# else grows past what float64 can invert: neighbouring cells would be all but equal.
NUGGET = 1e-4
# Below, cells are independent however fine; above, all move as one.
MIN_LENGTH, MAX_LENGTH = 1e-3, 10.0
# Past this length in domains, correlation round a torus is 1 to rounding: 2 exp(-2 π² length²).
LONGEST_TURN = 2.0
# Energies ∫ |∇v|² / ∫ |v|² below this are zero but for rounding: without a mean, v has at least π²
# in a unit domain (Poincaré's inequality).
FLAT = 1.0
# From this many parameters on, more threads than one pay.
MANY_PARAMETERS = 2000
# Memory for one block of correlations between cells.
BLOCK_BYTES = 64 * 2**20


class Prior:
    """A zero-mean Gaussian over θ, possibly improper: flat along some directions.

    Parameters
    ----------
    space : WarpSpace
    root : (d, rank)
        Takes independent standard normal numbers z to draws, θ = root z.
    whitener : (rank, d)
        The way back, z = whitener θ; ``whitener @ root`` is the identity.
    """

    def __init__(self, space: WarpSpace, root: Array, whitener: Array) -> None:
        self.space = space
        self.root, self.whitener = root, whitener

    @property
    def rank(self) -> int:
        """Number of directions along which the density falls off: d if it is proper."""
        return len(self.whitener)

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the draws: (d, d)."""
        return _read_only(self.root @ self.root.T)

    @cached_property
    def precision(self) -> Array:
        """Q in log p(θ) = -½ θᵀ Q θ + constant: (d, d)."""
        return _read_only(self.whitener.T @ self.whitener)

    @cached_property
    def _log_constant(self) -> float:
        if self.rank < self.space.dim:
            return 0.0
        log_volume = np.linalg.slogdet(self.whitener)[1]
        return float(log_volume - 0.5 * self.space.dim * np.log(2.0 * np.pi))

    def log_prob(self, theta: ArrayLike) -> Any:
        """Logarithm of the density of θ (n, d): (n,), or a number for a single θ.

        Without its constant where the density is improper, and so has none.
        """
        values, single = self.space._check_theta(theta)
        white = np.einsum("rd,nd->nr", self.whitener, values)
        out = self._log_constant - 0.5 * np.einsum("nr,nr->n", white, white)
        return float(out[0]) if single else out

    def gradient(self, theta: ArrayLike) -> Array:
        """Derivative of :meth:`log_prob` by θ (n, d): -Q θ, of the same shape."""
        values, single = self.space._check_theta(theta)
        out = -np.einsum("de,ne->nd", self.precision, values)
        return out[0] if single else out

    def sample(self, n: int, seed: int | np.random.Generator = 0) -> Array:
        """Draws of θ: (n, d). Draw k depends on the seed and k alone.

        Where the density is improper they have no share in the directions that it leaves free.
        """
        if not isinstance(n, Integral) or isinstance(n, bool) or n < 0:
            raise ValueError(f"`n` must be a whole number, 0 or more, got {n!r}.")
        normal = np.random.default_rng(seed).standard_normal((int(n), self.rank))
        # einsum: a matrix product may sum in another order for another number of draws.
        return np.asarray(np.einsum("dr,nr->nd", self.root, normal))


class SmoothPrior(Prior):
    """Affine maps of cells are the more alike the nearer the cells: N(0, Bᵀ Σ_PA B).

    Parameters
    ----------
    space : WarpSpace
    displacement : float
        Root mean square displacement, as a share of the domain: 0.08 are 2.2 pixels of 28.
    length : float
        Correlation length, as a share of the domain.

    Notes
    -----
    As in the paper, the same entry of the affine maps of two cells with centroids c and c' has
    correlation exp(-|c - c'|² / (2 length²)), different entries have none, and Bᵀ takes the field,
    which is continuous nowhere, to the nearest continuous one that obeys the boundary.

    The paper leaves open about which origin the maps are written, and in which unit. About a corner
    of the domain, cells far from it get more variance than those near it, so that an image and its
    mirror image have different priors. Here the map of a cell is written about its own centroid,
    v(x) = A (x - c) + b, with ``length`` as unit of length, [A | b / length]. Then no place is
    special, and one variance for all entries is right: the value and the gradient of a smooth field
    with this correlation stand in that very ratio. B is orthonormal in these entries. (θ are still
    those of ``space``, whatever basis it has: a change of coordinates.)

    In a periodic space, distances go round it: correlations along an axis are summed over all
    turns, Σ_m exp(-(c - c' + m)² / (2 length²)), and scaled to 1 for c = c', which keeps them
    positive definite whatever the length.

    A share of 1e-4 of the variance is independent from cell to cell, so that the covariance can be
    inverted.

    Examples
    --------
    >>> prior = SmoothPrior(WarpSpace((4, 4)), displacement=0.05)
    >>> prior.covariance.shape
    (50, 50)
    >>> prior.sample(3, seed=0).shape
    (3, 50)
    """

    def __init__(
        self, space: WarpSpace, *, displacement: float = DISPLACEMENT, length: float = LENGTH
    ) -> None:
        _check_space(space)
        self.displacement = _check_displacement(displacement)
        self.length = _check_length(length)
        with _few_threads(space):
            super().__init__(space, *self._factors(space))

    def _factors(self, space: WarpSpace) -> tuple[Array, Array]:
        entries = _cell_entries(space, self.length)
        products = sum(entry.T @ entry for entry in entries).toarray()
        covered = (1.0 - NUGGET) * _correlated(space, entries, self.length) + NUGGET * products
        mass, parts, mean_square = _mass(space), [], 0.0
        for fields, count in _independent_fields(space):
            root, whitener = _smooth_part(_project(fields, products), _project(fields, covered))
            squares = np.einsum("dr,dr->", _project(fields, mass) @ root, root)
            mean_square += count * float(squares)
            parts += count * [(root, whitener)]
        return _join(parts, self.displacement / mean_square**0.5)

    def __repr__(self) -> str:
        return (
            f"SmoothPrior({self.space!r}, displacement={self.displacement:g}, "
            f"length={self.length:g})"
        )


class GMRFPrior(Prior):
    """Neighbours move alike, and how far they move together is free.

    An intrinsic Gaussian Markov random field: the energy -log p(θ) is a sum of squared differences
    between the velocities of neighbouring vertices, or of the differences of those. Constant
    velocities have no energy. The boundary decides whether there are any: in a ``"free"`` or
    ``"periodic"`` space the density is improper, flat along ndim directions; in others proper.

    Parameters
    ----------
    space : WarpSpace
    displacement : float
        Root mean square displacement of the draws, as a share of the domain.
    order : {1, 2}
        1: the energy ∫ |∇v|², of a membrane, from differences of velocities. Draws get rougher with
        every refinement of the cells. 2: ∫ |Δv|², of a plate, from differences of differences:
        smooth draws that look the same however fine the cells are.

    Notes
    -----
    The differences are weighed as in the finite-element method, by the stiffness matrix S and the
    mass matrix M of the space: the precision is S or S M⁻¹ S, up to scale. Draws, and the
    covariance, have no mean velocity where the density leaves it free. The covariance is then a
    generalised inverse C of the precision Q (Q C Q = Q, C Q C = C): the one that belongs to ∫ v · w
    as inner product, which does not depend on the coordinates.

    Examples
    --------
    >>> prior = GMRFPrior(WarpSpace((4, 4), boundary="free"))
    >>> prior.space.dim, prior.rank
    (82, 80)
    """

    def __init__(
        self, space: WarpSpace, *, displacement: float = DISPLACEMENT, order: int = 2
    ) -> None:
        _check_space(space)
        self.displacement = _check_displacement(displacement)
        if order not in (1, 2):
            raise ValueError(f"`order` must be 1 or 2, got {order!r}.")
        self.order = int(order)
        with _few_threads(space):
            super().__init__(space, *self._factors(space))

    def _factors(self, space: WarpSpace) -> tuple[Array, Array]:
        parts, mean_square = [], 0.0
        for fields, count in _independent_fields(space):
            mass = _project(fields, _mass(space))
            energies, modes = _modes(_project(fields, _stiffness(space)), mass)
            deviations = energies ** (-0.5 * self.order)
            mean_square += count * float(deviations @ deviations)
            parts += count * [(modes * deviations, (mass @ modes / deviations).T)]
        if mean_square == 0.0:
            raise ValueError(
                f"{space!r} has constant fields only, and GMRFPrior says nothing about those. Use "
                "SmoothPrior, or more cells."
            )
        return _join(parts, self.displacement / mean_square**0.5)

    def __repr__(self) -> str:
        return f"GMRFPrior({self.space!r}, displacement={self.displacement:g}, order={self.order})"


# -- fields and their inner products


def _independent_fields(space: WarpSpace) -> list[tuple[Array, int]]:
    """Vertex velocities of the basis fields, in runs that don't interact, and how often each comes.

    No field but a volume-preserving one mixes components of the velocity, and θ lists the fields
    component by component. So one matrix of size d becomes ndim smaller ones, which are the same
    unless the boundary tells components apart.

    Returns
    -------
    list of (components, n, n_vertices) and counts
    """
    fields = np.moveaxis(space.vertex_velocities(np.eye(space.dim)), 2, 0)
    if space.volume_preserving:
        return [(np.ascontiguousarray(fields), 1)]
    if space.boundary != "slip":
        return [(np.ascontiguousarray(fields[:1, : space.dim // space.ndim]), space.ndim)]
    runs = [each[None, each.any(axis=1)] for each in fields]
    return [(run, 1) for run in runs if run.size > 0]


def _join(parts: list[tuple[Array, Array]], scale: float) -> tuple[Array, Array]:
    """Root (d, rank) and whitener (rank, d) of all runs from those of each."""
    roots, whiteners = zip(*parts, strict=True)
    return scipy.linalg.block_diag(*roots) * scale, scipy.linalg.block_diag(*whiteners) / scale


def _project(fields: Array, matrix: Array) -> Array:
    """Quadratic form of vertex values, (n_vertices, n_vertices), as one of θ: (n, n)."""
    out = np.add.reduce([values @ matrix @ values.T for values in fields])
    return 0.5 * (out + out.T)


def mass_matrix(space: WarpSpace) -> Array:
    """∫ v_i · v_j of the basis fields: (d, d). θᵀ M θ is the mean square displacement of θ."""
    fields = np.moveaxis(space.vertex_velocities(np.eye(space.dim)), 2, 0)
    return _project(fields, _mass(space))


def _few_threads(space: WarpSpace) -> threadpool_limits:
    """One thread for small matrices: on those, threads only wait for each other."""
    return threadpool_limits(1 if space.dim < MANY_PARAMETERS else None)


def _mass(space: WarpSpace) -> Array:
    """∫ f g over the domain for piecewise-affine f, g given by vertex values; exact."""
    n_nodes = space.ndim + 1
    local = (np.eye(n_nodes) + 1.0) / (n_nodes * (n_nodes + 1) * space.n_cells)
    return _assemble(space, np.broadcast_to(local, (space.n_cells, n_nodes, n_nodes)))


def _stiffness(space: WarpSpace) -> Array:
    """∫ ∇f · ∇g over the domain for piecewise-affine f, g given by vertex values."""
    gradients = space.tessellation.barycentric[: space.n_cells, :, : space.ndim]
    return _assemble(space, gradients @ np.swapaxes(gradients, 1, 2) / space.n_cells)


def _assemble(space: WarpSpace, local: Array) -> Array:
    """Sum of matrices of the cells (n_cells, ndim + 1, ndim + 1) over shared vertices.

    All cells have the same volume, 1 / n_cells.
    """
    simplices, n_vertices = space.tessellation.simplices, len(space.tessellation.vertices)
    out = np.zeros((n_vertices, n_vertices))
    np.add.at(out, (simplices[:, :, None], simplices[:, None, :]), local)
    return out


def _modes(stiffness: Array, mass: Array) -> tuple[Array, Array]:
    """Energies and fields of the modes that bend, orthonormal in ∫ v · w: (n,) and (d, n)."""
    energies, modes = scipy.linalg.eigh(stiffness, mass)
    bent = energies > FLAT
    return energies[bent], modes[:, bent]


# -- the smooth prior


def _smooth_part(products: Array, covered: Array) -> tuple[Array, Array]:
    """Root and whitener, from Fᵀ F and Fᵀ Σ F with F the affine maps of the basis fields.

    The continuous field nearest to random affine maps a has θ = (Fᵀ F)⁻¹ Fᵀ a.
    """
    lower = scipy.linalg.cholesky(covered, lower=True)
    root = scipy.linalg.solve(products, lower, assume_a="pos")
    return root, scipy.linalg.solve_triangular(lower, products, lower=True)


def _cell_entries(space: WarpSpace, length: float) -> list[Any]:
    """Vertex values to the affine maps [A | b / length], as sparse matrices (n_cells, n_vertices).

    One per entry of a row of the map; all rows, one for each component of the velocity, are alike.
    """
    simplices, n_vertices = space.tessellation.simplices, len(space.tessellation.vertices)
    n_cells, n_nodes = simplices.shape
    weights = space.tessellation.barycentric[:n_cells].copy()
    weights[:, :, -1] = 1.0 / (n_nodes * length)  # at the centroid every vertex counts the same
    starts = np.arange(0, n_cells * n_nodes + 1, n_nodes)
    return [
        scipy.sparse.csr_array(
            (weights[:, :, j].ravel(), simplices.ravel(), starts), (n_cells, n_vertices)
        )
        for j in range(n_nodes)
    ]


def _correlated(space: WarpSpace, entries: list[Any], length: float) -> Array:
    """Σ_j E_jᵀ K E_j, with E_j the entries and K the correlations: (n_vertices, n_vertices)."""
    out = np.zeros((entries[0].shape[1],) * 2)
    for block, correlation in _cell_correlations(space, length):
        for entry in entries:
            out += entry[block].T @ (entry.T @ correlation).T
    return out


def _cell_correlations(space: WarpSpace, length: float) -> Iterator[tuple[slice, Array]]:
    """Blocks of columns of the correlations between cells, exp(-|c - c'|² / (2 length²))."""
    tessellation, n_nodes = space.tessellation, space.ndim + 1
    # Centroids as whole numbers: correlations along an axis are then looked up by difference.
    centroids = tessellation.lattice[tessellation.simplices].sum(axis=1)
    tables = [
        _axis_correlation(
            np.arange(2 * n * n_nodes) / (2 * n * n_nodes), length, tessellation.periodic
        )
        for n in tessellation.cells
    ]
    size = max(1, BLOCK_BYTES // (8 * len(centroids)))
    for start in range(0, len(centroids), size):
        block = slice(start, start + size)
        steps = np.abs(centroids[:, None] - centroids[block])
        out = tables[0][steps[..., 0]]
        for axis in range(1, space.ndim):
            out *= tables[axis][steps[..., axis]]
        yield block, out


def _axis_correlation(distance: Array, length: float, periodic: bool) -> Array:
    """Squared-exponential correlation at distances along one axis."""
    if not periodic:
        return np.exp(-0.5 * (distance / length) ** 2)
    length = min(length, LONGEST_TURN)
    # Nine lengths away nothing is left of a float64.
    turns = np.arange(-np.ceil(9.0 * length) - 1.0, np.ceil(9.0 * length) + 1.0)
    total = np.exp(-0.5 * ((distance[:, None] + turns) / length) ** 2).sum(axis=1)
    return total / total[0]


# -- checks


def _read_only(array: Array) -> Array:
    array.setflags(write=False)
    return array


def _check_space(space: Any) -> None:
    if not isinstance(space, WarpSpace):
        raise TypeError(f"`space` must be a WarpSpace, got {type(space).__name__}.")


def _check_displacement(displacement: Any) -> float:
    if not _is_number(displacement) or not 0.0 < displacement <= 1.0:
        raise ValueError(
            "`displacement` must be a number above 0 and up to 1, a share of the domain, got "
            f"{displacement!r}. Divide pixels by the size of the image."
        )
    return float(displacement)


def _check_length(length: Any) -> float:
    if not _is_number(length) or not MIN_LENGTH <= length <= MAX_LENGTH:
        raise ValueError(
            f"`length` must be a number from {MIN_LENGTH:g} to {MAX_LENGTH:g}, a share of the "
            f"domain, got {length!r}. Divide pixels by the size of the image."
        )
    return float(length)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
