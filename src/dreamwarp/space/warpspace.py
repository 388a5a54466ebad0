"""WarpSpace: the family of warps T^θ of one tessellation and boundary condition."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from dreamwarp.core.compiled import count_chunks, spread
from dreamwarp.core.lanes import FIELDS
from dreamwarp.core.validation import as_finite_array, check_choice, check_positive, warn_user
from dreamwarp.space.basis import BOUNDARIES, Basis, build_basis
from dreamwarp.space.fields import Array, Fields, Floats
from dreamwarp.space.mesh import Mesh, build_mesh
from dreamwarp.space.tessellation import MAX_AXES, Tessellation
from dreamwarp.space.velocities import evaluate, gradient_by_theta, node_velocities

Boundary = Literal["zero", "slip", "free", "periodic"]
Method = Literal["fast", "exact"]

# Beyond this velocity gradient (per unit time), distances between points may grow by more than
# e^500: rounding errors swamp the result, and a path may never end.
MAX_RATE = 500.0
# Default for the largest error of the fast flow, in domain units: a hundredth of a pixel at 100
# pixels per axis.
FLOW_TOLERANCE = 1e-4
# Four times the float32 rounding error near 1.
MIN_TOLERANCE = 2e-7
# Beyond this, squares of velocities overflow float64.
MAX_THETA = 1e100
# Beyond this, float64 rounding (1e-16) may grow to a visible 1e-4.
NOISY_GROWTH = 27.0
# Memory for derivatives with respect to node velocities, before the chain rule to θ.
GRADIENT_BYTES = 64 * 2**20


class WarpSpace:
    """Diffeomorphisms of the unit interval, square or cube: flows of piecewise-affine velocities.

    A parameter vector θ defines a continuous velocity field v^θ that is affine in every cell
    (equation 1 of the paper). The warp is its flow at unit time, T^θ(p) = φ^θ(p, 1) (equations 2
    and 3). For every θ, T^θ is invertible with inverse T^{-θ}, and T^{sθ} ∘ T^{tθ} = T^{(s+t)θ}.

    Parameters
    ----------
    cells : sequence of int
        Boxes per axis, for 1, 2 or 3 axes. Boxes are cut into simplices: 1 in 1-D, 4 triangles
        round a centre vertex in 2-D (the paper's), 24 tetrahedra in 3-D.
    boundary : {"zero", "slip", "free", "periodic"}
        Condition at the border of the domain. ``"zero"``: the velocity is zero (the paper).
        ``"slip"``: the normal velocity is zero. ``"free"``: no condition. ``"periodic"``: opposite
        sides are identified, as for circular signals and tori.

    Notes
    -----
    A point outside the domain has the velocity of the nearest point of the domain; with a
    ``"zero"`` boundary it does not move. In a ``"periodic"`` space the velocity field is continued
    periodically, and results are not wrapped: T(p + 1) = T(p) + 1.

    Examples
    --------
    >>> space = WarpSpace((4, 4))
    >>> space.dim
    50
    >>> space.flow(np.zeros((1, 50)), [[0.25, 0.5]])
    array([[[0.25, 0.5 ]]], dtype=float32)
    """

    def __init__(self, cells: Any, boundary: Boundary = "zero") -> None:
        self.cells = _check_cells(cells)
        self.boundary = check_choice("boundary", boundary, BOUNDARIES)
        if self.dim == 0:
            raise ValueError(
                f"a {self._description} has no warp but the identity. "
                "Use more cells, or another boundary."
            )

    # -- properties

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.cells)

    @property
    def dim(self) -> int:
        """Number of parameters, d in the paper."""
        return len(self.vertex_basis.factor)

    @property
    def n_cells(self) -> int:
        """Number of simplices, N_c in the paper."""
        return self.tessellation.n_cells

    @cached_property
    def tessellation(self) -> Tessellation:
        """The cells."""
        return Tessellation(self.cells, periodic=self.boundary == "periodic")

    @cached_property
    def basis(self) -> Array:
        """Orthonormal basis B (D, d); ``B @ theta`` lists the affine maps by cell, row-major."""
        basis = np.ascontiguousarray(self.affine_maps(np.eye(self.dim)).reshape(self.dim, -1).T)
        basis.setflags(write=False)
        return basis

    @cached_property
    def vertex_basis(self) -> Basis:
        """The map from θ to the free velocities at the vertices."""
        return build_basis(self.tessellation, self.boundary)

    @cached_property
    def mesh(self) -> Mesh:
        """The cells as arrays, for kernels."""
        return build_mesh(self.tessellation)

    @property
    def _description(self) -> str:
        return f"{self.cells} space with {self.boundary} boundary"

    def __repr__(self) -> str:
        return f"WarpSpace({self.cells}, boundary={self.boundary!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WarpSpace) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__reduce__())

    def __reduce__(self) -> tuple[Any, ...]:
        return WarpSpace, (self.cells, self.boundary)

    # -- velocities

    def velocity(self, theta: ArrayLike, points: ArrayLike) -> Array:
        """v^θ at points, float64: (n, m, ndim), or (m, ndim) for a single θ.

        ``theta`` is (n, d) or (d,), and ``points`` (m, ndim) or (n, m, ndim).
        """
        theta, points, single = self._check_batch(theta, points)
        velocities = self.unchecked_fields(theta).velocities
        out = np.empty((len(theta), points.shape[1], self.ndim))
        spread(evaluate, len(theta), self.mesh, velocities, points, out)
        return out[0] if single else out

    def vertex_velocities(self, theta: ArrayLike) -> Array:
        """Velocities at ``tessellation.vertices``: (n, n_vertices, ndim)."""
        theta, single = self.check_theta(theta)
        out = self.unchecked_fields(theta).velocities[:, : len(self.tessellation.vertices)]
        return out[0] if single else out

    def theta_from_vertices(self, velocities: ArrayLike) -> Array:
        """θ of the field nearest to given vertex velocities: (n, n_vertices, ndim) to (n, d).

        The distance is the norm of θ: the sum of squares of the affine maps.
        """
        shape = (len(self.tessellation.vertices), self.ndim)
        values = as_finite_array("velocities", velocities)
        if values.ndim not in (2, 3) or values.shape[-2:] != shape:
            raise ValueError(
                f"`velocities` must have shape (n, {shape[0]}, {shape[1]}), one velocity per "
                f"vertex of a {self._description}, got {values.shape}."
            )
        weights = self.tessellation.barycentric[: self.n_cells]
        maps = np.einsum("...cgk,cgj->...ckj", values[..., self.tessellation.simplices, :], weights)
        return self.theta_from_affine(maps)

    def affine_maps(self, theta: ArrayLike) -> Array:
        """[A | b] of every cell: (n, n_cells, ndim, ndim + 1)."""
        theta, single = self.check_theta(theta)
        nodes = self.unchecked_fields(theta).velocities[:, self.tessellation.simplices]
        weights = self.tessellation.barycentric[: self.n_cells]
        out = np.einsum("ncgk,cgj->nckj", nodes, weights)
        return out[0] if single else out

    def theta_from_affine(self, maps: ArrayLike) -> Array:
        """θ of the field nearest to given affine maps, Bᵀ maps: (n, n_cells, ndim, ndim + 1)."""
        values = as_finite_array("maps", maps)
        shape = (self.n_cells, self.ndim, self.ndim + 1)
        if values.ndim not in (3, 4) or values.shape[-3:] != shape:
            raise ValueError(
                f"`maps` must have shape (n, {', '.join(map(str, shape))}), one affine map per "
                f"cell of a {self._description}, got {values.shape}."
            )
        # Bᵀ is the chain rule from affine maps to θ: from cells to vertices, then to θ.
        weights = self.tessellation.barycentric[: self.n_cells]
        shares = np.einsum("nckj,cgj->cgnk", values.reshape(-1, *shape), weights)
        by_node = np.zeros((len(self.tessellation.nodes), *shares.shape[2:]))
        np.add.at(by_node, self.tessellation.simplices, shares)
        theta = self.theta_gradient(np.ascontiguousarray(np.swapaxes(by_node, 0, 1)), None)
        return theta.reshape(*values.shape[:-3], self.dim)

    def fit_velocity(self, points: ArrayLike, velocities: ArrayLike) -> Array:
        """Least-squares θ for velocities (m, ndim) at points (m, ndim).

        If the points do not determine θ, the solution of least norm is returned.
        """
        points = self._check_points(points)
        values = as_finite_array("velocities", velocities)
        if points.ndim != 2 or values.shape != points.shape:
            raise ValueError(
                f"`velocities` must have the shape of `points`, (m, {self.ndim}), "
                f"got {values.shape} and {points.shape}."
            )
        responses = self.velocity(np.eye(self.dim), points).reshape(self.dim, -1).T
        return np.asarray(scipy.linalg.lstsq(responses, values.ravel(), lapack_driver="gelsd")[0])

    # -- the flow

    def flow(
        self,
        theta: ArrayLike,
        points: ArrayLike,
        *,
        method: Method = "fast",
        tolerance: float = FLOW_TOLERANCE,
        n_threads: int | None = None,
    ) -> NDArray[Any]:
        """T^θ at points, the exponential map (equation 3 of the paper).

        Parameters
        ----------
        theta : (n, d) or (d,)
        points : (m, ndim) or (n, m, ndim)
        method : {"fast", "exact"}
            ``"exact"``: one matrix exponential per cell and crossing times, both to machine
            precision, in float64; closed form in 1-D. ``"fast"``: the same in float32 with a power
            series of order 7, in steps chosen from θ so that ``tolerance`` holds. Half of it is for
            the series' remainder, which grows by e^μ where μ bounds the rate at which points
            diverge; half for float32 rounding. If rounding needs more, the exact method is used for
            that θ.
        tolerance : float
            Largest error of ``"fast"``, as a distance, for points in and near the unit domain. At
            least 2e-7: float32 has a relative precision of 6e-8.
        n_threads : int, optional
            Default: every core that ``NUMBA_NUM_THREADS`` allows. Results do not depend on it.

        Returns
        -------
        (n, m, ndim), or (m, ndim) for a single θ. float32 if fast, float64 if exact.
        """
        tolerance = check_tolerance(method, tolerance)
        theta, points, single = self._check_batch(theta, points)
        out = self.fields(theta, n_threads).flow(points, method, tolerance)
        return out[0] if single else out

    def flow_jacobian(
        self, theta: ArrayLike, points: ArrayLike, *, n_threads: int | None = None
    ) -> Array:
        """∂T^θ(p) / ∂p, exact, float64: (n, m, ndim, ndim), output component first."""
        theta, points, single = self._check_batch(theta, points)
        fields = self.fields(theta, n_threads)
        ends = fields.flow_exactly(points)
        out = np.tile(np.eye(self.ndim), (*ends.shape[:2], 1, 1))
        fields.reversed().carry_exactly(ends, out, add_up=False)
        return out[0] if single else out

    def flow_gradient(
        self, theta: ArrayLike, points: ArrayLike, *, n_threads: int | None = None
    ) -> Array:
        """∂T^θ(p) / ∂θ, exact, float64: (n, m, ndim, d).

        For the gradient of a scalar use :meth:`flow_vjp`. Velocities have kinks between cells. A
        path that stays on a kink has one-sided derivatives only; any of them may be returned.
        """
        theta, points, single = self._check_batch(theta, points)
        fields = self.fields(theta, n_threads)
        ends = fields.flow_exactly(points)
        n, m, ndim = ends.shape
        out = np.empty((n * m, ndim, self.dim))
        batch = max(1, GRADIENT_BYTES // (8 * ndim * ndim * len(self.tessellation.nodes)))
        for start in range(0, n * m, batch):
            paths = np.arange(start, min(start + batch, n * m))
            back = fields.only(paths // m).reversed()
            cotangents = np.tile(np.eye(ndim), (len(paths), 1, 1, 1))
            sums = back.carry_exactly(ends.reshape(-1, 1, ndim)[paths], cotangents)
            by_theta = self.theta_gradient(sums.reshape(-1, *sums.shape[2:]), n_threads)
            out[paths] = by_theta.reshape(len(paths), ndim, self.dim)
        out = out.reshape(n, m, ndim, self.dim)
        return out[0] if single else out

    def flow_vjp(
        self,
        theta: ArrayLike,
        points: ArrayLike,
        cotangent: ArrayLike,
        *,
        moved: ArrayLike | None = None,
        method: Method = "fast",
        tolerance: float = FLOW_TOLERANCE,
        n_threads: int | None = None,
    ) -> tuple[Array, Array]:
        """Gradient of Σ cotangent · T^θ(points), by one pass back along the paths.

        The cost is a small multiple of the flow's and does not depend on d.

        Parameters
        ----------
        theta, points, method, tolerance, n_threads
            As for :meth:`flow`. ``"exact"`` has float64 rounding errors; ``"fast"`` has those of
            float32, about 1e-5 of the gradient for warps of typical size.
        cotangent : (n, m, ndim)
            Derivative of a loss with respect to the moved points.
        moved : (n, m, ndim), optional
            The result of :meth:`flow` for the same θ and points, to save computing it again.

        Returns
        -------
        by_theta : (n, d) or (d,), float64
        by_points : (n, m, ndim) or (m, ndim), float64
        """
        tolerance = check_tolerance(method, tolerance)
        theta, points, single = self._check_batch(theta, points)
        shape = (len(theta), points.shape[1], self.ndim)
        cotangent = _check_paths("cotangent", cotangent, shape, single)
        fields, by_points = self.fields(theta, n_threads), cotangent.astype(np.float64)
        if moved is None:
            ends: Floats = fields.flow(points, method, tolerance)
        else:
            ends = _check_paths("moved", moved, shape, single)
        if method == "exact":
            ends = ends.astype(np.float64, copy=False)
            sums = fields.reversed().carry_exactly(ends, by_points[:, :, None])[:, 0]
        else:
            sums = fields.carry_fast(points, ends, by_points, tolerance)
        by_theta = self.theta_gradient(sums, n_threads)
        return (by_theta[0], by_points[0]) if single else (by_theta, by_points)

    # -- parts of the above

    def fields(self, theta: Array, n_threads: int | None = None) -> Fields:
        """The velocity fields of θ (n, d); raises if they are too large."""
        fields = self.unchecked_fields(theta, n_threads)
        worst = float(np.max([fields.rate, fields.speed], initial=0.0))
        if worst > MAX_RATE:
            raise ValueError(
                f"`theta` must have velocities and velocity gradients below {MAX_RATE:g} per unit "
                f"time, got {worst:.3g}. Scale it down."
            )
        growth = fields.growth.max(initial=0.0)
        if growth > NOISY_GROWTH:
            warn_user(
                f"`theta` is so large that distances between points may grow by e^{growth:.0f}. "
                f"Above e^{NOISY_GROWTH:.0f}, float64 rounding affects the result. Scale it down.",
                RuntimeWarning,
            )
        return fields

    def unchecked_fields(
        self, theta: Array, n_threads: int | None = None, *, columns: Array | None = None
    ) -> Fields:
        """The fields of θ (n, d), however large; ``columns`` replaces ``Basis.columns``."""
        columns = self.vertex_basis.columns if columns is None else columns
        velocities = np.zeros((len(theta), len(self.tessellation.nodes), self.ndim))
        bounds = np.empty(len(theta)), np.empty(len(theta)), np.empty(len(theta))
        spread(
            node_velocities, count_chunks(len(theta), FIELDS), self.mesh,
            self.vertex_basis.unknown, columns, theta, velocities, *bounds,
            n_threads=n_threads, smallest_block=self._smallest_block,
        )  # fmt: skip
        return Fields(self.mesh, velocities, *bounds, n_threads)

    @property
    def _smallest_block(self) -> int:
        """Fewest blocks of ``FIELDS`` fields worth a thread: about 100 ns per region and block."""
        return max(1, 1024 // len(self.mesh.regions))

    def theta_gradient(self, by_velocity: Array, n_threads: int | None) -> Array:
        """Gradient with respect to θ (n, d), from that for node velocities (n, n_nodes, ndim)."""
        out = np.zeros((len(by_velocity), self.dim))
        spread(
            gradient_by_theta, count_chunks(len(out), FIELDS),
            self.vertex_basis.unknown, self.vertex_basis.rows, by_velocity, out,
            n_threads=n_threads, smallest_block=self._smallest_block,
        )  # fmt: skip
        return out

    # -- checks

    def check_theta(self, theta: ArrayLike) -> tuple[Array, bool]:
        """θ as (n, d), and whether a single θ (d,) was given; raise if it does not fit."""
        values = as_finite_array("theta", theta)
        if values.ndim not in (1, 2) or values.shape[-1] != self.dim:
            raise ValueError(
                f"`theta` must have shape (n, {self.dim}) for a {self._description}, got "
                f"{values.shape}. Use the space the parameters were made for."
            )
        largest = max(values.max(initial=0.0), -values.min(initial=0.0))
        if largest > MAX_THETA:
            raise ValueError(
                f"`theta` must have absolute values up to {MAX_THETA:g}, got {largest:g}. "
                "Scale it down."
            )
        return np.atleast_2d(values), values.ndim == 1

    def _check_points(self, points: ArrayLike) -> Array:
        values = as_finite_array("points", points)
        if values.ndim not in (2, 3) or values.shape[-1] != self.ndim:
            raise ValueError(
                f"`points` must have shape (m, {self.ndim}) or (n, m, {self.ndim}) for a "
                f"{self._description}, got {values.shape}."
            )
        return values

    def _check_batch(self, theta: ArrayLike, points: ArrayLike) -> tuple[Array, Array, bool]:
        """θ (n, d), points (n or 1, m, ndim), and whether a single θ was given."""
        parameters, single = self.check_theta(theta)
        positions = self._check_points(points)
        if positions.ndim == 2:
            return parameters, positions[None], single
        if len(parameters) == 1 and len(positions) != 1:
            parameters = np.repeat(parameters, len(positions), axis=0)
        if len(positions) not in (1, len(parameters)):
            raise ValueError(
                f"`theta` and `points` must agree in their first axis: got {len(parameters)} θ and "
                f"{len(positions)} sets of points. Give one set (m, {self.ndim}) to move it by "
                "every θ."
            )
        return parameters, positions, False


def _check_cells(cells: Any) -> tuple[int, ...]:
    try:
        values = tuple(cells)
    except TypeError:
        values = (cells,)
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in values)
    if not whole or not 1 <= len(values) <= MAX_AXES or min(values) < 1:
        raise ValueError(
            f"`cells` must be 1 to {MAX_AXES} positive integers, the cells per axis, such as "
            f"(4, 4), got {cells!r}."
        )
    return tuple(int(n) for n in values)


def check_tolerance(method: Method, tolerance: float) -> float:
    """Return ``tolerance`` as float; raise if the method is unknown or can't keep it."""
    check_choice("method", method, ("fast", "exact"))
    number = check_positive("tolerance", tolerance)
    if method == "fast" and number < MIN_TOLERANCE:
        raise ValueError(
            f"`tolerance` must be at least {MIN_TOLERANCE:g}, the precision of float32, got "
            f'{tolerance!r}. Use method="exact" for smaller errors.'
        )
    return number


def _check_paths(name: str, values: ArrayLike, shape: tuple[int, ...], single: bool) -> Floats:
    array: Floats = np.asarray(values)
    # The fast flow's own result is used without a copy, which would cost a good part of the flow.
    if array.dtype != np.float32 or not array.flags.carray or not np.isfinite(array).all():
        array = as_finite_array(name, array)
    if single and array.ndim == 2:
        array = array[None]
    if array.shape != shape:
        raise ValueError(
            f"`{name}` must have the shape of the moved points, {shape}, got {array.shape}."
        )
    return array
