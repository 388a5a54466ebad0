"""Kernel density of warps in the tangent space at the identity.

Around each warp that was seen, and around its inverse, stands a Gaussian of the shape of the class
covariance Σ, h times as wide. Centres are drawn in by a = sqrt(1 - h²) (West, 1993), so the
mixture's covariance is (1 - h²) S + h² Σ, S being that of the warps seen, which Σ is where it is
neither shrunk nor pooled: h = 1 is the class Gaussian itself, h near 0 repeats those warps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.special
from numpy.typing import NDArray

from dreamwarp.core.compiled import spread
from dreamwarp.core.draws import Stream, uniforms
from dreamwarp.model import draw_kernels as kernels
from dreamwarp.model.gaussian import (
    Array,
    Gaussian,
    Integers,
    Shapes,
    log_density,
    triangular_factor,
    whiten,
)

# Memory for the table of θ against centres.
TABLE_BYTES = 32 * 2**20
# Additions of a row that are worth a thread.
ROWS_PER_BLOCK = 2048


@dataclass(frozen=True, eq=False)
class KernelDensity:
    """Σ_i p_i (N(centre_i, K) + N(-centre_i, K)) / 2.

    Attributes
    ----------
    kernel : Gaussian
        N(0, K).
    centers : (n_pairs, d)
    probabilities : (n_pairs,)
        p, adding up to 1.
    """

    kernel: Gaussian
    centers: Array
    probabilities: Array

    kind: ClassVar[str] = "kde"
    shapes: ClassVar[Shapes] = {
        **Gaussian.shapes,
        "centers": ("F64", "pairs", "dim"),
        "probabilities": ("F64", "pairs"),
    }
    scalars: ClassVar[tuple[str, ...]] = Gaussian.scalars

    @classmethod
    def fit(
        cls, theta: Array, weights: Array, covariance: Array, bandwidth: float
    ) -> KernelDensity:
        """From warps (n_pairs, d), each in one direction, their weights, and Σ (d, d)."""
        kernel = Gaussian(bandwidth * triangular_factor(covariance))
        return cls(kernel, theta * np.sqrt(1.0 - bandwidth**2), weights / weights.sum())

    @cached_property
    def covariance(self) -> Array:
        """(d, d)."""
        spread_out = (self.centers * self.probabilities[:, None]).T @ self.centers
        return (spread_out + spread_out.T) / 2.0 + self.kernel.covariance

    def log_prob(self, theta: Array, templates: Integers | None = None) -> Array:
        """Log density at θ (n, d): (n,). The templates change nothing."""
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
    def _bounds(self) -> Array:
        """Upper ends of the parts of [0, 1) that choose each centre."""
        return np.cumsum(self.probabilities)

    def draw(
        self,
        key: int,
        numbers: Integers,
        rows: Integers,
        templates: Integers,
        out: Array,
        n_threads: int | None,
    ) -> None:
        """Put θ of sample ``numbers[t]`` into ``out[rows[t]]``. The templates change nothing."""
        self.kernel.draw(key, numbers, rows, templates, out, n_threads)
        places = uniforms(key, numbers, 2, stream=Stream.MIXTURE, n_threads=n_threads)
        # The last sum may be a rounding below 1, or below the numbers drawn.
        chosen = np.searchsorted(self._bounds[:-1], places[:, 0] * self._bounds[-1], side="right")
        signs = np.where(places[:, 1] < 0.5, -1.0, 1.0)
        spread(
            kernels.add_multiples, len(rows), self.centers, chosen, signs, rows, out,
            n_threads=n_threads, smallest_block=ROWS_PER_BLOCK,
        )  # fmt: skip

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a file holds of it, with the shapes of ``shapes``."""
        return {
            **self.kernel.arrays(),
            "centers": self.centers,
            "probabilities": self.probabilities,
        }

    def parameters(self) -> dict[str, float]:
        """Single numbers that go with the arrays."""
        return self.kernel.parameters()

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], parameters: Mapping[str, float]
    ) -> KernelDensity:
        """The reverse of ``arrays`` and ``parameters``; refuses what can't be."""
        probabilities = arrays["probabilities"]
        if probabilities.min() < 0.0 or not np.isclose(probabilities.sum(), 1.0):
            raise ValueError("probabilities that do not add up to 1")
        kernel = Gaussian.from_arrays(arrays, parameters)
        return cls(kernel, arrays["centers"], probabilities)
