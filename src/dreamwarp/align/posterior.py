"""The posterior of warps between pairs: log-density, gradient and Gauss-Newton Hessian.

All functions take a block of pairs, and free coordinates x = C θ: the unknown velocities at the
vertices, in which the likelihood's Hessian is sparse.
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import algebra
from dreamwarp.align import image_kernels as kernels
from dreamwarp.align.similarity import Similarity
from dreamwarp.core.interpolation import EDGE, WRAP
from dreamwarp.core.samples import pixel_centers
from dreamwarp.space import WarpSpace, fast
from dreamwarp.space.warpspace import FLOW_TOLERANCE

Array = NDArray[np.float64]

# Initial capacity of the log of crossings, per pixel; it grows as needed.
ENTRIES_PER_PIXEL = 3
# Fields close to the limit of stiffness have density 0, although they could be followed. Bounds on
# stiffness are rounded differently by place in a batch, so a mode at the limit could be followed in
# one batch and not in another.
SEARCH_FLOW_TOLERANCE = 0.999 * FLOW_TOLERANCE


class VertexCoordinates:
    """Free vertex velocities x of a space, and their conversion to θ and to velocity fields."""

    def __init__(self, space: WarpSpace) -> None:
        self.space = space
        self.mesh = space.mesh
        self.unknown = space.vertex_basis.unknown
        self.dim = space.dim
        self._identity = np.ones((space.dim, 1))  # ``Basis.columns`` for L = I: x are velocities

    @cached_property
    def _from_theta(self) -> Array:
        """C (d, d)."""
        velocities = self.space.vertex_velocities(np.eye(self.dim))
        matrix = np.empty((self.dim, self.dim))
        axis, vertex = np.nonzero(self.unknown >= 0)
        matrix[self.unknown[axis, vertex]] = velocities[:, vertex, axis].T
        return matrix

    @cached_property
    def _to_theta(self) -> Array:
        """C⁻¹ (d, d)."""
        return np.asarray(np.linalg.inv(self._from_theta), dtype=np.float64)

    # einsum, because the order of summation of a matrix product may depend on the number of θ.

    def from_theta(self, theta: Array) -> Array:
        """Convert θ (n, d) to x (n, d)."""
        return np.einsum("xd,...d->...x", self._from_theta, theta)

    def to_theta(self, x: Array) -> Array:
        """Convert x (n, d) to θ (n, d)."""
        return np.einsum("dx,...x->...d", self._to_theta, x)

    def precision(self, by_theta: Array) -> Array:
        """Convert a precision (d, d) of θ to a precision of x."""
        half = np.linalg.solve(self._from_theta.T, by_theta)
        whole = np.linalg.solve(self._from_theta.T, half.T)
        return np.ascontiguousarray(0.5 * (whole + whole.T))

    def fields(self, x: Array, tolerance: float = FLOW_TOLERANCE) -> tuple[Array, Array, Array]:
        """Node velocities (n, nodes, ndim), step lengths (n,), 0 if too stiff, and ease (n,)."""
        fields = self.space.unchecked_fields(np.ascontiguousarray(x), 1, columns=self._identity)
        return fields.velocities, *fields.steps(tolerance)


def build_grid(space: WarpSpace, shape: tuple[int, ...]) -> kernels.PixelGrid:
    """The pixels of samples of the given spatial shape."""
    located = space.fields(np.zeros((1, space.dim))).locate(pixel_centers(shape)[None])
    starts = fast.Starts(*(values[0] for values in located))
    rule = WRAP if space.boundary == "periodic" else EDGE
    return kernels.PixelGrid(starts, shape, np.array(shape, np.float32), rule)


class PairBlock(NamedTuple):
    """A block of pairs at one resolution."""

    sources: NDArray[np.float32]  # (n, channels, m)
    targets: NDArray[np.float32]  # (n, channels, m)
    grid: kernels.PixelGrid


class Posterior:
    """The posterior of each pair of a block.

    ``precision`` (d, d) is that of the prior, for x. ``weight``, a number or (n,), multiplies the
    log-likelihood: at a coarse resolution, pixels of the full image per pixel.
    """

    def __init__(
        self,
        coordinates: VertexCoordinates,
        precision: Array,
        pairs: PairBlock,
        similarity: Similarity,
        *,
        weight: float | Array = 1.0,
    ) -> None:
        self.coordinates = coordinates
        self.precision = precision
        self.pairs = pairs
        self.similarity = similarity
        (n, n_channels, m), ndim = pairs.sources.shape, coordinates.space.ndim
        self.weights = np.broadcast_to(weight, n)
        self.states = kernels.States(
            np.empty((n, m), np.uint32), np.empty((n, m, ndim), np.float32),
            np.empty((n, m * ndim), np.float32), np.empty((n, n_channels, m), np.float32),
        )  # fmt: skip
        self._capacity = ENTRIES_PER_PIXEL * m

    def __len__(self) -> int:
        return len(self.pairs.sources)

    def repeated(self, times: int) -> Posterior:
        """The posterior of every pair, repeated ``times`` times."""
        sources, targets = (np.repeat(images, times, axis=0) for images in self.pairs[:2])
        pairs = PairBlock(sources, targets, self.pairs.grid)
        weights = np.repeat(self.weights, times)
        return Posterior(self.coordinates, self.precision, pairs, self.similarity, weight=weights)

    def tempered(self, shares: Array) -> Posterior:
        """The posterior with log-likelihoods multiplied by factors ``shares`` (n,).

        Both posteriors share their states: :meth:`derivatives` refers to the one moved last.
        """
        other = copy.copy(self)
        other.weights = self.weights * shares
        return other

    def log_prior(self, x: Array) -> tuple[Array, Array]:
        """-xᵀ P x / 2 of x (n, d), and its gradient -P x."""
        densities, gradients = np.empty(len(x)), np.empty(x.shape)
        algebra.weigh_prior(0, len(x), self.precision, x, densities, gradients)
        return densities, gradients

    def move(
        self, x: Array, chosen: NDArray[np.int64], tolerance: float = FLOW_TOLERANCE
    ) -> NDArray[np.bool_]:
        """Warp the sources of the chosen pairs (k,) by x (k, d), and store the result as states.

        Returns a mask (k,) of the pairs that were moved: fields too stiff for float32 are not
        followed. Afterwards, call :meth:`derivatives` with the same x.
        """
        velocities, lengths, ease = self.coordinates.fields(x, tolerance)
        followed = lengths > 0
        kernels.trace(
            0, int(followed.sum()), self.coordinates.mesh, self.pairs.grid, velocities[followed],
            lengths[followed], ease[followed], chosen[followed], self.pairs.sources, self.states,
        )  # fmt: skip
        return followed

    def log_density(self, x: Array, chosen: NDArray[np.int64]) -> Array:
        """Log-posterior of x (k, d) for the chosen pairs (k,), up to a constant; (k,).

        Minus infinity for fields too stiff for float32. Sets the states, as :meth:`move` does.
        """
        followed = self.move(x, chosen, SEARCH_FLOW_TOLERANCE)
        kept = chosen[followed]
        density = np.full(len(x), -np.inf)
        if not len(kept):  # a similarity never gets an empty batch
            return density
        values, targets = self.states.values[kept], self.pairs.targets[kept]
        likelihood = self.similarity.log_likelihood(values, targets)
        density[followed] = self.weights[kept] * likelihood + self.log_prior(x[followed])[0]
        return density

    def log_density_of_identity(self) -> Array:
        """Log-posterior of x = 0 for all pairs (n,), with the constant of :meth:`log_density`."""
        return self.weights * self.similarity.log_likelihood(self.pairs.sources, self.pairs.targets)

    def derivatives(
        self, x: Array, chosen: NDArray[np.int64], *, second: bool = True
    ) -> tuple[Array, Array]:
        """Gradient of the log-density (k, d), and minus the Hessian of the log-likelihood.

        The Hessian is Gauss-Newton's, (k, d, d); (k, 0, 0) without ``second``.
        """
        n, d = x.shape
        gradients, hessians = np.empty((n, d)), np.empty((n, d, d) if second else (n, 0, 0))
        if not n:  # as above
            return gradients, hessians
        slopes, curvatures = self.similarity.derivatives(
            self.states.values[chosen], self.pairs.targets[chosen]
        )
        slopes, curvatures = (
            self.weights[chosen, None, None] * values for values in (slopes, curvatures)
        )
        velocities, lengths, _ = self.coordinates.fields(x)
        assert (lengths > 0.0).all(), "x has no finite log-density"
        while True:
            entries = np.zeros(n, np.int64)
            kernels.linearise(
                0, n, self.coordinates.mesh, self.pairs.grid, self.coordinates.unknown,
                velocities, lengths, chosen, self.pairs.sources, self.states, slopes, curvatures,
                self._capacity, gradients, hessians, entries,
            )  # fmt: skip
            needed = int(entries.max(initial=0))
            if needed <= self._capacity:
                break
            self._capacity = needed * 3 // 2
        gradients += self.log_prior(x)[1]
        return gradients, hessians
