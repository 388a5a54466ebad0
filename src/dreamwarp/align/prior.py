"""Gaussian priors over θ.

In :class:`SmoothPrior`, the paper's prior, affine maps of nearby cells are similar. In
:class:`GMRFPrior`, which the paper mentions, only differences between neighbours have a cost; a
common translation has none.

The scale of both is the ``displacement``: the root mean square velocity over the domain and over
draws. To first order that is how far points move in unit time. With θ ~ N(0, C) and M the matrix of
inner products ∫ v_i · v_j of the basis fields, it is √tr(M C).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.compiled import limit_algebra
from dreamwarp.core.defaults import DISPLACEMENT, LENGTH
from dreamwarp.core.validation import check_integer, check_parameters, is_real
from dreamwarp.space import WarpSpace

Array = NDArray[np.float64]

# Fraction of an affine map's variance that is independent of other cells. It is too small to see,
# but bounds the condition number of the covariance. Without it float64 could not invert the
# covariance, because neighbouring cells are almost equal.
NUGGET = 1e-4
# Bounds of the correlation length. Below the first, all cells are independent; above the second,
# all cells move together.
MIN_LENGTH, MAX_LENGTH = 1e-3, 10.0
# Beyond this length, correlations round a torus are 1 up to rounding: 1 - 2 exp(-2 π² length²).
LONGEST_TURN = 2.0
# Energies ∫ |∇v|² / ∫ |v|² below this are zero up to rounding: a field with zero mean has at least
# π² in a unit domain (Poincaré's inequality).
FLAT_ENERGY = 1.0
# From this many parameters on, several BLAS threads are faster than one.
MANY_PARAMETERS = 2000
# Memory for one block of correlations between cells.
BLOCK_BYTES = 64 * 2**20


class Prior:
    """A zero-mean Gaussian over θ, possibly improper: flat along some directions.

    Parameters
    ----------
    space : WarpSpace
    root : (d, rank)
        θ = root z with z standard normal.
    whitener : (rank, d)
        z = whitener θ; ``whitener @ root`` is the identity.
    """

    def __init__(self, space: WarpSpace, root: Array, whitener: Array) -> None:
        self.space = space
        self.root, self.whitener = root, whitener

    @property
    def rank(self) -> int:
        """Rank of the precision: d if the density is proper."""
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
        """Log-density of θ (n, d): (n,), or a number for a single θ.

        An improper density is not normalised.
        """
        values, single = self.space.check_theta(theta)
        white = np.einsum("rd,nd->nr", self.whitener, values)
        out = self._log_constant - 0.5 * np.einsum("nr,nr->n", white, white)
        return float(out[0]) if single else out

    def sample(self, n: int, seed: int | np.random.Generator = 0) -> Array:
        """Draws of θ: (n, d). Draw k depends on the seed and k alone.

        Draws from an improper density have no component along its flat directions.
        """
        shape = check_integer("n", n, 0), self.rank
        normal = np.random.default_rng(seed).standard_normal(shape)
        # einsum: the order of summation of a matrix product may depend on the number of draws.
        return np.asarray(np.einsum("dr,nr->nd", self.root, normal))


class SmoothPrior(Prior):
    """The paper's prior N(0, Bᵀ Σ_PA B): affine maps of nearby cells are similar.

    Parameters
    ----------
    space : WarpSpace
    displacement : float
        Root mean square displacement, as a fraction of the domain: 0.08 is 2.2 pixels of 28.
    length : float
        Correlation length, as a fraction of the domain.

    Notes
    -----
    As in the paper, equal entries of the affine maps of two cells with centroids c and c' have
    correlation exp(-|c - c'|² / (2 length²)), different entries have none, and Bᵀ projects the
    discontinuous field to the nearest continuous one that obeys the boundary condition.

    The paper does not specify the origin and unit of the maps. With the origin at a corner of the
    domain, cells far from it have more variance than those near it, and an image and its mirror
    image have different priors. Here the origin is the centroid of the cell, v(x) = A (x - c) + b,
    and the unit is ``length``: [A | b / length]. The prior is then the same in every cell, and
    all entries share one variance: for a smooth field with this correlation, the standard deviation
    of the gradient is that of the value divided by ``length``. B is orthonormal in these entries.
    (θ are still coordinates of ``space``.)

    In a periodic space, correlations along an axis are summed over all periods,
    Σ_m exp(-(c - c' + m)² / (2 length²)), and scaled to 1 for c = c'. They are positive definite
    for every length.

    A fraction 1e-4 of the variance is independent between cells, so that the covariance can be
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
        self.displacement = _check_domain_fraction("displacement", displacement, 0.0, 1.0)
        self.length = _check_domain_fraction("length", length, MIN_LENGTH, MAX_LENGTH)
        with _few_threads(space):
            super().__init__(space, *self._factors(space))

    def with_displacement(self, displacement: float) -> SmoothPrior:
        """The prior of the same length with another displacement."""
        return SmoothPrior(self.space, displacement=displacement, length=self.length)

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
    """An intrinsic Gaussian Markov random field: neighbouring vertices have similar velocities.

    The energy -log p(θ) is a sum of squared first or second differences of the velocities of
    neighbouring vertices. Constant velocities have no energy, so in a ``"free"`` or ``"periodic"``
    space the density is improper, flat along ndim directions; in others it is proper.

    Parameters
    ----------
    space : WarpSpace
    displacement : float
        Root mean square displacement of the draws, as a fraction of the domain.
    order : {1, 2}
        1: the energy ∫ |∇v|² of a membrane. Draws get rougher as cells are refined. 2: the energy
        ∫ |Δv|² of a plate. Draws are smooth and do not depend on the size of the cells.

    Notes
    -----
    Differences are weighted as in the finite-element method: with S the stiffness matrix and M the
    mass matrix, the precision is S or S M⁻¹ S, up to scale. If the density is improper, draws have
    zero mean velocity, and the covariance is a generalised inverse C of the precision Q (Q C Q = Q,
    C Q C = C): the one for the inner product ∫ v · w, which does not depend on the coordinates.

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
        self.displacement = _check_domain_fraction("displacement", displacement, 0.0, 1.0)
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
                f"{space!r} has only constant fields, which a GMRFPrior does not constrain. "
                "Use SmoothPrior, or more cells."
            )
        return _join(parts, self.displacement / mean_square**0.5)

    def __repr__(self) -> str:
        return f"GMRFPrior({self.space!r}, displacement={self.displacement:g}, order={self.order})"


# -- fields and their inner products


def _independent_fields(space: WarpSpace) -> list[tuple[Array, int]]:
    """Vertex velocities (n, n_vertices) of the basis fields of each component, and multiplicities.

    Basis fields have one component of the velocity each, and θ lists them component by component.
    So one matrix of size d becomes ndim smaller ones, equal unless the boundary is ``"slip"``.
    """
    fields = np.moveaxis(space.vertex_velocities(np.eye(space.dim)), 2, 0)
    if space.boundary != "slip":
        return [(np.ascontiguousarray(fields[0, : space.dim // space.ndim]), space.ndim)]
    components = [each[each.any(axis=1)] for each in fields]
    return [(each, 1) for each in components if each.size > 0]


def _join(parts: list[tuple[Array, Array]], scale: float) -> tuple[Array, Array]:
    """Join the roots and whiteners of the components: root (d, rank) and whitener (rank, d)."""
    roots, whiteners = zip(*parts, strict=True)
    return scipy.linalg.block_diag(*roots) * scale, scipy.linalg.block_diag(*whiteners) / scale


def _project(fields: Array, matrix: Array) -> Array:
    """Convert a quadratic form (n_vertices, n_vertices) of vertex values to one of θ: (n, n)."""
    out = fields @ matrix @ fields.T
    return 0.5 * (out + out.T)


def mass_matrix(space: WarpSpace) -> Array:
    """M, ∫ v_i · v_j of the basis fields: (d, d). θᵀ M θ is the mean square velocity."""
    mass, parts = _mass(space), _independent_fields(space)
    blocks = [block for fields, count in parts for block in count * [_project(fields, mass)]]
    return np.asarray(scipy.linalg.block_diag(*blocks))


def _few_threads(space: WarpSpace) -> AbstractContextManager[Any]:
    """Limit BLAS to one thread for small matrices."""
    return limit_algebra(1 if space.dim < MANY_PARAMETERS else None)


def _mass(space: WarpSpace) -> Array:
    """∫ f g over the domain, for piecewise-affine f, g given by vertex values.

    All cells have the same volume, 1 / n_cells.
    """
    n_nodes = space.ndim + 1
    local = (np.eye(n_nodes) + 1.0) / (n_nodes * (n_nodes + 1) * space.n_cells)
    return _assemble(space, np.broadcast_to(local, (space.n_cells, n_nodes, n_nodes)))


def _stiffness(space: WarpSpace) -> Array:
    """∫ ∇f · ∇g over the domain, for piecewise-affine f, g given by vertex values."""
    gradients = space.tessellation.barycentric[: space.n_cells, :, : space.ndim]
    return _assemble(space, gradients @ np.swapaxes(gradients, 1, 2) / space.n_cells)


def _assemble(space: WarpSpace, local: Array) -> Array:
    """Sum of the matrices of the cells (n_cells, ndim + 1, ndim + 1) over shared vertices."""
    simplices, n_vertices = space.tessellation.simplices, len(space.tessellation.vertices)
    out = np.zeros((n_vertices, n_vertices))
    np.add.at(out, (simplices[:, :, None], simplices[:, None, :]), local)
    return out


def _modes(stiffness: Array, mass: Array) -> tuple[Array, Array]:
    """Energies (n,) and modes (d, n) with positive energy, orthonormal in ∫ v · w."""
    energies, modes = scipy.linalg.eigh(stiffness, mass)
    positive = energies > FLAT_ENERGY
    return energies[positive], modes[:, positive]


# -- the smooth prior


def _smooth_part(products: Array, covered: Array) -> tuple[Array, Array]:
    """Root and whitener, from Fᵀ F and Fᵀ Σ F with F the affine maps of the basis fields.

    The continuous field nearest to random affine maps a has θ = (Fᵀ F)⁻¹ Fᵀ a.
    """
    lower = scipy.linalg.cholesky(covered, lower=True)
    root = scipy.linalg.solve(products, lower, assume_a="pos")
    return root, scipy.linalg.solve_triangular(lower, products, lower=True)


def _cell_entries(space: WarpSpace, length: float) -> list[Any]:
    """Sparse matrices (n_cells, n_vertices) from vertex values to affine maps [A | b / length].

    One matrix per entry of a row of the map; the rows, one per component, have equal matrices.
    """
    simplices, n_vertices = space.tessellation.simplices, len(space.tessellation.vertices)
    n_cells, n_nodes = simplices.shape
    weights = space.tessellation.barycentric[:n_cells].copy()
    weights[:, :, -1] = 1.0 / (n_nodes * length)  # the value at the centroid
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
    """Blocks of columns of the correlations between cells, exp(-|c - c'|² / (2 length²)).

    In a periodic space, summed over periods and scaled to 1 at distance 0.
    """
    tessellation, n_nodes = space.tessellation, space.ndim + 1
    # Centroids as integers, so that correlations along an axis come from a table of differences.
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
    # Nine lengths away, correlations are below the precision of float64.
    turns = np.arange(-np.ceil(9.0 * length) - 1.0, np.ceil(9.0 * length) + 1.0)
    total = np.exp(-0.5 * ((distance[:, None] + turns) / length) ** 2).sum(axis=1)
    return total / total[0]


# -- checks


def _read_only(array: Array) -> Array:
    array.setflags(write=False)
    return array


def check_prior(space: WarpSpace, prior: Prior | None) -> Prior:
    """Return ``prior``, by default a SmoothPrior; raise if it is not a prior over the space.

    Raises for spaces too large to align in, too.
    """
    check_parameters(space.cells, space.dim)
    if prior is None:
        return SmoothPrior(space)
    if not isinstance(prior, Prior):
        raise TypeError(
            f"`prior` must be a SmoothPrior, a GMRFPrior or another Prior, got "
            f"{type(prior).__name__}."
        )
    if prior.space != space:
        raise ValueError(
            f"`prior` must be over the space of the alignment, {space!r}, got one over "
            f"{prior.space!r}."
        )
    return prior


def _check_space(space: Any) -> None:
    if not isinstance(space, WarpSpace):
        raise TypeError(f"`space` must be a WarpSpace, got {type(space).__name__}.")


def _check_domain_fraction(name: str, value: Any, low: float, high: float) -> float:
    """Return a fraction of the domain, above 0, as float; raise if it is out of range."""
    if not is_real(value) or not low <= value <= high or value == 0.0:
        rule = f"from {low:g} to {high:g}" if low > 0.0 else f"above 0 and up to {high:g}"
        raise ValueError(
            f"`{name}` must be a number {rule}, a fraction of the domain, got {value!r}. Divide "
            "pixels by the size of the image."
        )
    return float(value)
