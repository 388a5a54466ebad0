"""Gaussian approximations of the posteriors of pairs: Laplace's, or fitted to draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dreamwarp.align import algebra
from dreamwarp.align.posterior import Array, Posterior

# Shrinkage weight: the number of draws per coordinate at which draws and prior guess count equally.
DRAWS_PER_COORDINATE = 8
# Curvature is measured by central differences over this many standard deviations, along this many
# directions: those that the likelihood determines best. Measuring 12 to 24 of 50 directions is as
# good as measuring all.
REACH, N_MEASURED = 2.0, 16
# Smallest ratio of a measured curvature to Gauss-Newton's: standard deviations grow at most 4
# times.
LEAST_CURVATURE = 1.0 / 16.0


class Surrogate:
    """N(center, (Uᵀ U)⁻¹) for each pair of a block, with centers (n, d).

    ``matrices`` (n, d, d) are the precisions; only their upper triangles are read.
    """

    def __init__(self, centers: Array, matrices: Array) -> None:
        self.centers, self.matrices = centers, matrices
        self.factors = matrices.copy()
        algebra.factorise_all(0, len(matrices), self.factors, np.empty(len(matrices), np.bool_))

    @classmethod
    def at_modes(cls, posterior: Posterior, modes: Array) -> Surrogate:
        """Laplace's approximation with the Gauss-Newton Hessian, for all pairs of a posterior."""
        all_pairs = np.arange(len(posterior))
        posterior.move(modes, all_pairs)
        return cls(modes, posterior.derivatives(modes, all_pairs)[1] + posterior.precision)

    @classmethod
    def measured(cls, posterior: Posterior, modes: Array) -> Surrogate:
        """Laplace's approximation with measured curvatures.

        The Gauss-Newton Hessian omits the second-order term of the residuals, which flattens the
        posterior along a few directions: the true variance there is several times larger. The
        posterior is flatter still where draws lie: typically one standard deviation from the mode
        in each of d coordinates. Let the Gauss-Newton Hessian be the identity in coordinates z, and
        V be the orthonormal directions that the likelihood determines best. The curvature along V
        is measured from gradients g on both sides of standard normal z ⊥ V,
        Vᵀ (g(z - hV) - g(z + hV)) / 2h. For pairs of digits, the total variance of long chains is
        1.7 times that of Gauss-Newton, 1.2 times that with curvatures measured at the mode, and
        1.05 times that of this approximation (medians of 24 pairs).
        """
        near, d = cls.at_modes(posterior, modes), modes.shape[1]
        # The same for all pairs, so that results do not depend on the block.
        normals = np.random.default_rng(0).normal(size=(min(d, N_MEASURED), d))
        upper = np.triu(near.factors)
        inverse = np.linalg.inv(upper)
        # Prior and likelihood sum to the identity. The prior is smallest in the first directions.
        prior_share = np.swapaxes(inverse, 1, 2) @ posterior.precision @ inverse
        directions = np.linalg.eigh(prior_share)[1][:, :, : min(d, N_MEASURED)]
        products = np.stack(
            [near._curve(posterior, directions[:, :, k], z) for k, z in enumerate(normals)], 2
        )
        curvatures = np.swapaxes(directions, 1, 2) @ products
        values, axes = np.linalg.eigh(0.5 * (curvatures + np.swapaxes(curvatures, 1, 2)))
        along = np.swapaxes(directions @ axes, 1, 2) @ upper  # Vᵀ U, with V the measured axes
        change = np.maximum(values, LEAST_CURVATURE) - 1.0
        matrices = near.matrices + np.swapaxes(along, 1, 2) @ (change[:, :, None] * along)
        return cls(near.centers, matrices)

    def _curve(self, posterior: Posterior, directions: Array, z: Array) -> Array:
        """Whitened curvature at z (d,) times directions (n, d); the identity where not finite."""
        all_pairs = np.arange(len(directions))
        # einsum: a matrix product may sum in another order for another number of pairs.
        about = z - np.einsum("nd,d->n", directions, z)[:, None] * directions
        slopes, known = np.zeros((2, *directions.shape)), np.ones(len(directions), bool)
        for side, sign in enumerate((-1.0, 1.0)):
            x = self.unwhiten(about + sign * REACH * directions, all_pairs)
            known &= np.isfinite(posterior.log_density(x, all_pairs))
            some = np.flatnonzero(known)
            gradients = posterior.derivatives(x[some], some, second=False)[0]
            slopes[side, some] = self.pull(gradients, some)
        products = (slopes[0] - slopes[1]) / (2.0 * REACH)
        return np.where(known[:, None], products, directions)

    @classmethod
    def fitted(cls, draws: Array, matrices: Array) -> Surrogate:
        """Gaussians fitted to draws (n, n_draws, d), given approximate precisions.

        In coordinates where these precisions are the identity, the covariance C of the draws is
        shrunk towards a multiple of the identity; the fewer draws, the more.
        """
        n, n_draws, d = draws.shape
        near = cls(draws.mean(axis=1), matrices)
        which = np.repeat(np.arange(n), n_draws)
        white = near.whiten(draws.reshape(-1, d), which).reshape(draws.shape)
        covariances = np.einsum("nsi,nsj->nij", white, white) / (n_draws - 1)
        sizes = np.einsum("nii->n", covariances)[:, None, None] / d
        sizes = np.where(sizes > 0.0, sizes, 1.0)  # zero for chains that never moved
        share = n_draws / (n_draws + DRAWS_PER_COORDINATE * d)
        shrunk = share * covariances + (1.0 - share) * sizes * np.eye(d)
        # The covariance is U⁻¹ C U⁻ᵀ, and so the precision Uᵀ C⁻¹ U.
        upper = np.triu(near.factors)
        precisions = np.swapaxes(upper, 1, 2) @ np.linalg.solve(shrunk, upper)
        return cls(near.centers, precisions)

    def refitted(self, chosen: NDArray[np.int64], draws: Array) -> Surrogate:
        """A copy with the chosen surrogates fitted to draws (k, n_draws, d).

        Each fit replaces len(chosen) / k consecutive chosen surrogates.
        """
        times = len(chosen) // len(draws)
        new = Surrogate.fitted(draws, self.matrices[chosen[::times]]).repeated(times)
        centers, matrices = self.centers.copy(), self.matrices.copy()
        centers[chosen], matrices[chosen] = new.centers, new.matrices
        return Surrogate(centers, matrices)

    def repeated(self, times: int) -> Surrogate:
        """Each surrogate repeated ``times`` times."""
        return Surrogate(np.repeat(self.centers, times, 0), np.repeat(self.matrices, times, 0))

    def unwhiten(self, normals: Array, which: NDArray[np.int64]) -> Array:
        """Draws center + U⁻¹ normals (k, d) of the surrogates ``which`` (k,)."""
        out = normals.copy()
        algebra.divide_all(0, len(out), self.factors, which, False, out)
        return out + self.centers[which]

    def whiten(self, x: Array, which: NDArray[np.int64]) -> Array:
        """U (x - center), the inverse of :meth:`unwhiten`."""
        out = np.empty(x.shape)
        algebra.multiply_all(0, len(out), self.factors, which, x - self.centers[which], out)
        return out

    def pull(self, gradients: Array, which: NDArray[np.int64]) -> Array:
        """U⁻ᵀ gradients (k, d): derivatives with respect to the normals of :meth:`unwhiten`."""
        out = gradients.copy()
        algebra.divide_all(0, len(out), self.factors, which, True, out)
        return out
