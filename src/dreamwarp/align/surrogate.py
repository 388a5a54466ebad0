"""A Gaussian that stands in for the posterior of each pair: Laplace's approximation, or better."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import algebra
from dreamwarp.align.posterior import Posterior

Array = NDArray[np.float64]

# What so many draws per coordinate say of a covariance is worth as much as what is known without.
DRAWS_PER_COORDINATE = 8


class Surrogate:
    """N(center, (Uᵀ U)⁻¹) for each pair of a block.

    Parameters
    ----------
    centers : (n, d)
    matrices : (n, d, d)
        Precisions, upper triangles.
    """

    def __init__(self, centers: Array, matrices: Array) -> None:
        self.centers, self.matrices = centers, matrices
        self.factors = matrices.copy()
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

        Gauss-Newton's Hessian leaves out that residuals which no warp can remove flatten the
        posterior, so along a few directions draws spread many times as far as it says. In
        coordinates in which it is one, their covariance C is taken, shrunk towards a multiple of
        one: the fewer draws there are, the more.
        """
        n, n_draws, d = draws.shape
        near = cls(draws.mean(axis=1), matrices)
        which = np.repeat(np.arange(n), n_draws)
        white = near.whiten(draws.reshape(-1, d), which).reshape(draws.shape)
        covariances = np.einsum("nsi,nsj->nij", white, white) / (n_draws - 1)
        sizes = np.einsum("nii->n", covariances)[:, None, None] / d
        sizes = np.where(sizes > 0.0, sizes, 1.0)  # of chains that never moved nothing is known
        share = n_draws / (n_draws + DRAWS_PER_COORDINATE * d)
        shrunk = share * covariances + (1.0 - share) * sizes * np.eye(d)
        # U⁻¹ C U⁻ᵀ is the covariance, so Uᵀ C⁻¹ U its inverse.
        upper = np.triu(near.factors)
        precisions = np.swapaxes(upper, 1, 2) @ np.linalg.solve(shrunk, upper)
        return cls(near.centers, np.triu(precisions))

    def refitted(self, chosen: NDArray[np.int64], draws: Array) -> Surrogate:
        """With some of the surrogates fitted to draws (k, n_draws, d) instead.

        Each is given to as many of the chosen, one after the other, as there are for k.
        """
        times = len(chosen) // len(draws)
        new = Surrogate.fitted(draws, self.matrices[chosen[::times]]).repeated(times)
        centers, matrices = self.centers.copy(), self.matrices.copy()
        centers[chosen], matrices[chosen] = new.centers, new.matrices
        return Surrogate(centers, matrices)

    def repeated(self, times: int) -> Surrogate:
        """The same for every pair several times over."""
        return Surrogate(np.repeat(self.centers, times, 0), np.repeat(self.matrices, times, 0))

    def spread(self, normals: Array, which: NDArray[np.int64]) -> Array:
        """center + U⁻¹ normals (k, d), for some of the pairs: draws."""
        out = normals.copy()
        algebra.divide_all(0, len(out), self.factors, which, False, out)
        return out + self.centers[which]

    def whiten(self, x: Array, which: NDArray[np.int64]) -> Array:
        """U (x - center): what :meth:`spread` makes x of."""
        out = np.empty(x.shape)
        algebra.multiply_all(0, len(out), self.factors, which, x - self.centers[which], out)
        return out

    def pull(self, gradients: Array, which: NDArray[np.int64]) -> Array:
        """U⁻ᵀ gradients (k, d): derivatives by the standard normals of :meth:`spread`."""
        out = gradients.copy()
        algebra.divide_all(0, len(out), self.factors, which, True, out)
        return out

    def push(self, x: Array, which: NDArray[np.int64], coordinates: NDArray[np.int64]) -> Array:
        """Some coordinates of H (x - center): minus the gradient of the log-density."""
        out, offsets = np.empty((len(x), len(coordinates))), x - self.centers[which]
        algebra.multiply_symmetric(0, len(x), self.matrices, which, coordinates, offsets, out)
        return out
