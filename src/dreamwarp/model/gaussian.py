"""Zero-mean Gaussians at the identity: θ | y ~ N(0, Σ_y), the paper's model of warps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dreamwarp.core.compiled import count_chunks, spread
from dreamwarp.core.draws import split_key
from dreamwarp.core.lanes import LANES
from dreamwarp.model import draw_kernels as kernels

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
# Arrays in a file: name to type and shape. Words stand for sizes: equal words, equal sizes.
Shapes: TypeAlias = "dict[str, tuple[str | int, ...]]"

# Smallest standard deviation in any direction, relative to the largest, that float64 can tell from
# none: a covariance is rounded at 1e-16 of its largest entry, its root at 1e-8.
SMALLEST_DEVIATION = 1e-7
# Tasks of ``LANES`` draws that are worth a thread.
TASKS_PER_BLOCK = 8


@dataclass(frozen=True, eq=False)
class Components:
    """Principal directions of a distribution of warps, largest first.

    Attributes
    ----------
    directions : (d, k)
        Orthonormal columns, in θ.
    standard_deviations : (k,)
    share : (k,)
        Share of the total variance; adds up to 1 over all d.
    """

    directions: Array
    standard_deviations: Array
    share: Array


@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(0, F Fᵀ).

    Attributes
    ----------
    factor : (d, d)
        F, lower triangular.
    """

    factor: Array

    kind: ClassVar[str] = "gaussian"
    shapes: ClassVar[Shapes] = {"factor": ("F64", "dim", "dim")}
    scalars: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_covariance(cls, covariance: Array) -> Gaussian:
        """The Gaussian with this covariance (d, d), definite or not."""
        return cls(triangular_factor(covariance))

    # -- what it is

    @property
    def dim(self) -> int:
        """Number of parameters, d."""
        return len(self.factor)

    @cached_property
    def covariance(self) -> Array:
        """(d, d)."""
        covariance = self.factor @ self.factor.T
        return (covariance + covariance.T) / 2.0

    @property
    def lower(self) -> Array:
        """The factor; raises if the covariance is singular."""
        if not is_definite(self.factor):
            raise ValueError(
                "the covariance of these warps is singular, so they have no density. Fit with more "
                'pairs, or with shrinkage="auto".'
            )
        return self.factor

    def log_prob(self, theta: Array, templates: Integers | None = None) -> Array:
        """Log density at θ (n, d): (n,). The templates change nothing."""
        return log_density(whiten(self.lower, theta), self.lower)

    # -- draws

    @cached_property
    def _widths(self) -> Integers:
        """Number of entries in each row of the factor up to the last that is not zero."""
        columns = np.arange(1, self.factor.shape[1] + 1)
        return np.max((self.factor != 0.0) * columns, axis=1, initial=0).astype(np.int64)

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
        spread(
            kernels.draw_gaussian, count_chunks(len(rows), LANES), *split_key(key), self.factor,
            self._widths, numbers, rows, out, n_threads=n_threads, smallest_block=TASKS_PER_BLOCK,
        )  # fmt: skip

    # -- files

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a file holds of it, with the shapes of ``shapes``."""
        return {"factor": self.factor}

    def parameters(self) -> dict[str, float]:
        """Single numbers that go with the arrays."""
        return {}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, NDArray[Any]], parameters: Mapping[str, float]
    ) -> Gaussian:
        """The reverse of ``arrays`` and ``parameters``; refuses what can't be."""
        factor = arrays["factor"]
        if np.triu(factor, 1).any() or np.diag(factor).min() < 0.0:
            raise ValueError("a factor that is not lower triangular with a diagonal of at least 0")
        return cls(factor)


# -- parts that other distributions use


def triangular_factor(covariance: Array) -> Array:
    """L, lower triangular with a diagonal that is not negative, and L Lᵀ = covariance.

    For a singular covariance too, for which there is no Cholesky factor: then by its eigenvectors,
    L = Rᵀ where Q R = Λ^½ Uᵀ.
    """
    try:
        return np.asarray(np.linalg.cholesky(covariance), np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        upper = np.linalg.qr(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T, mode="r")
        signs = np.where(np.diag(upper) < 0.0, -1.0, 1.0)
        return np.ascontiguousarray((signs[:, None] * upper).T)


def is_definite(lower: Array) -> bool:
    """Whether L Lᵀ has a variance that can be told from zero in every direction."""
    diagonal = np.diag(lower)
    return bool(diagonal.min() > SMALLEST_DEVIATION * diagonal.max())


def whiten(lower: Array, theta: Array) -> Array:
    """L⁻¹ θ for each row of θ (n, d)."""
    return np.asarray(scipy.linalg.solve_triangular(lower, theta.T, lower=True).T)


def log_density(white: Array, lower: Array) -> Array:
    """Log of N(θ; 0, L Lᵀ) for whitened θ (n, d): (n,)."""
    constant = 0.5 * len(lower) * np.log(2.0 * np.pi) + np.log(np.diag(lower)).sum()
    return -0.5 * np.einsum("nd,nd->n", white, white) - constant


def components(covariance: Array) -> Components:
    """Principal directions of a covariance (d, d)."""
    values, vectors = np.linalg.eigh(covariance)
    variances = np.maximum(values[::-1], 0.0)
    share = variances / max(float(variances.sum()), np.finfo(np.float64).tiny)
    directions = np.ascontiguousarray(vectors[:, ::-1])
    # Eigenvectors come with either sign: the largest entry is made positive.
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[None], axis=0)
    return Components(directions * np.where(largest < 0.0, -1.0, 1.0), np.sqrt(variances), share)
