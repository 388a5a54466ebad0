"""Fit the distribution of every class, with all hyper-parameters known.

The covariance of a class is its shrunk second moment, blended with that of all classes (the pool).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dreamwarp.core.compiled import limit_algebra
from dreamwarp.core.labels import Label
from dreamwarp.core.validation import warn_user
from dreamwarp.model.gaussian import Array, Gaussian, triangular_factor
from dreamwarp.model.pairs import Pairs, join
from dreamwarp.model.template import TemplateMixture

DISTRIBUTIONS: dict[str, type[Gaussian]] = {cls.kind: cls for cls in (Gaussian, TemplateMixture)}
KINDS = tuple(DISTRIBUTIONS)
# Formulas for the shrinkage.
FORMULAS = ("oas", "ledoit-wolf")


@dataclass(frozen=True)
class HyperParameters:
    """How distributions are estimated from pairs. None: to be chosen by held-out likelihood.

    ``shrinkage`` is the weight of the isotropic covariance of the same trace, or the formula for
    it, "oas" or "ledoit-wolf". The pool is the covariance of all classes. Its weight in a class is
    ``pooling`` or, if that is None, pool_pairs / (pool_pairs + n_pairs).
    """

    kind: str
    shrinkage: float | str | None = None
    pooling: float | None = None
    pool_pairs: float | None = None  # ν, the weight of the pool as a number of pairs
    smooth_covariance: Array | None = None  # (d, d), of the smooth prior of the pool
    smooth_pairs: float = 0.0  # ν₀, its weight in the pool, as a number of pairs
    class_pairs: float | None = None  # for "template": c, how many neighbours the class counts as
    drift: float | None = None  # for "template": b
    min_pairs: int = 5  # a class with fewer pairs gets the pool's distribution

    def pooling_of(self, n_pairs: float) -> float:
        """Weight of the covariance of all classes in that of a class with ``n_pairs`` pairs."""
        if n_pairs == 0.0:
            return 1.0
        if self.pooling is not None:
            return self.pooling
        assert self.pool_pairs is not None
        if np.isinf(self.pool_pairs):
            return 1.0
        return self.pool_pairs / (self.pool_pairs + n_pairs)

    def settings(self) -> dict[str, Any]:
        """The settings of a model: those that apply to it."""
        found: dict[str, Any] = {"kind": self.kind, "shrinkage": self.shrinkage}
        if self.pooling is not None:
            found["pooling"] = self.pooling
        elif self.pool_pairs == np.inf:
            found["pooling"] = 1.0
        else:
            found["pool_pairs"] = self.pool_pairs
        if self.smooth_covariance is not None:
            found["smooth_pairs"] = self.smooth_pairs
        for name in ("class_pairs", "drift"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        return found | {"min_pairs": self.min_pairs}


@dataclass(frozen=True)
class ClassFit:
    """How the distribution of a class was fitted.

    Attributes
    ----------
    n_pairs : int
        Pairs of weight above 0. For templates with separate Gaussians, shrinkage and pooling are
        those of the Gaussian, which was fitted to other pairs.
    shrinkage : float
        Weight of the isotropic covariance.
    pooling : float
        Weight of the covariance of all classes; 1 for a class that fell back to it.
    fell_back : bool
        Whether the class had too few pairs and so uses the distribution of all classes.
    """

    n_pairs: int
    shrinkage: float
    pooling: float
    fell_back: bool


class Fitted(NamedTuple):
    """All of a model but its space: ``WarpModel(space, *fitted)``."""

    distributions: dict[Label, Gaussian]
    pooled: Gaussian
    fits: dict[Label, ClassFit]
    settings: dict[str, Any]


def fit_classes(
    pairs_by_class: Mapping[Label, Pairs],
    hyper: HyperParameters,
    gaussians: Fitted | None = None,
) -> Fitted:
    """Fit every class and the pool.

    ``gaussians``: take covariances from these instead of estimating them from the pairs.
    """
    distributions, fits = {}, {}
    with limit_algebra():
        if gaussians is None:
            pool_covariance = estimate_pool_covariance(pairs_by_class, hyper)
            pooled = Gaussian.from_covariance(pool_covariance)
        else:
            pooled = gaussians.pooled
        for label, pairs in pairs_by_class.items():
            if len(pairs) < hyper.min_pairs:
                distributions[label] = pooled
                fits[label] = ClassFit(len(pairs), 0.0, 1.0, fell_back=True)
                continue
            if gaussians is None:
                covariance, shrinkage, pooling = estimate_class_covariance(
                    pairs, pool_covariance, hyper
                )
            else:
                covariance = gaussians.distributions[label].covariance
                shrinkage, pooling = gaussians.fits[label].shrinkage, gaussians.fits[label].pooling
            distributions[label] = fit_class(pairs, covariance, hyper)
            fits[label] = ClassFit(len(pairs), shrinkage, pooling, fell_back=False)
    return Fitted(distributions, pooled, fits, hyper.settings())


def fit_class(pairs: Pairs, covariance: Array, hyper: HyperParameters) -> Gaussian:
    """The distribution of a class, from its pairs and its covariance."""
    if hyper.kind == "gaussian":
        return Gaussian.from_covariance(covariance)
    assert pairs.edges is not None and hyper.class_pairs is not None and hyper.drift is not None
    return TemplateMixture(
        factor=triangular_factor(covariance), theta=pairs.theta, edges=pairs.edges,
        weights=pairs.weights, class_pairs=hyper.class_pairs, drift=hyper.drift,
    )  # fmt: skip


# -- covariances


def shrink_covariance(pairs: Pairs, shrinkage: float | str | None) -> tuple[Array, float]:
    """(1 - s) M + s (tr M / d) I for the second moment M of pairs, and the shrinkage s."""
    moment, dim = pairs.second_moment, pairs.theta.shape[1]
    s = choose_shrinkage(pairs, shrinkage) if isinstance(shrinkage, str) else shrinkage
    assert s is not None
    return (1.0 - s) * moment + s * np.trace(moment) / dim * np.eye(dim), s


def choose_shrinkage(pairs: Pairs, formula: str) -> float:
    """The shrinkage by a formula, "oas" or "ledoit-wolf"."""
    if not pairs.theta.any():
        return 0.0
    # One pair does not determine directions: scikit-learn would divide by zero.
    if len(pairs) == 1:
        return 1.0
    from sklearn.covariance import ledoit_wolf_shrinkage, oas

    if formula == "oas":
        return float(oas(pairs.scaled_theta, assume_centered=True)[1])
    return float(ledoit_wolf_shrinkage(pairs.scaled_theta, assume_centered=True))


def blend(own: Array, pool_covariance: Array, pooling: float) -> Array:
    """(1 - pooling) own + pooling pool_covariance."""
    return (1.0 - pooling) * own + pooling * pool_covariance


def estimate_pool_covariance(
    pairs_by_class: Mapping[Label, Pairs], hyper: HyperParameters
) -> Array:
    """Covariance (d, d) of the pairs of all classes.

    With a smooth prior, this is ``empirical_bayes.m_step`` in the coordinates θ.
    """
    if hyper.smooth_covariance is None:
        return shrink_covariance(join(pairs_by_class), hyper.shrinkage)[0]
    present = [pairs for pairs in pairs_by_class.values() if len(pairs)]
    if not present:
        return hyper.smooth_covariance
    n_pairs = [float(pairs.weights.sum()) for pairs in present]
    moment = np.average([pairs.second_moment for pairs in present], axis=0, weights=n_pairs)
    share = hyper.smooth_pairs / (hyper.smooth_pairs + sum(n_pairs))
    return blend(moment, hyper.smooth_covariance, share)


def estimate_class_covariance(
    pairs: Pairs, pool_covariance: Array, hyper: HyperParameters
) -> tuple[Array, float, float]:
    """Covariance (d, d) of a class, and the shrinkage and pooling used."""
    pooling = hyper.pooling_of(pairs.effective_number)
    if pooling == 1.0:
        return pool_covariance, 0.0, 1.0
    own, shrinkage = shrink_covariance(pairs, hyper.shrinkage)
    return blend(own, pool_covariance, pooling), shrinkage, pooling


# -- checks


def check_enough(pairs_by_class: Mapping[Label, Pairs], min_pairs: int) -> None:
    """Raise if there are too few pairs, or all θ are 0."""
    n_pairs = sum(len(pairs) for pairs in pairs_by_class.values())
    if n_pairs < min_pairs:
        raise ValueError(
            f"there must be at least {min_pairs} pairs of weight above 0 over all classes, got "
            f"{n_pairs}. Align more pairs, or lower `min_pairs`."
        )
    if not any(pairs.theta.any() for pairs in pairs_by_class.values()):
        raise ValueError(
            "every θ is zero, so there is no warp to learn. Are the samples of each class alike?"
        )


def warn_of_fallbacks(fitted: Fitted) -> None:
    """Name the classes that had too few pairs."""
    fallen = [f"{label!r} ({fit.n_pairs})" for label, fit in fitted.fits.items() if fit.fell_back]
    if fallen:
        warn_user(
            f"classes with fewer than {fitted.settings['min_pairs']} pairs get the warps of all "
            f"classes: {', '.join(fallen)}.",
            RuntimeWarning,
        )
