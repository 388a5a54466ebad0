"""Zero-mean Gaussian in the tangent space at the identity: θ | y ~ N(0, Σ_y), as in the paper."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dreamwarp.core.compiled import count_chunks, spread
from dreamwarp.core.draws import split_key
from dreamwarp.core.lanes import LANES
from dreamwarp.model import draw_kernels as kernels

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
# From the name of an array to its dtype and the sizes of its axes. A word stands for any size, and
# the same word for the same size.
Shapes: TypeAlias = "dict[str, tuple[str | int, ...]]"

# Smallest standard deviation, relative to the largest, that float64 distinguishes from zero: a
# covariance is rounded at 1e-16 of its largest entry, its square root at 1e-8.
SMALLEST_DEVIATION = 1e-7
# Smallest number of tasks per thread; a task is ``LANES`` draws.
TASKS_PER_BLOCK = 8


@dataclass(frozen=True, eq=False)
class Components:
    """Principal components of a distribution of warps, largest first.

    Attributes
    ----------
    directions : (d, k)
        Orthonormal columns, in θ.
    standard_deviations : (k,)
    share : (k,)
        Fraction of the total variance; sums to 1 over all d components.
    """

    directions: Array
    standard_deviations: Array
    share: Array


class Batch(NamedTuple):
    """Draws to make, and where to put them."""

    numbers: Integers  # (n,), sample numbers: draw t depends on the key and numbers[t] alone
    rows: Integers  # (n,): draw t goes into out[rows[t]]
    templates: Integers  # (n,), indices of the samples to be warped; -1 for none
    out: Array  # (m, d)
    n_threads: int | None = None


@dataclass(frozen=True, eq=False)
class Gaussian:
    """The distribution N(0, L Lᵀ) of the warps of a class.

    A model file stores the arrays named in ``shapes`` and the numbers named in ``scalars``.
    """

    factor: Array  # (d, d), L, lower triangular

    kind: ClassVar[str] = "gaussian"
    shapes: ClassVar[Shapes] = {"factor": ("F64", "dim", "dim")}
    scalars: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_covariance(cls, covariance: Array) -> Gaussian:
        """The Gaussian with this covariance (d, d), which may be singular."""
        return cls(triangular_factor(covariance))

    @cached_property
    def covariance(self) -> Array:
        """Σ = L Lᵀ, (d, d), symmetric to the last bit."""
        covariance = self.factor @ self.factor.T
        return (covariance + covariance.T) / 2.0

    @cached_property
    def components(self) -> Components:
        """Principal components of the covariance."""
        values, vectors = np.linalg.eigh(self.covariance)
        variances = np.maximum(values[::-1], 0.0)
        share = variances / max(float(variances.sum()), np.finfo(np.float64).tiny)
        directions = np.ascontiguousarray(vectors[:, ::-1])
        # Eigenvectors are unique up to sign: make the largest entry positive.
        largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=0)[None], axis=0)
        directions *= np.where(largest < 0.0, -1.0, 1.0)
        deviations = np.sqrt(variances)
        for array in (directions, deviations, share):
            array.setflags(write=False)  # callers share them
        return Components(directions, deviations, share)

    def flattened(self, mass_factor: Array, power: float) -> Gaussian:
        """The same distribution with variances λ of displacement replaced by c λ^power.

        The λ are the eigenvalues of Kᵀ Σ K, where K = ``mass_factor`` (d, d) is the Cholesky factor
        of M = ∫ v_i · v_j. Their sum tr(M Σ), the mean square displacement, is kept by c.
        """
        variances, turn = np.linalg.eigh(mass_factor.T @ self.covariance @ mass_factor)
        # Below rounding, variances are 0 and stay so: a small power would make them large.
        floor = SMALLEST_DEVIATION**2 * variances.max(initial=0.0)
        flat = np.where(variances > floor, np.maximum(variances, floor) ** power, 0.0)
        total = flat.sum()
        scaled = np.sqrt(flat * (variances.sum() / total if total > 0.0 else 0.0))
        root = scipy.linalg.solve_triangular(mass_factor, turn * scaled, lower=True, trans="T")
        return replace(self, factor=triangular_factor(root @ root.T))

    @property
    def lower(self) -> Array:
        """L, for densities; raises if the covariance is singular."""
        if not is_definite(self.factor):
            raise ValueError(
                "the covariance of these warps is singular, so they have no density. Fit with more "
                'pairs, or with shrinkage="auto".'
            )
        return self.factor

    def log_prob(self, theta: Array, templates: Integers | None = None) -> Array:
        """Log density at θ (n, d): (n,). Only a ``TemplateMixture`` uses ``templates``."""
        return log_density(whiten(self.lower, theta), self.lower)

    @cached_property
    def _widths(self) -> Integers:
        """Length (d,) of each row of the factor up to its last non-zero entry."""
        columns = np.arange(1, self.factor.shape[1] + 1)
        return np.max((self.factor != 0.0) * columns, axis=1, initial=0).astype(np.int64)

    def draw(self, key: int, batch: Batch) -> None:
        """Fill a batch with draws."""
        spread(
            kernels.draw_gaussian, count_chunks(len(batch.rows), LANES), *split_key(key),
            self.factor, self._widths, batch.numbers, batch.rows, batch.out,
            n_threads=batch.n_threads, smallest_block=TASKS_PER_BLOCK,
        )  # fmt: skip

    def check(self, name: str) -> None:
        """Raise ValueError if the fields, read from a file, are not valid."""
        if np.triu(self.factor, 1).any() or np.diag(self.factor).min() < 0.0:
            raise ValueError(
                f"part {name!r} has a factor that is not lower triangular with a diagonal of at "
                "least 0"
            )


# -- linear algebra


def triangular_factor(covariance: Array) -> Array:
    """L, lower triangular with non-negative diagonal, such that L Lᵀ = covariance.

    A singular covariance has no Cholesky factor. Then L = Rᵀ, where Q R = Λ^½ Uᵀ with eigenvalues Λ
    and eigenvectors U.
    """
    try:
        return np.asarray(np.linalg.cholesky(covariance), np.float64)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        upper = np.linalg.qr(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T, mode="r")
        signs = np.where(np.diag(upper) < 0.0, -1.0, 1.0)
        return np.ascontiguousarray((signs[:, None] * upper).T)


def is_definite(lower: Array) -> bool:
    """Whether L Lᵀ is positive definite to working precision."""
    diagonal = np.diag(lower)
    return bool(diagonal.min() > SMALLEST_DEVIATION * diagonal.max())


def whiten(lower: Array, theta: Array) -> Array:
    """L⁻¹ θ for each row of θ (n, d)."""
    return np.asarray(scipy.linalg.solve_triangular(lower, theta.T, lower=True).T)


def log_density(white: Array, lower: Array) -> Array:
    """Log of N(θ; 0, L Lᵀ) for whitened θ (n, d): (n,)."""
    constant = 0.5 * len(lower) * np.log(2.0 * np.pi) + np.log(np.diag(lower)).sum()
    return -0.5 * np.einsum("nd,nd->n", white, white) - constant
