"""Kernel density of warps in the tangent space at the identity.

Each observed warp and its inverse carry a Gaussian kernel with covariance h² Σ, where Σ is the
class covariance and h the bandwidth. Centres are shrunk by sqrt(1 - h²) (West, 1993), so the
mixture has covariance (1 - h²) S + h² Σ, with S the second moment of the observed warps. h = 1 is
the class Gaussian; h near 0 repeats the observed warps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.special

from dreamwarp.core.compiled import spread
from dreamwarp.core.draws import Stream, uniforms
from dreamwarp.model import draw_kernels as kernels
from dreamwarp.model.distribution import Array, Batch, Distribution, Integers, Shapes
from dreamwarp.model.gaussian import Gaussian, log_density, triangular_factor, whiten

# Memory for the table of θ against centres.
TABLE_BYTES = 32 * 2**20
# Smallest number of rows per thread.
ROWS_PER_BLOCK = 2048


@dataclass(frozen=True, eq=False)
class KernelDensity(Distribution):
    """Σ_i p_i (N(centre_i, F Fᵀ) + N(-centre_i, F Fᵀ)) / 2.

    Attributes
    ----------
    factor : (d, d)
        F, lower triangular.
    centers : (n_pairs, d)
    probabilities : (n_pairs,)
        p, summing to 1.
    """

    factor: Array
    centers: Array
    probabilities: Array

    kind: ClassVar[str] = "kde"
    shapes: ClassVar[Shapes] = {
        **Gaussian.shapes,
        "centers": ("F64", "pairs", "dim"),
        "probabilities": ("F64", "pairs"),
    }

    @classmethod
    def fit(
        cls, theta: Array, weights: Array, covariance: Array, bandwidth: float
    ) -> KernelDensity:
        """Fit to warps (n_pairs, d), one direction each, with weights (n_pairs,) and Σ (d, d)."""
        factor = bandwidth * triangular_factor(covariance)
        return cls(factor, theta * np.sqrt(1.0 - bandwidth**2), weights / weights.sum())

    @cached_property
    def kernel(self) -> Gaussian:
        """N(0, F Fᵀ)."""
        return Gaussian(self.factor)

    @cached_property
    def covariance(self) -> Array:
        """(d, d)."""
        between = (self.centers * self.probabilities[:, None]).T @ self.centers
        return (between + between.T) / 2.0 + self.kernel.covariance

    def log_prob(self, theta: Array, templates: Integers | None = None) -> Array:
        """Log density at θ (n, d): (n,)."""
        lower = self.kernel.lower
        white, centers = whiten(lower, theta), whiten(lower, self.centers)
        with np.errstate(divide="ignore"):  # a pair may have weight 0
            constants = np.log(self.probabilities) - 0.5 * np.einsum("pd,pd->p", centers, centers)
        out = log_density(white, lower)
        batch = max(1, TABLE_BYTES // (8 * len(centers)))
        for start in range(0, len(theta), batch):
            # N(θ; c, K) + N(θ; -c, K) over 2 N(θ; 0, K) is exp(-|c|²/2) cosh(θ · c), whitened.
            product = white[start : start + batch] @ centers.T
            cosh = np.logaddexp(product, -product) - np.log(2.0)
            out[start : start + batch] += scipy.special.logsumexp(cosh + constants, axis=1)
        return out

    @cached_property
    def _cumulative(self) -> Array:
        return np.cumsum(self.probabilities)

    def draw(self, key: int, batch: Batch) -> None:
        """Fill a batch with draws."""
        self.kernel.draw(key, batch)
        places = uniforms(key, batch.numbers, 2, stream=Stream.MIXTURE, n_threads=batch.n_threads)
        # Scaled by the last sum, which rounding may leave below 1.
        sums = self._cumulative
        chosen = np.searchsorted(sums[:-1], places[:, 0] * sums[-1], side="right")
        signs = np.where(places[:, 1] < 0.5, -1.0, 1.0)
        spread(
            kernels.add_multiples, len(batch.rows), self.centers, chosen, signs, batch.rows,
            batch.out, n_threads=batch.n_threads, smallest_block=ROWS_PER_BLOCK,
        )  # fmt: skip

    def check(self) -> None:
        """Raise unless the factor is triangular and the probabilities sum to 1."""
        self.kernel.check()
        if self.probabilities.min() < 0.0 or not np.isclose(self.probabilities.sum(), 1.0):
            raise ValueError("probabilities that do not sum to 1")
