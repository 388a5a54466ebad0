"""The posterior of warps between pairs: log-density, gradient and Gauss-Newton Hessian.

Everything here is for a block of pairs at once and in free coordinates x: the free velocities at
the vertices, in which the posterior's Hessian is sparse and a change of one coordinate is local.
θ = C⁻¹ x, where C is fixed by the space. (Under volume preservation x is θ itself.)
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import algebra
from dreamwarp.align import image_kernels as kernels
from dreamwarp.align.similarity import Similarity
from dreamwarp.core.compiled import count_chunks
from dreamwarp.core.interpolation import EDGE, WRAP
from dreamwarp.core.lanes import FIELDS
from dreamwarp.space import WarpSpace, coordinates, fast

Array = NDArray[np.float64]

# Error of a path, in domain units: a hundredth of a pixel at 100 pixels per axis.
TOLERANCE = 1e-4
# Entries of the log of crossings per pixel, to begin with; it grows as needed.
ENTRIES_PER_PIXEL = 3


class Coordinates:
    """Free coordinates x of a space, and how they become fields and θ."""

    def __init__(self, space: WarpSpace) -> None:
        self.space = space
        self.mesh = space._mesh
        self.unknown = space._basis.unknown
        self.mixing = space._basis.mixing
        self.dim = space.dim
        self._identity = np.ones((len(space._basis.factor), 1))

    @cached_property
    def _from_theta(self) -> Array:
        """C (n_unknowns, d): unknowns = C θ."""
        velocities = self.space.vertex_velocities(np.eye(self.dim))
        matrix = np.empty((len(self._identity), self.dim))
        axis, vertex = np.nonzero(self.unknown >= 0)
        matrix[self.unknown[axis, vertex]] = velocities[:, vertex, axis].T
        return matrix

    @cached_property
    def _to_theta(self) -> Array:
        """C⁻¹ (d, d), where C is square."""
        return np.asarray(np.linalg.inv(self._from_theta), dtype=np.float64)

    # einsum below: a matrix product may sum in another order for another number of θ.

    def from_theta(self, theta: Array) -> Array:
        """x (n, d) of θ (n, d)."""
        if self.mixing is not None:
            return theta.copy()
        return np.einsum("xd,...d->...x", self._from_theta, theta)

    def to_theta(self, x: Array) -> Array:
        """θ (n, d) of x (n, d)."""
        if self.mixing is not None:
            return x.copy()
        return np.einsum("dx,...x->...d", self._to_theta, x)

    def precision(self, by_theta: Array) -> Array:
        """The matrix of a quadratic form of θ, for x."""
        if self.mixing is not None:
            return by_theta
        half = np.linalg.solve(self._from_theta.T, by_theta)
        whole = np.linalg.solve(self._from_theta.T, half.T)
        return np.ascontiguousarray(0.5 * (whole + whole.T))

    def fields(self, x: Array) -> tuple[Array, Array, Array]:
        """Node velocities (n, nodes, ndim), longest steps (n,), 0 where too stiff, and ease."""
        unknowns = x if self.mixing is None else np.einsum("ux,nx->nu", self.mixing, x)
        n, cells = len(x), self.mesh.cells
        velocities = np.zeros((n, len(self.mesh.nodes), len(cells)))
        bounds = np.empty(n), np.empty(n), np.empty(n)
        coordinates.node_velocities(
            0, count_chunks(n, FIELDS), self.mesh, self.unknown, self._identity,
            np.ascontiguousarray(unknowns), velocities, *bounds,
        )  # fmt: skip
        lengths, ease = np.empty(n), np.empty(n)
        fast.step_lengths(0, n, cells, *bounds, TOLERANCE, lengths, ease)
        return velocities, lengths, ease

    def pull(self, gradients: Array, hessians: Array) -> tuple[Array, Array]:
        """Derivatives by mixed unknowns as derivatives by x; of Hessians the upper triangle."""
        assert self.mixing is not None
        gradients = np.einsum("ux,nu->nx", self.mixing, gradients)
        if not hessians.size:
            return gradients, hessians
        full = np.triu(hessians) + np.swapaxes(np.triu(hessians, 1), 1, 2)
        return gradients, self.mixing.T @ full @ self.mixing


def build_grid(space: WarpSpace, shape: tuple[int, ...]) -> kernels.Grid:
    """The pixels of samples of a shape."""
    axes = [(np.arange(size) + 0.5) / size for size in shape]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(shape))
    regions = np.empty(len(points), np.uint32)
    weights, turns = np.empty(points.shape, np.float32), np.zeros(points.shape, np.float32)
    only = np.zeros(1, np.int64)
    fast.enter_all(0, len(points), space._mesh, points[None], only, regions, weights, turns)
    rule = WRAP if space.boundary == "periodic" else EDGE
    return kernels.Grid(
        regions, weights, turns, np.arange(len(points)), shape,
        np.array(shape, np.float32), rule,
    )  # fmt: skip


class ImagePairs(NamedTuple):
    """A block of pairs at one resolution."""

    sources: NDArray[np.float32]  # (n, channels, m)
    targets: NDArray[np.float32]  # (n, channels, m)
    grid: kernels.Grid


class Posterior:
    """The posterior of each pair of a block.

    Parameters
    ----------
    coordinates : Coordinates
    precision : (d, d)
        The prior's, for x.
    pairs : ImagePairs
    similarity : Similarity
    weight : float or (n,)
        Times the log-likelihood: pixels of the full image per pixel, at a coarse resolution.
    n_words : int
        Words of the set of nodes that each path met; 0 if it is not recorded.
    """

    def __init__(
        self,
        coordinates: Coordinates,
        precision: Array,
        pairs: ImagePairs,
        similarity: Similarity,
        *,
        weight: float | Array = 1.0,
        n_words: int = 0,
    ) -> None:
        self.coordinates = coordinates
        self.precision = precision
        self.pairs = pairs
        self.similarity = similarity
        self.weights = np.broadcast_to(weight, len(pairs.sources))
        self.n_words = n_words
        self.states = self.make_states()
        self._capacity = ENTRIES_PER_PIXEL * pairs.sources.shape[2]

    def __len__(self) -> int:
        return len(self.pairs.sources)

    def of(self, pairs: ImagePairs, *, n_words: int = 0) -> Posterior:
        """The same for other pairs."""
        return Posterior(self.coordinates, self.precision, pairs, self.similarity, n_words=n_words)

    def tempered(self, shares: Array) -> Posterior:
        """The posterior whose log-likelihood is only a share (n,) of this one's.

        States are shared: only one of the two may be evaluated at a time.
        """
        other = copy.copy(self)
        other.weights = self.weights * shares
        return other

    def push_prior(self, x: Array) -> tuple[Array, Array]:
        """-xᵀ P x / 2 of x (n, d), and its gradient -P x."""
        densities, gradients = np.empty(len(x)), np.empty(x.shape)
        algebra.weigh_prior(0, len(x), self.precision, x, densities, gradients)
        return densities, gradients

    def log_density(
        self, x: Array, chosen: NDArray[np.int64], states: kernels.States | None = None
    ) -> Array:
        """Log-posterior of x (k, d) for the chosen pairs (k,), up to a constant; (k,).

        Minus infinity for fields so stiff that their paths could not be followed in float32.
        States are kept for :meth:`derivatives`, which must be of the same x. ``states``: where else
        to keep them.
        """
        states = self.states if states is None else states
        velocities, lengths, ease = self.coordinates.fields(x)
        followed = lengths > 0
        kept = chosen[followed]
        kernels.trace(
            0, len(kept), self.coordinates.mesh, self.pairs.grid, velocities[followed],
            lengths[followed], ease[followed], kept, self.pairs.sources, states,
        )  # fmt: skip
        return self._weigh(x, chosen, followed, states)

    def derivatives(
        self, x: Array, chosen: NDArray[np.int64], *, second: bool = True
    ) -> tuple[Array, Array]:
        """Gradient of the log-density (k, d), and the likelihood's part of minus its Hessian.

        The latter is (k, d, d), upper triangles, in Gauss-Newton's approximation; (k, 0, 0) if not
        asked for.
        """
        n, d = x.shape
        gradients, hessians = np.empty((n, d)), np.empty((n, d, d) if second else (n, 0, 0))
        self.put_derivatives(x, chosen, np.arange(n), gradients, hessians)
        return gradients, hessians

    def put_derivatives(
        self,
        x: Array,
        chosen: NDArray[np.int64],
        places: NDArray[np.int64],
        gradients: Array,
        hessians: Array,
    ) -> None:
        """:meth:`derivatives` into some places (k,) of larger arrays (n, d) and (n, d, d)."""
        if not len(x):
            return
        slopes, curvatures = self.similarity.derivatives(
            self.states.values[chosen], self.pairs.targets[chosen]
        )
        slopes, curvatures = (
            self.weights[chosen, None, None] * values for values in (slopes, curvatures)
        )
        velocities, lengths, _ = self.coordinates.fields(x)
        assert (lengths > 0.0).all(), "x has no finite log-density"
        by_unknowns, into = (gradients, hessians), places
        if self.coordinates.mixing is not None:
            n_unknowns, into = len(self.coordinates.mixing), np.arange(len(x))
            size = (len(x), n_unknowns, n_unknowns) if hessians.size else (len(x), 0, 0)
            by_unknowns = np.empty((len(x), n_unknowns)), np.empty(size)
        while True:
            entries = np.zeros(len(x), np.int64)
            kernels.linearise(
                0, len(x), self.coordinates.mesh, self.pairs.grid, self.coordinates.unknown,
                velocities, lengths, chosen, self.pairs.sources, self.states, slopes, curvatures,
                self._capacity, into, *by_unknowns, entries,
            )  # fmt: skip
            needed = int(entries.max(initial=0))
            if needed <= self._capacity:
                break
            self._capacity = needed * 3 // 2
        if self.coordinates.mixing is not None:
            pulled = self.coordinates.pull(*by_unknowns)
            gradients[places], hessians[places] = pulled
        gradients[places] += self.push_prior(x)[1]

    def log_density_nearby(
        self,
        x: Array,
        chosen: NDArray[np.int64],
        changed: NDArray[np.uint64],
        backup: kernels.Backup,
    ) -> tuple[Array, NDArray[np.bool_]]:
        """:meth:`log_density`, where x differs from what was last asked for at some nodes only.

        Parameters
        ----------
        changed : (words,)
            The set of those nodes.
        backup : Backup
            Receives what is needed to go back by ``kernels.restore``.

        Returns
        -------
        density : (k,)
        followed : (k,)
            False for fields too stiff to be followed: for them nothing has been changed.
        """
        velocities, lengths, ease = self.coordinates.fields(x)
        followed = lengths > 0
        kept, sets = chosen[followed], np.broadcast_to(changed, (len(x), len(changed)))
        kernels.retrace(
            0, len(kept), self.coordinates.mesh, self.pairs.grid, velocities[followed],
            lengths[followed], ease[followed], kept, sets[followed], self.pairs.sources,
            self.states, backup,
        )  # fmt: skip
        return self._weigh(x, chosen, followed, self.states), followed

    def _weigh(
        self,
        x: Array,
        chosen: NDArray[np.int64],
        followed: NDArray[np.bool_],
        states: kernels.States,
    ) -> Array:
        kept = chosen[followed]
        density = np.full(len(x), -np.inf)
        if not len(kept):  # similarities are never asked about nothing
            return density
        likelihood = self.similarity.log_likelihood(states.values[kept], self.pairs.targets[kept])
        density[followed] = self.weights[kept] * likelihood + self.push_prior(x[followed])[0]
        return density

    def adopt(self, states: kernels.States, chosen: NDArray[np.int64]) -> None:
        """Take over what other states know of the chosen pairs."""
        arrays: Any = zip(self.states, states, strict=True)
        for own, other in arrays:
            own[chosen] = other[chosen]

    def make_states(self) -> kernels.States:
        """Room for what is known of all pixels."""
        n, n_channels, m = self.pairs.sources.shape
        ndim, words = self.coordinates.space.ndim, self.n_words
        return kernels.States(
            np.empty((n, m), np.uint32), np.empty((n, m, ndim), np.float32),
            np.empty((n, m, ndim), np.float32), np.zeros((n, m if words else 0, words), np.uint64),
            np.empty((n, m * ndim), np.float32), np.empty((n, n_channels, m), np.float32),
        )  # fmt: skip


def shrink(images: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Images (n, channels, *spatial) at a coarser resolution, smoothed as it demands."""
    out: NDArray[Any] = images
    for axis, size in enumerate(shape):
        weights = _shrink_axis(images.shape[axis + 2], size)
        # einsum: a matrix product may sum in another order for another number of images.
        out = np.moveaxis(
            np.einsum("...a,ba->...b", np.moveaxis(out, axis + 2, -1), weights), -1, axis + 2
        )
    return np.ascontiguousarray(out, dtype=np.float32)


def _shrink_axis(size: int, coarse: int) -> NDArray[np.float32]:
    """Gaussian averages of pixels, half a coarse pixel wide: (coarse, size)."""
    fine, centers = (np.arange(size) + 0.5) / size, (np.arange(coarse) + 0.5) / coarse
    distance = (centers[:, None] - fine) * coarse
    weights = np.exp(-0.5 * (distance / 0.5) ** 2)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)
