"""A Gaussian that stands in for the posterior of each pair: Laplace's approximation, or better."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import algebra
from dreamwarp.align.posterior import Posterior

Array = NDArray[np.float64]

# Draws of a chain that are worth as much as one independent draw: a guess that need not be right.
DRAWS_PER_EFFECTIVE = 3.0


class Surrogate:
    """N(center, (L Lᵀ)⁻¹) for each pair of a block.

    Parameters
    ----------
    centers : (n, d)
    matrices : (n, d, d)
        Precisions, lower triangles.
    """

    def __init__(self, centers: Array, matrices: Array) -> None:
        self.centers, self.matrices = centers, matrices
        self.factors = matrices.copy()  # upper triangles get the mirrored factor
        algebra.factorise_all(0, len(matrices), self.factors, np.empty(len(matrices), np.bool_))

    @classmethod
    def at_modes(cls, posterior: Posterior, modes: Array) -> Surrogate:
        """Laplace's approximation with Gauss-Newton's Hessian, for all pairs of a posterior."""
        everyone = np.arange(len(posterior))
        posterior.log_density(modes, everyone)
        return cls(modes, posterior.derivatives(modes, everyone)[1] + posterior.precision)

    @classmethod
    def fitted(cls, draws: Array, matrices: Array) -> Surrogate:
        """A surrogate that resembles draws (n, n_draws, d), given precisions that nearly fit.

        The precisions are kept but for directions along which the draws spread further than chance
        would have it: Gauss-Newton's Hessian leaves out that residuals which no warp can remove
        flatten the posterior. By chance, sample variances of n independent draws reach up to
        (1 + √(d / n))² (Marchenko and Pastur 1967).
        """
        n, n_draws, d = draws.shape
        near = cls(draws.mean(axis=1), matrices)
        which = np.repeat(np.arange(n), n_draws)
        white = near.whiten(draws.reshape(-1, d), which).reshape(draws.shape)
        covariances = np.einsum("nsi,nsj->nij", white, white) / (n_draws - 1)
        variances, directions = np.linalg.eigh(covariances)
        chance = (1.0 + np.sqrt(d * DRAWS_PER_EFFECTIVE / n_draws)) ** 2
        stretched = variances > chance
        stretch = np.where(stretched, 1.0 / np.maximum(variances, chance) - 1.0, 0.0)
        # H becomes L (I + Σ (1/s - 1) u uᵀ) Lᵀ: variance s along L⁻ᵀ u.
        moved = np.tril(near.factors) @ directions
        added = np.einsum("nik,nk,njk->nij", moved, stretch, moved)
        return cls(near.centers, matrices + added)

    def repeated(self, times: int) -> Surrogate:
        """The same for every pair several times over."""
        return Surrogate(np.repeat(self.centers, times, 0), np.repeat(self.matrices, times, 0))

    def spread(self, normals: Array, which: NDArray[np.int64]) -> Array:
        """center + L⁻ᵀ normals (k, d), for some of the pairs: draws."""
        out = normals.copy()
        algebra.divide_all(0, len(out), self.factors[which], True, out)
        return out + self.centers[which]

    def whiten(self, x: Array, which: NDArray[np.int64]) -> Array:
        """Lᵀ (x - center): what :meth:`spread` makes x of."""
        out = np.empty(x.shape)
        algebra.multiply_all(0, len(out), self.factors[which], x - self.centers[which], out)
        return out

    def pull(self, gradients: Array, which: NDArray[np.int64]) -> Array:
        """L⁻¹ gradients (k, d): derivatives by the standard normals of :meth:`spread`."""
        out = gradients.copy()
        algebra.divide_all(0, len(out), self.factors[which], False, out)
        return out

    def push(self, x: Array, which: NDArray[np.int64]) -> Array:
        """H (x - center): minus the gradient of the log-density."""
        out = np.empty(x.shape)
        algebra.multiply_symmetric(0, len(out), self.matrices[which], x - self.centers[which], out)
        return out
